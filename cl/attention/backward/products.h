/* attention_backward_cpu's products, and what they multiply.
 *
 *   LANES, QUERY_VECTORS, KEY_STEP   as attention/cpu/lanes.cl says
 *   PAIRS                            0: floats; 1: bfloat16 two by two (engine/x86/bf16.h), with a float as the sum
 *
 * An `operand` is a number, or with PAIRS two neighbouring terms of a sum; n of them make TERMS(n) operands.  Rows hold their
 * numbers side by side, which are the terms of a sum over columns.  Three functions bring them and scores into the order of other
 * sums' terms; without PAIRS they have nothing to do. */
#ifndef CLATTN_CL_ATTENTION_BACKWARD_PRODUCTS_H
#define CLATTN_CL_ATTENTION_BACKWARD_PRODUCTS_H

#include "attention/cpu/lanes.h"
#include "lib/bf16_pairs.h"

#if PAIRS
typedef uint operand;
typedef uintv operandv;
#define TERMS(n) (((n) + 1) / 2)
#define ADD_TERM(sum, x, y) dot2(sum, x, y)
#else
typedef float operand;
typedef floatv operandv;
#define TERMS(n) (n)
#define ADD_TERM(sum, x, y) FMA(x, y, sum)
#endif

/* How many operands of an array of its own a conversion needs. */
#define CONVERTED(n) (PAIRS ? (n) : 1)

/* ---- the order of terms ---- */

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

/* Neighbouring rows, as TERMS(n) rows of `width` operands. */
INLINE const operand *along_rows(operand *to, const operand *rows, const int width, int n)
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

/* Neighbouring keys of s[j * QUERY_VECTORS + v], j < n; numbers are rounded. */
INLINE const operandv *along_keys(operandv *to, const floatv *s, int n)
{
#if PAIRS
    for (int j = 0; j < n; j += 2)
#pragma unroll
        for (int v = 0; v < QUERY_VECTORS; v++) {
            const floatv odd = j + 1 < n ? s[(j + 1) * QUERY_VECTORS + v] : (floatv)(0.0f);
            to[j / 2 * QUERY_VECTORS + v] = round_pairs(s[j * QUERY_VECTORS + v], odd);
        }
    return to;
#else
    return s;
#endif
}

/* Neighbouring queries of it, TERMS(BLOCK) operands for each key. */
INLINE const operand *along_queries(operand *to, const floatv *s, int n)
{
#if PAIRS
    for (int i = 0; i < n * QUERY_VECTORS; i++)
        STORE_WHOLE(whole_ushortv, (ushort *)to + i * LANES, bf16_sums(s[i]));
    return to;
#else
    return (const float *)s;
#endif
}

/* Rows of `width` numbers become columns, to[d * QUERY_VECTORS + v], whose neighbours are terms. */
INLINE void transpose_rows(operandv *to, const operand *rows, const int width)
{
    for (int v = 0; v < QUERY_VECTORS; v++)
        for (int d = 0; d < width; d += LANES) {
            floatv x[LANES];
            for (int r = 0; r < LANES; r++)
                x[r] = row_at(rows, (v * LANES + r) * width + d);
            transpose(x);
#if PAIRS
            for (int c = 0; c < LANES; c += 2)
                to[(d + c) / 2 * QUERY_VECTORS + v] = exact_pairs(x[c], x[c + 1]);
#else
            for (int c = 0; c < LANES; c++)
                to[(d + c) * QUERY_VECTORS + v] = x[c];
#endif
        }
}

/* ---- the products ---- */

/* s[j * QUERY_VECTORS + v] = sum_d rows[j][d] x[d * QUERY_VECTORS + v], for j < n and `size` terms, a literal; rows are `width`
 * operands apart.  Up to the next multiple of KEY_STEP there are copies of the last. */
INLINE void multiply_rows(floatv *s, const operand *rows, const int width, const int size, const operandv *x, int n)
{
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        const operand *at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = rows + min(j + r, n - 1) * width;
#pragma unroll
            for (int v = 0; v < QUERY_VECTORS; v++)
                acc[r][v] = (floatv)(0.0f);
        }
        for (int d = 0; d < size; d++) {
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

INLINE void add_columns(floatv *sum, const operand *rows, const int width, const int size, const operandv *s, int terms)
{
    for (int c = 0; c + KEY_STEP <= size; c += KEY_STEP)
        add_some_columns(sum + c * QUERY_VECTORS, KEY_STEP, rows + c, width, s, terms);
    if (size % KEY_STEP != 0)
        add_some_columns(sum + (size - size % KEY_STEP) * QUERY_VECTORS, size % KEY_STEP, rows + size - size % KEY_STEP,
                         width, s, terms);
}

/* to[j][c] += sum_q p[j][q] x[q][c] for keys j < n and `vectors` <= QUERY_VECTORS vectors of columns, a literal; rows of `to` are
 * `step` floats apart, of p TERMS(BLOCK) and of x `width` operands. */
INLINE void add_some_rows(global float *to, const int vectors, int step, const operand *p, const operand *x,
                          const int width, int n, int terms)
{
    for (int j = 0; j < n; j += KEY_STEP) {
        floatv acc[KEY_STEP][QUERY_VECTORS];
        const operand *at[KEY_STEP];
#pragma unroll
        for (int r = 0; r < KEY_STEP; r++) {
            at[r] = p + min(j + r, n - 1) * TERMS(BLOCK);
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

INLINE void add_rows(global float *to, int step, const operand *p, const operand *x, const int width, int n, int terms)
{
    const int vectors = width / LANES, rest = vectors % QUERY_VECTORS;
    for (int v = 0; v + QUERY_VECTORS <= vectors; v += QUERY_VECTORS)
        add_some_rows(to + v * LANES, QUERY_VECTORS, step, p, x + v * LANES, width, n, terms);
    if (rest != 0)
        add_some_rows(to + (vectors - rest) * LANES, rest, step, p, x + (vectors - rest) * LANES, width, n, terms);
}

#endif
