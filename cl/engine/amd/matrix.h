/* AMD's two matrix instructions as engines of engine/fragment.h, by clang's builtins.
 *
 * MATRIX_MFMA (gfx90a, gfx94x, wavefronts of 64).  The lane maps are those of AMD's "CDNA2 Instruction Set Architecture",
 * Matrix Arithmetic Instructions, and of AMD's matrix instruction calculator, for V_MFMA_F32_16X16X16_{F16,BF16_1K}:
 *
 *   A  element n of a lane: row lane % 16, k 4 * (lane/16) + n
 *   B  element n: column lane % 16, k 4 * (lane/16) + n
 *   C  float n: row 4 * (lane/16) + n, column lane % 16
 *
 * On gfx90a the instruction takes float16 and bfloat16 below their smallest normal number for 0 ("CDNA2", Denormals):
 * nothing for bfloat16, whose smallest is float32's, but 6.1e-5 for float16.
 *
 * MATRIX_WMMA (gfx11, wavefronts of 32).  The lane maps are those of AMD's "RDNA3 Instruction Set Architecture", Wave
 * Matrix Multiply Accumulate, for V_WMMA_F32_16X16X16_{F16,BF16}: lanes 16 to 31 hold a copy of A and B.
 *
 *   A  element n of a lane: row lane % 16, k n
 *   B  element n: column lane % 16, k n
 *   C  float n: row 2n + lane/16, column lane % 16
 *
 * The emulation takes even elements from the lower lanes and odd ones from the upper, so that both copies count. */
#if MATRIX_ENGINE == MATRIX_MFMA || MATRIX_ENGINE == MATRIX_WMMA

#define matrix_pack matrix_pack_plainly

static inline int matrix_a_row(int lane, int n)
{
    return lane & 15;
}

static inline int matrix_b_column(int lane, int n)
{
    return lane & 15;
}

static inline int matrix_c_column(int lane, int n)
{
    return lane & 15;
}

#if !MATRIX_EMULATED

#pragma OPENCL EXTENSION cl_khr_fp16 : enable

static inline float matrix_swap(float x, int distance, int lane, local uint *scratch)
{
    return as_float(__builtin_amdgcn_ds_bpermute((lane ^ distance) << 2, as_int(x)));
}

#endif

#if MATRIX_ENGINE == MATRIX_MFMA

#define MATRIX_OWNS(lane, n) 1

static inline int matrix_a_k(int lane, int n)
{
    return (lane >> 4 << 2) + n;
}

static inline int matrix_c_row(int lane, int n)
{
    return (lane >> 4 << 2) + n;
}

#if !MATRIX_EMULATED
static inline void matrix_one(matrix_c *c, const matrix_a *a, const matrix_b *b)
{
    const uint2 left = vload2(0, a->word), right = vload2(0, b->word);
#if MATRIX_BF16
    const float4 sum =
        __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(as_short4(left), as_short4(right), vload4(0, c->sum), 0, 0, 0);
#else
    const float4 sum =
        __builtin_amdgcn_mfma_f32_16x16x16f16(as_half4(left), as_half4(right), vload4(0, c->sum), 0, 0, 0);
#endif
    vstore4(sum, 0, c->sum);
}
#endif

static inline void matrix_row_of(uint *word, const local ushort *tile, int width, int row, int k, int lane)
{
    vstore2(matrix_4(tile, width, row + (lane & 15), k + (lane >> 4 << 2)), 0, word);
}

static inline void matrix_column_of(uint *word, const local ushort *tile, int width, int k, int column, int lane)
{
    word[0] = matrix_down(tile, width, k + (lane >> 4 << 2), column + (lane & 15));
    word[1] = matrix_down(tile, width, k + (lane >> 4 << 2) + 2, column + (lane & 15));
}

/* C's map is B's. */
static inline void matrix_chain(matrix_b *f, const matrix_c *c, int lane, local uint *scratch)
{
    f->word[0] = matrix_pack(c->sum[0], c->sum[1]);
    f->word[1] = matrix_pack(c->sum[2], c->sum[3]);
}

#else

#define MATRIX_OWNS(lane, n) (((n) & 1) == (lane) >> 4)

static inline int matrix_a_k(int lane, int n)
{
    return n;
}

static inline int matrix_c_row(int lane, int n)
{
    return (n << 1) + (lane >> 4);
}

#if !MATRIX_EMULATED
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
#endif

static inline void matrix_row_of(uint *word, const local ushort *tile, int width, int row, int k, int lane)
{
    vstore4(matrix_8(tile, width, row + (lane & 15), k), 0, word);
    vstore4(matrix_8(tile, width, row + (lane & 15), k + 8), 1, word);
}

static inline void matrix_column_of(uint *word, const local ushort *tile, int width, int k, int column, int lane)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_A; w++)
        word[w] = matrix_down(tile, width, k + 2 * w, column + (lane & 15));
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

static inline int matrix_b_k(int lane, int n)
{
    return matrix_a_k(lane, n);
}

static inline void matrix_load_a(matrix_a *f, const local ushort *tile, int width, int row, int k, int lane)
{
    matrix_row_of(f->word, tile, width, row, k, lane);
}

static inline void matrix_load_a_transposed(matrix_a *f, const local ushort *tile, int width, int k, int row, int lane)
{
    matrix_column_of(f->word, tile, width, k, row, lane);
}

static inline void matrix_load_b(matrix_b *f, const local ushort *tile, int width, int column, int k, int lane)
{
    matrix_row_of(f->word, tile, width, column, k, lane);
}

static inline void matrix_load_b_transposed(matrix_b *f, const local ushort *tile, int width, int k, int column,
                                            int lane)
{
    matrix_column_of(f->word, tile, width, k, column, lane);
}

#endif
