/* AMD's WMMA (gfx11, wavefronts of 32) as an engine of engine/fragment.h, by clang's builtins.
 *
 * The lane maps are those of AMD's "RDNA3 Instruction Set Architecture", Wave Matrix Multiply Accumulate, for
 * V_WMMA_F32_16X16X16_{F16,BF16}: lanes 16 to 31 hold a copy of A and B.
 *
 *   A  element n of a lane: row lane % 16, k n
 *   B  element n: column lane % 16, k n
 *   C  float n: row 2n + lane/16, column lane % 16
 *
 * The emulation takes even elements from the lower lanes and odd ones from the upper, so that both copies count. */
#if MATRIX_ENGINE == MATRIX_WMMA

#define MATRIX_OWNS(lane, n) (((n) & 1) == (lane) >> 4)
#define matrix_pack matrix_pack_plainly

static inline int matrix_a_row(int lane, int n)
{
    return lane & 15;
}

static inline int matrix_a_k(int lane, int n)
{
    return n;
}

static inline int matrix_b_column(int lane, int n)
{
    return lane & 15;
}

static inline int matrix_b_k(int lane, int n)
{
    return n;
}

static inline int matrix_c_row(int lane, int n)
{
    return (n << 1) + (lane >> 4);
}

static inline int matrix_c_column(int lane, int n)
{
    return lane & 15;
}

#if !MATRIX_EMULATED

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

static inline void matrix_one(matrix_c *c, const matrix_a *a, const matrix_b *b)
{
    const uint8 left = vload8(0, a->word), right = vload8(0, b->word);
#if MATRIX_BF16
    const float8 sum =
        __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(left), as_short16(right), vload8(0, c->sum));
#else
    const float8 sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(left), as_half16(right), vload8(0, c->sum));
#endif
    vstore8(sum, 0, c->sum);
}

static inline float matrix_swap(float x, int distance, int lane, local uint *scratch)
{
    return as_float(__builtin_amdgcn_ds_bpermute((lane ^ distance) << 2, as_int(x)));
}

#endif

static inline void matrix_row_of(uint *word, const local ushort *tile, int width, int row, int k)
{
    vstore4(matrix_8(tile, width, row, k), 0, word);
    vstore4(matrix_8(tile, width, row, k + 8), 1, word);
}

static inline void matrix_column_of(uint *word, const local ushort *tile, int width, int k, int column)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_A; w++)
        word[w] = matrix_down(tile, width, k + 2 * w, column);
}

static inline void matrix_load_a(matrix_a *f, const local ushort *tile, int width, int row, int k, int lane)
{
    matrix_row_of(f->word, tile, width, row + (lane & 15), k);
}

static inline void matrix_load_a_transposed(matrix_a *f, const local ushort *tile, int width, int k, int row, int lane)
{
    matrix_column_of(f->word, tile, width, k, row + (lane & 15));
}

static inline void matrix_load_b(matrix_b *f, const local ushort *tile, int width, int column, int k, int lane)
{
    matrix_row_of(f->word, tile, width, column + (lane & 15), k);
}

static inline void matrix_load_b_transposed(matrix_b *f, const local ushort *tile, int width, int k, int column,
                                            int lane)
{
    matrix_column_of(f->word, tile, width, k, column + (lane & 15));
}

/* A lane has every other row of its column; the rest is 16 lanes away. */
static inline void matrix_chain(matrix_b *f, const matrix_c *c, int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_B; w++) {
        float other = matrix_swap(c->sum[w], 16, lane, scratch);
        f->word[w] = lane < 16 ? matrix_pack(c->sum[w], other) : matrix_pack(other, c->sum[w]);
    }
}

#endif
