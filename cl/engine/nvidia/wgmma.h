/* NVIDIA's wgmma (compute capability 9.0 alone): a product of 64 x WGMMA_N x 16 by 128 work-items, four warps, which reads
 * both operands from local memory and adds to floats in registers, while the items go on.
 *
 * Unlike the engines of engine/fragment.h it takes no fragments of A and B, but *descriptors* of where they lie, and the
 * compilers that drivers have do not know it: PTX for sm_90 is without it, sm_90a's has it.  So each instruction is a comment
 * in inline assembly that holds its operands' registers; the library takes the program's PTX, which is what such a driver
 * gives as its binary, puts the instructions in the comments' place (src/program/ptx_splice.h, which has the comments' words),
 * and builds from that.  A program in which that was not done computes nothing.
 *
 *   WGMMA_N             columns of a product: 16, 32, 64 or 128
 *   WGMMA_A_TRANSPOSED      1: A's tile has k for rows and m for columns; 0: the other way round
 *   WGMMA_B_TRANSPOSED      1: B's tile has k for rows and n for columns; 0: the other way round
 *   MATRIX_BF16, MATRIX_EMULATED   engine/fragment.h, whose MATRIX_ENGINE is MATRIX_MMA here
 *
 *   wgmma_address(memory, tile)  where `tile` begins, in bytes: as the GPU counts them in its shared memory, or emulated from
 *                                `memory` on, the work-group's one array, of which all tiles are parts
 *   wgmma_descriptor(address, leading, stride, span)
 *   wgmma_begin(&c)              before the first product, and when anything else has written to c
 *   wgmma_multiply(&c, a, b, memory, lane)   c += A B, of two descriptors; it may be under way when this returns
 *   wgmma_end()                  behind the products that wgmma_wait will wait for together
 *   wgmma_wait(&c)               all products are done: c may be read, the tiles may be written
 *   wgmma_publish()              behind the last store of this item into a tile and before the barrier: products read by another
 *                                way (the asynchronous proxy), to which stores must be shown
 *   wgmma_c_row(lane, n), wgmma_c_column(lane, n)   where in C the lane's float number n of WGMMA_N / 2 stands
 *
 * lane is 0 to 127.  All are called by all 128 items alike.
 *
 * Tiles, from the PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout", its swizzled canonical layouts.  A row
 * is `span` = 32, 64 or 128 bytes, pieces of 16 bytes, which change places by an exclusive or of the *address*: its bits from 4 on
 * with those from 7 on, one, two or three of them.  That is what MATRIX_AT does for tiles of 16, 32 and 64 elements' width that
 * begin at a multiple of 1,024 bytes, so those are the tiles.
 *
 *   columns are k     row i, element k at i * span + 2 k; `stride` is eight rows, `leading` is not used.  Sixteen k further
 *                     is 32 bytes further, within the row
 *   rows are k        row k, element i at (i / (span/2)) * leading + k * span + 2 (i % (span/2)): panels of span/2 columns;
 *                     `stride` is eight rows, `leading` a panel
 *
 * The descriptor, "Matrix Descriptor Format": bits 0 to 13 the address / 16, 16 to 29 leading / 16, 32 to 45 stride / 16, 62
 * and 63 the span, 1 for 128, 2 for 64, 3 for 32 bytes.  Bits 49 to 51 are 0 where patterns begin at multiples of theirs.
 *
 * C, "Register Fragments for wgmma.mma_async.m64nNk16": with g = lane / 4 and t = lane % 4 float n is
 * row 16 (lane / 32) + g % 8 + 8 (n/2 % 2), column 8 (n / 4) + 2t + n%2.
 *
 * It has run on an H100, by the driver 580.159.  Emulated, products read the tiles through the descriptors, by the rules above.
 * Tested: on that GPU and emulated, by tests/ops/matmul_matrix.c; places and descriptors by tests/ops/matrix.c; that the instructions compile
 * by tests/offline.sh. */
#ifndef CLATTN_CL_ENGINE_NVIDIA_WGMMA_H
#define CLATTN_CL_ENGINE_NVIDIA_WGMMA_H

#include "engine/fragment.h"

#if MATRIX_ENGINE != MATRIX_MMA
#error "wgmma is for MATRIX_ENGINE 1, NVIDIA's"
#endif
#if WGMMA_N != 16 && WGMMA_N != 32 && WGMMA_N != 64 && WGMMA_N != 128
#error "WGMMA_N must be 16, 32, 64 or 128"
#endif

#define WGMMA_LANES 128
#define WGMMA_ROWS 64
#define WGMMA_DEPTH 16

typedef struct wgmma_c {
    float sum[WGMMA_N / 2];
} wgmma_c;

static inline int wgmma_c_row(int lane, int n)
{
    return (lane >> 5 << 4) + (lane >> 2 & 7) + ((n >> 1 & 1) << 3);
}

static inline int wgmma_c_column(int lane, int n)
{
    return (n >> 2 << 3) + ((lane & 3) << 1) + (n & 1);
}

static inline ulong wgmma_descriptor(uint address, uint leading, uint stride, uint span)
{
    return (ulong)((address & 0x3ffff) >> 4) | (ulong)(leading >> 4) << 16 | (ulong)(stride >> 4) << 32 |
           (ulong)(span == 128  ? 1
                   : span == 64 ? 2
                                : 3)
               << 62;
}

#if MATRIX_EMULATED

static inline uint wgmma_address(const local uint4 *memory, const local uint4 *tile)
{
    return (uint)((tile - memory) * 16);
}

