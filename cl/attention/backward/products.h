/* attention_backward_cpu's products, and what they multiply.
 *
 *   LANES, QUERY_VECTORS, KEY_STEP   as attention/cpu/lanes.cl says
 *   PAIRS                            0: floats; 1: bfloat16 two by two (engine/x86/bf16.h), with a float as the sum
 *   SPLIT_FLOATS                     1: floats, which attention/backward/products_amx.h multiplies
 *
 * An `operand` is a number, or with PAIRS two neighbours in a sum; n of them make OPERANDS(n) operands.  Rows hold their
 * numbers side by side: neighbours in a sum over columns.  Other sums need another order, which is called by what they go along: a
 * block's rows or columns, a tile's keys, the queries or keys of P and dS.  Functions bring an array into it, as `words` of an array of
 * their caller's, WORDS(n) or for a block's columns COLUMN_WORDS(n) of n numbers; where it has that order already they return it as it
 * is, and `to` and `count` (of terms, for products_amx.h) do not matter. */
#ifndef CLATTN_CL_ATTENTION_BACKWARD_PRODUCTS_H
#define CLATTN_CL_ATTENTION_BACKWARD_PRODUCTS_H

#include "attention/cpu/lanes.h"
#include "lib/bf16_pairs.h"

#if PAIRS
typedef uint operand;
typedef uintv operandv;
#define OPERANDS(n) (((n) + 1) / 2)
#define ADD_TERM(sum, x, y) dot2(sum, x, y)
#else
typedef float operand;
typedef floatv operandv;
#define OPERANDS(n) (n)
#define ADD_TERM(sum, x, y) FMA(x, y, sum)
#endif

/* ---- the order of numbers ---- */

/* LANES numbers of `rows` from number `at` on. */
INLINE floatv row_at(const operand *rows, int at)
{
#if PAIRS
    return AS_FLOATV(JOIN(convert_uint, LANES)(*(const whole_ushortv *)((const ushort *)rows + at)) << 16);
#else
    return VLOAD(0, rows + at);
#endif
}

/* Stores LANES numbers from number `at` on.  With PAIRS they are bfloat16 already, so nothing is rounded. */
INLINE void set_row(operand *rows, int at, floatv x)
{
#if PAIRS
    STORE_WHOLE(whole_ushortv, (ushort *)rows + at, JOIN(convert_ushort, LANES)(AS_UINTV(x) >> 16));
#else
    STORE_WHOLE(whole_floatv, rows + at, x);
#endif
}

#if !SPLIT_FLOATS
typedef operand word;
typedef const operand *converted;
#define WORDS(n) (PAIRS ? OPERANDS(n) : 1)
#define COLUMN_WORDS(n) OPERANDS(n)

INLINE void begin_products(void)
{
}

INLINE void end_products(void)
{
}

/* Neighbouring rows, as OPERANDS(n) rows of `width` operands. */
INLINE converted along_rows(word *to, const operand *rows, const int width, int n)
{
#if PAIRS
    for (int i = 0; i < n; i += 2)
        for (int d = 0; d < width; d += LANES) {
            const floatv odd = i + 1 < n ? row_at(rows, (i + 1) * width + d) : (floatv)(0.0f);
            STORE_WHOLE(whole_uintv, to + i / 2 * width + d, exact_pairs(row_at(rows, i * width + d), odd));
        }
    return to;
#else
    return rows;
#endif
}

INLINE converted block_along_rows(word *to, const operand *rows, const int width, int count)
{
    return along_rows(to, rows, width, BLOCK);
}

INLINE converted keys_along_rows(word *to, operand *rows, const int width, int n, int count)
{
    return along_rows(to, rows, width, n);
}

INLINE converted keys_along_columns(word *to, operand *rows, const int width, int n, int count)
{
    return rows;
}

/* Neighbouring columns of the block's rows, as vectors: word d * QUERY_VECTORS + v. */
INLINE converted block_along_columns(word *to, const operand *rows, const int width, int count)
{
    operandv *const column = (operandv *)to;
    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int d = 0; d < width; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                x[r] = row_at(rows, (v * LANES + r) * width + d);
            transpose(x);
#if PAIRS
            for (int c = 0; c < LANES; c += 2)
                column[(d + c) / 2 * QUERY_VECTORS + v] = exact_pairs(x[c], x[c + 1]);
#else
            for (int c = 0; c < LANES; c++)
                column[(d + c) * QUERY_VECTORS + v] = x[c];
#endif
        }
    return to;
}

/* Neighbouring queries of s[j * QUERY_VECTORS + v], j < n, OPERANDS(BLOCK) operands for each key; numbers are rounded. */
INLINE converted along_queries(word *to, floatv *s, int n)
{
#if PAIRS
    for (int i = 0; i < n * QUERY_VECTORS; i++)
        STORE_WHOLE(whole_ushortv, (ushort *)to + i * LANES, bf16_sums(s[i]));
    return to;
#else
    return (const float *)s;
#endif
}

