/* Intel's dpas as an engine of engine/fragment.h, by cl_intel_subgroup_matrix_multiply_accumulate.
 *
 * The lane maps are those of that extension's specification: an instruction takes 8 rows of A and one column of B a lane,
 * in sub-groups of 8 (Arc) or of 16 (Data Center GPU Max), whichever is the device's smallest.
 *
 * MATRIX_DPAS8; four instructions, of upper and lower rows with left and right columns:
 *   A  element n of a lane: row n/2, k 2 * lane + n%2
 *   B  element n: column lane + 8 * (n/16), k n % 16
 *   C  float n: row n%8 + 8 * (n/16), column lane + 8 * (n/8 % 2)
 * MATRIX_DPAS16; two, of upper and lower rows:
 *   A  element n: row n, k lane
 *   B  element n: column lane, k n
 *   C  float n: row n, column lane */
#if MATRIX_ENGINE == MATRIX_DPAS8 || MATRIX_ENGINE == MATRIX_DPAS16

#define MATRIX_OWNS(lane, n) 1
#define matrix_pack matrix_pack_plainly

#if MATRIX_ENGINE == MATRIX_DPAS8

static inline int matrix_a_row(int lane, int n)
{
    return n >> 1;
}

static inline int matrix_a_k(int lane, int n)
{
    return (lane << 1) + (n & 1);
}

static inline int matrix_b_column(int lane, int n)
{
    return lane + (n >> 4 << 3);
}

static inline int matrix_b_k(int lane, int n)
{
    return n & 15;
}

static inline int matrix_c_row(int lane, int n)
{
    return (n & 7) + (n >> 4 << 3);
}

static inline int matrix_c_column(int lane, int n)
{
    return lane + ((n >> 3 & 1) << 3);
}

#else

static inline int matrix_a_row(int lane, int n)
{
    return n;
}

static inline int matrix_a_k(int lane, int n)
{
    return lane;
}

static inline int matrix_b_column(int lane, int n)
{
    return lane;
}

static inline int matrix_b_k(int lane, int n)
{
    return n;
}

static inline int matrix_c_row(int lane, int n)
{
    return n;
}

static inline int matrix_c_column(int lane, int n)
{
    return lane;
}

#endif

#if !MATRIX_EMULATED

/* A compiler that is told of no device (ocloc) does not declare the extension's functions. */
#ifndef cl_intel_subgroup_matrix_multiply_accumulate
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(int8 a, int8 b, float8 sum);
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 sum);
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(short8 a, int8 b, float8 sum);
float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(short8 a, int8 b, float8 sum);
#endif

#if MATRIX_BF16
#define MATRIX_DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#else
#define MATRIX_DPAS intel_sub_group_f16_f16_matrix_mad_k16
#endif

/* Whole vectors of a fragment, by its elements: arrays whose address is taken for vload8 stay in memory here. */
#define MATRIX_WORDS4(w, n) (w)[n], (w)[(n) + 1], (w)[(n) + 2], (w)[(n) + 3]
#define MATRIX_WORDS8(w, n) MATRIX_WORDS4(w, n), MATRIX_WORDS4(w, (n) + 4)

static inline void matrix_block(float *sum, const uint *a, const uint *b)
{
#if MATRIX_ENGINE == MATRIX_DPAS8
    const int8 rows = (int8)(MATRIX_WORDS8(a, 0));
#else
    const short8 rows = as_short8((uint4)(MATRIX_WORDS4(a, 0)));
#endif
    const float8 c = MATRIX_DPAS(rows, (int8)(MATRIX_WORDS8(b, 0)), (float8)(MATRIX_WORDS8(sum, 0)));
    sum[0] = c.s0;
    sum[1] = c.s1;
    sum[2] = c.s2;
    sum[3] = c.s3;
    sum[4] = c.s4;
    sum[5] = c.s5;
    sum[6] = c.s6;
    sum[7] = c.s7;
}

static inline void matrix_one(matrix_c *c, const matrix_a *a, const matrix_b *b)
{
#if MATRIX_ENGINE == MATRIX_DPAS8
    matrix_block(c->sum, a->word, b->word);
    matrix_block(c->sum + 8, a->word, b->word + 8);
    matrix_block(c->sum + 16, a->word + 8, b->word);
    matrix_block(c->sum + 24, a->word + 8, b->word + 8);
#else
    matrix_block(c->sum, a->word, b->word);
    matrix_block(c->sum + 8, a->word + 4, b->word);
#endif
}

static inline float matrix_swap(float x, int distance, int lane, local uint *scratch)
{
    return intel_sub_group_shuffle_xor(x, (uint)distance);
}

#endif

static inline void matrix_load_a(matrix_a *f, const local ushort *tile, int width, int row, int k, int lane)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_A; w++)
#if MATRIX_ENGINE == MATRIX_DPAS8
        f->word[w] = matrix_2(tile, width, row + w, k + 2 * lane);
#else
        f->word[w] = matrix_down(tile, width, row + 2 * w, k + lane);
#endif
}

static inline void matrix_load_a_transposed(matrix_a *f, const local ushort *tile, int width, int k, int row, int lane)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_A; w++)
#if MATRIX_ENGINE == MATRIX_DPAS8
        f->word[w] = matrix_down(tile, width, k + 2 * lane, row + w);
#else
        f->word[w] = matrix_2(tile, width, k + lane, row + 2 * w);
#endif
}

static inline void matrix_load_b(matrix_b *f, const local ushort *tile, int width, int column, int k, int lane)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_B; w += 4) {
        const uint4 eight = matrix_8(tile, width, column + lane + (w >> 3 << 3), k + 2 * (w & 7));
        f->word[w] = eight.s0;
        f->word[w + 1] = eight.s1;
        f->word[w + 2] = eight.s2;
        f->word[w + 3] = eight.s3;
    }
}

static inline void matrix_load_b_transposed(matrix_b *f, const local ushort *tile, int width, int k, int column,
                                            int lane)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_B; w++)
        f->word[w] = matrix_down(tile, width, k + 2 * (w & 7), column + lane + (w >> 3 << 3));
}

/* C's columns are B's, row by row. */
static inline void matrix_chain(matrix_b *f, const matrix_c *c, int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_B; w++) {
#if MATRIX_ENGINE == MATRIX_DPAS8
        const int n = (w >> 2 & 1) * 16 + (w >> 3) * 8 + 2 * (w & 3);
#else
        const int n = 2 * w;
#endif
        f->word[w] = matrix_pack(c->sum[n], c->sum[n + 1]);
    }
}

#endif