/* The element at (i, k) of what is described, i being a row of A or a column of B. */
static inline float wgmma_element(const local uint4 *memory, ulong descriptor, int transposed, uint i, uint k)
{
    const uint leading = (uint)(descriptor >> 16 & 0x3fff) << 4, stride = (uint)(descriptor >> 32 & 0x3fff) << 4;
    const uint mode = (uint)(descriptor >> 62), turned = (16u >> mode) - 1;
    uint at = (uint)(descriptor & 0x3fff) << 4;

    if (transposed)
        at += (i >> (7 - mode)) * leading + ((i & ((128u >> mode) - 1)) << 1) + ((k & 7) << (8 - mode)) +
              (k >> 3) * stride;
    else
        at += (i >> 3) * stride + ((i & 7) << (8 - mode)) + (k << 1);
    at ^= (at >> 7 & turned) << 4;
    /* Stored as words, and so read as words: PoCL moves loads of another type across its barriers. */
    return matrix_value(((const local uint *)memory)[at >> 2] >> ((at & 2) << 3) & 0xffff);
}

static inline void wgmma_multiply(wgmma_c *c, ulong a, ulong b, const local uint4 *memory, int lane)
{
    for (int n = 0; n < WGMMA_N / 2; n++) {
        const uint row = wgmma_c_row(lane, n), column = wgmma_c_column(lane, n);
        float sum = c->sum[n];

        for (uint k = 0; k < WGMMA_DEPTH; k++)
            sum = fma(wgmma_element(memory, a, WGMMA_A_TRANSPOSED, row, k),
                      wgmma_element(memory, b, WGMMA_B_TRANSPOSED, column, k), sum);
        c->sum[n] = sum;
    }
}

#define wgmma_begin(c)
#define wgmma_end()
#define wgmma_wait(c)
#define wgmma_publish()

#else

static inline uint wgmma_address(const local uint4 *memory, const local uint4 *tile)
{
    return (uint)(size_t)tile;
}

/* The floats as operands that are read and written, and their names in the text. */
#define WGMMA_FLOATS_8(c, i) \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
        "+f"(c[i + 7])
#define WGMMA_FLOATS_16(c, i) WGMMA_FLOATS_8(c, i), WGMMA_FLOATS_8(c, i + 8)
#define WGMMA_FLOATS_32(c, i) WGMMA_FLOATS_16(c, i), WGMMA_FLOATS_16(c, i + 16)
#define WGMMA_FLOATS_64(c, i) WGMMA_FLOATS_32(c, i), WGMMA_FLOATS_32(c, i + 32)
#define WGMMA_NAMES_8 "%0 %1 %2 %3 %4 %5 %6 %7"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 " %8 %9 %10 %11 %12 %13 %14 %15"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 " %16 %17 %18 %19 %20 %21 %22 %23 %24 %25 %26 %27 %28 %29 %30 %31"
#define WGMMA_NAMES_64 \
    WGMMA_NAMES_32 " %32 %33 %34 %35 %36 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %47" \
                   " %48 %49 %50 %51 %52 %53 %54 %55 %56 %57 %58 %59 %60 %61 %62 %63"

#if WGMMA_N == 16
#define WGMMA_FLOATS(c) WGMMA_FLOATS_8(c, 0)
#define WGMMA_OPERANDS "%8 %9 " WGMMA_NAMES_8
#elif WGMMA_N == 32
#define WGMMA_FLOATS(c) WGMMA_FLOATS_16(c, 0)
#define WGMMA_OPERANDS "%16 %17 " WGMMA_NAMES_16
#elif WGMMA_N == 64
#define WGMMA_FLOATS(c) WGMMA_FLOATS_32(c, 0)
#define WGMMA_OPERANDS "%32 %33 " WGMMA_NAMES_32
#else
#define WGMMA_FLOATS(c) WGMMA_FLOATS_64(c, 0)
#define WGMMA_OPERANDS "%64 %65 " WGMMA_NAMES_64
#endif

#define WGMMA_QUOTE_(x) #x
#define WGMMA_QUOTE(x) WGMMA_QUOTE_(x)
#if MATRIX_BF16
#define WGMMA_TYPE "bf16"
#else
#define WGMMA_TYPE "f16"
#endif

/* c is an operand of these two as well: what is done with it before and behind stays there. */
static inline void wgmma_begin(wgmma_c *c)
{
    __asm__ volatile("//clattn.wgmma fence" : WGMMA_FLOATS(c->sum) : : "memory");
}

static inline void wgmma_wait(wgmma_c *c)
{
    __asm__ volatile("//clattn.wgmma wait 0" : WGMMA_FLOATS(c->sum) : : "memory");
}

static inline void wgmma_multiply(wgmma_c *c, ulong a, ulong b, const local uint4 *memory, int lane)
{
    __asm__ volatile("//clattn.wgmma multiply " WGMMA_QUOTE(WGMMA_N) " " WGMMA_TYPE " " WGMMA_QUOTE(
                         WGMMA_A_TRANSPOSED) " " WGMMA_QUOTE(WGMMA_B_TRANSPOSED) " " WGMMA_OPERANDS
                     : WGMMA_FLOATS(c->sum)
                     : "l"(a), "l"(b)
                     : "memory");
}

static inline void wgmma_end(void)
{
    __asm__ volatile("//clattn.wgmma commit" : : : "memory");
}

static inline void wgmma_publish(void)
{
    __asm__ volatile("//clattn.wgmma proxy" : : : "memory");
}

#endif

#endif
