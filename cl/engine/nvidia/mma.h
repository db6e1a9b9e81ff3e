/* NVIDIA's mma.sync (compute capability 8.0 and up) as an engine of engine/fragment.h, by inline PTX.
 *
 * The lane maps are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", with
 * g = lane / 4 and t = lane % 4 there; B and C are two instructions' halves, 8 columns each:
 *
 *   A  element n of a lane: row g + 8 * (n/2 % 2), k 2t + 8 * (n/4) + n%2
 *   B  element n: column g + 8 * (n/4), k 2t + 8 * (n/2 % 2) + n%2
 *   C  float n: row g + 8 * (n/2 % 2), column 2t + 8 * (n/4) + n%2
 *
 * A tile becomes fragments by ldmatrix ("Warp-level matrix load instruction"): lane l names the address of 16 bytes,
 * row l%8 of 8 x 8 matrix l/8, and of matrix w every lane gets, as its word w, elements 2t and 2t + 1 of row g; with
 * .trans, of column g. */
#if MATRIX_ENGINE == MATRIX_MMA

#define MATRIX_OWNS(lane, n) 1

static inline int matrix_a_row(int lane, int n)
{
    return (lane >> 2) + ((n >> 1 & 1) << 3);
}

static inline int matrix_a_k(int lane, int n)
{
    return ((lane & 3) << 1) + (n >> 2 << 3) + (n & 1);
}

static inline int matrix_b_column(int lane, int n)
{
    return (lane >> 2) + (n >> 2 << 3);
}

static inline int matrix_b_k(int lane, int n)
{
    return ((lane & 3) << 1) + ((n >> 1 & 1) << 3) + (n & 1);
}

static inline int matrix_c_row(int lane, int n)
{
    return matrix_a_row(lane, n);
}

static inline int matrix_c_column(int lane, int n)
{
    return matrix_a_k(lane, n);
}

#if MATRIX_EMULATED

#define matrix_pack matrix_pack_plainly
#define matrix_exp2 exp2s
#define MATRIX_FORGET(x)

/* What ldmatrix gives lane (g, t): of each 8 x 8 matrix of the 16 x 16 ones from (row, column) on, a word; the second is
 * below the first, or with `beside` right of it. */
static inline void matrix_ldmatrix(uint *word, const local ushort *tile, int width, int row, int column, int beside,
                                   int lane)
{
    for (int w = 0; w < 4; w++) {
        int down = beside ? w >> 1 : w & 1, right = beside ? w & 1 : w >> 1;
        word[w] = matrix_2(tile, width, row + 8 * down + (lane >> 2), column + 8 * right + ((lane & 3) << 1));
    }
}

static inline void matrix_ldmatrix_trans(uint *word, const local ushort *tile, int width, int row, int column,
                                         int beside, int lane)
{
    for (int w = 0; w < 4; w++) {
        int down = beside ? w >> 1 : w & 1, right = beside ? w & 1 : w >> 1;
        word[w] = matrix_down(tile, width, row + 8 * down + ((lane & 3) << 1), column + 8 * right + (lane >> 2));
    }
}

#else

static inline uint matrix_pack(float x, float y)
{
    uint pair;
#if MATRIX_BF16
    __asm__ volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
#else
    __asm__ volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
#endif
    return pair;
}

#define MATRIX_FORGET(x) __asm__ volatile("" : "+r"(x))

/* 2^x with an error of 2 units in the last place, 0 for what would be no normal number; -inf gives +0, 0 gives 1 (PTX ISA,
 * "ex2"). */
static inline float matrix_exp2(float x)
{
    float power;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* The row that this lane names to ldmatrix, as an address in shared memory. */
static inline uint matrix_named(const local ushort *tile, int width, int row, int column, int beside, int lane)
{
    int second = (lane & 8), third = (lane & 16) >> 1;
    int r = row + (lane & 7) + (beside ? third : second), c = column + (beside ? second : third);
    return (uint)(size_t)(tile + MATRIX_AT(r, c, width));
}

static inline void matrix_ldmatrix(uint *word, const local ushort *tile, int width, int row, int column, int beside,
                                   int lane)
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(matrix_named(tile, width, row, column, beside, lane))
                     : "memory");
}

static inline void matrix_ldmatrix_trans(uint *word, const local ushort *tile, int width, int row, int column,
                                         int beside, int lane)
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(matrix_named(tile, width, row, column, beside, lane))
                     : "memory");
}

#if MATRIX_BF16
#define MATRIX_MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MATRIX_MMA_TYPES "f32.f16.f16.f32"
#endif

static inline void matrix_half(float *c, const uint *a, const uint *b)
{
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col." MATRIX_MMA_TYPES
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])
                     : "memory");
}

static inline void matrix_one(matrix_c *c, const matrix_a *a, const matrix_b *b)
{
    matrix_half(c->sum, a->word, b->word);
    matrix_half(c->sum + 4, a->word, b->word + 2);
}

static inline float matrix_swap(float x, int distance, int lane, local uint *scratch)
{
    uint from;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
                     : "=r"(from)
                     : "r"(as_uint(x)), "r"(distance)
                     : "memory");
    return as_float(from);
}

#endif

static inline void matrix_load_a(matrix_a *f, const local ushort *tile, int width, int row, int k, int lane)
{
    matrix_ldmatrix(f->word, tile, width, row, k, 0, lane);
}

static inline void matrix_load_a_transposed(matrix_a *f, const local ushort *tile, int width, int k, int row, int lane)
{
    matrix_ldmatrix_trans(f->word, tile, width, k, row, 1, lane);
}

static inline void matrix_load_b(matrix_b *f, const local ushort *tile, int width, int column, int k, int lane)
{
    matrix_ldmatrix(f->word, tile, width, column, k, 1, lane);
}

static inline void matrix_load_b_transposed(matrix_b *f, const local ushort *tile, int width, int k, int column,
                                            int lane)
{
    matrix_ldmatrix_trans(f->word, tile, width, k, column, 0, lane);
}

/* C's map is A's. */
static inline void matrix_chain(matrix_a *f, const matrix_c *c, int lane, local uint *scratch)
{
    MATRIX_UNROLL
    for (int w = 0; w < MATRIX_A; w++)
        f->word[w] = matrix_pack(c->sum[2 * w], c->sum[2 * w + 1]);
}

#endif