/* Neighbouring keys of it, which along_queries has converted before. */
INLINE converted along_keys(word *to, converted by_queries, floatv *s, int n)
{
#if PAIRS
    for (int j = 0; j < n; j += 2)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv odd = j + 1 < n ? s[(j + 1) * QUERY_VECTORS + v] : (floatv)(0.0f);
            ((operandv *)to)[j / 2 * QUERY_VECTORS + v] = round_pairs(s[j * QUERY_VECTORS + v], odd);
        }
    return to;
#else
    return (const float *)s;
#endif
}

/* ---- the products ---- */

/* s[j * QUERY_VECTORS + v] = sum_d rows[j][d] column_d[v], for j < n and `size` columns, a literal, of `width`.  Up to the next
 * multiple of KEY_STEP there are copies of the last. */
INLINE void multiply_rows(floatv *s, converted rows, const int width, const int size, converted columns, int n)
{
    const operandv *const x = (const operandv *)columns;
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        const operand *at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = rows + min(j + r, n - 1) * OPERANDS(width);
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[r][v] = (floatv)(0.0f);
        }
        for (int d = 0; d < OPERANDS(size); d++) {
#pragma unroll
            for (int r = 0; r < KEY_STEP; r++) {
                const operandv k = (operandv)(at[r][d]);
#pragma unroll
                for (int v = 0; v < QUERY_VECTORS; v++)
                    acc[r][v] = ADD_TERM(acc[r][v], k, x[d * QUERY_VECTORS + v]);
            }
        }
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++)
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                s[(j + r) * QUERY_VECTORS + v] = acc[r][v];
    }
}

/* sum[c * QUERY_VECTORS + v] += sum_j rows[j][c] s[j * QUERY_VECTORS + v] for `columns` <= KEY_STEP columns, a literal, and `terms`
 * of them. */
INLINE void add_some_columns(floatv *sum, const int columns, const operand *rows, const int width, const operandv *s,
                             int terms)
{
    floatv acc[KEY_STEP][QUERY_VECTORS];
#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            acc[c][v] = sum[c * QUERY_VECTORS + v];
    for (int j = 0; j < terms; j++) {
#pragma unroll
        for (int c = 0; c < columns; c++) {
            const operandv x = (operandv)(rows[j * width + c]);
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[c][v] = ADD_TERM(acc[c][v], x, s[j * QUERY_VECTORS + v]);
        }
    }
#pragma unroll
    for (int c = 0; c < columns; c++)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++)
            sum[c * QUERY_VECTORS + v] = acc[c][v];
}

/* sum[c * QUERY_VECTORS + v] += the products of column c of the n keys' rows with their weights, for c < size, a literal. */
INLINE void add_columns(floatv *sum, converted rows, const int width, const int size, converted weights, int n)
{
    const operandv *const s = (const operandv *)weights;
    const int terms = OPERANDS(n);
    for (int c = 0; c + KEY_STEP <= size; c += KEY_STEP)
        add_some_columns(sum + c * QUERY_VECTORS, KEY_STEP, rows + c, width, s, terms);
    if (size % KEY_STEP != 0)
        add_some_columns(sum + (size - size % KEY_STEP) * QUERY_VECTORS, size % KEY_STEP, rows + size - size % KEY_STEP,
                         width, s, terms);
}

/* to[j][c] += sum_q p[j][q] x[q][c] for keys j < n and `vectors` <= QUERY_VECTORS vectors of columns, a literal; rows of `to` are
 * `step` floats apart, of p OPERANDS(BLOCK) and of x `width` operands. */
INLINE void add_some_rows(global float *to, const int vectors, int step, const operand *p, const operand *x,
                          const int width, int n, int terms)
{
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        const operand *at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = p + min(j + r, n - 1) * OPERANDS(BLOCK);
#pragma unroll
            for (int v = 0; v < vectors; v++)
                acc[r][v] = VLOAD(v, to + min(j + r, n - 1) * step);
        }
        for (int q = 0; q < terms; q++) {
#pragma unroll
            for (int r = 0; r < KEY_STEP; r++) {
                const operandv weight = (operandv)(at[r][q]);
#pragma unroll
                for (int v = 0; v < vectors; v++)
                    acc[r][v] = ADD_TERM(acc[r][v], weight, VLOAD(v, x + q * width));
            }
        }
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++)
            if (j + r < n)
#pragma unroll
                for (int v = 0; v < vectors; v++)
                    STORE_WHOLE(global whole_floatv, to + (j + r) * step + v * LANES, acc[r][v]);
    }
}

/* to[j * step + c] += the products of key j's weights with column c of the block's rows, over the first `live` queries; for j < n
 * and `width` columns, a literal. */
INLINE void add_rows(global float *to, int step, converted p, converted x, const int width, int n, int live)
{
    const int vectors = width / LANES, rest = vectors % QUERY_VECTORS, terms = OPERANDS(live);
    for (int v = 0; v + QUERY_VECTORS <= vectors; v += QUERY_VECTORS)
        add_some_rows(to + v * LANES, QUERY_VECTORS, step, p, x + v * LANES, width, n, terms);
    if (rest != 0)
        add_some_rows(to + (vectors - rest) * LANES, rest, step, p, x + (vectors - rest) * LANES, width, n, terms);
}

#endif
#endif
