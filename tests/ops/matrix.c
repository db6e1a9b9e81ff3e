/* The matrix engines' fragments (cl/matrix/), emulated: each engine's lane maps, written down here once more from the
 * vendors' own words, each load, the product, the way from a result to the next operand, the exchange between lanes and
 * the copies.
 *
 * Holds: what cl/engine/fragment.h and cl/engine/copy.h promise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/harness.h"

#define SIDE 16
#define MOST_FILES 16

/* ---- the lane maps ---- */

typedef struct place {
    int row, column; /* B's are k and column */
} place;

/* The lane maps number the elements of A and B and the floats of C as a lane holds them. */
typedef struct engine {
    const char *name;
    int number, lanes, a_words, b_words;
    bool chain_a;
    place (*a)(int lane, int i);
    place (*b)(int lane, int i);
    place (*c)(int lane, int i);
} engine;

/* PTX ISA, mma.m16n8k16: groupID = lane >> 2, threadID_in_group = lane % 4; a0 to a7, b0 to b3, c0 to c3. */
static place mma_a(int lane, int i)
{
    bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
    return (place){upper ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}

static place mma_b(int lane, int i)
{
    int of_half = i % 4, half = i / 4; /* two instructions: columns 0 to 7, then 8 to 15 */
    return (place){lane % 4 * 2 + (of_half & 1) + (of_half < 2 ? 0 : 8), lane / 4 + 8 * half};
}

static place mma_c(int lane, int i)
{
    int of_half = i % 4, half = i / 4;
    return (place){of_half < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (of_half & 1) + 8 * half};
}

/* RDNA 3: lanes 0 to 15 hold A row by row and lanes 16 to 31 repeat it, B likewise column by column; C alternates
 * between the halves. */
static place wmma_a(int lane, int i)
{
    return (place){lane % 16, i};
}

static place wmma_b(int lane, int i)
{
    return (place){i, lane % 16};
}

static place wmma_c(int lane, int i)
{
    return (place){lane < 16 ? 2 * i : 2 * i + 1, lane % 16};
}

/* CDNA 2: sixteen lanes hold a block of four k; C is in blocks of four rows. */
static place mfma_a(int lane, int i)
{
    return (place){lane % 16, lane / 16 * 4 + i};
}

static place mfma_b(int lane, int i)
{
    return (place){lane / 16 * 4 + i, lane % 16};
}

static place mfma_c(int lane, int i)
{
    return (place){lane / 16 * 4 + i, lane % 16};
}

/* cl_intel_subgroup_matrix_multiply_accumulate: A's rows are the vector's components, each shared out along the
 * sub-group; B's and C's columns are the lanes. */
static place dpas8_a(int lane, int i)
{
    return (place){i / 2, lane * 2 + i % 2};
}

static place dpas8_b(int lane, int i)
{
    return (place){i % 16, lane + (i < 16 ? 0 : 8)};
}

static place dpas8_c(int lane, int i)
{
    int block = i / 8; /* upper left, upper right, lower left, lower right */
    return (place){i % 8 + (block < 2 ? 0 : 8), lane + (block == 1 || block == 3 ? 8 : 0)};
}

static place dpas16_a(int lane, int i)
{
    return (place){i, lane};
}

static place dpas16_b(int lane, int i)
{
    return (place){i, lane};
}

static const engine engines[] = {
    {"mma", 1, 32, 4, 4, true, mma_a, mma_b, mma_c},
    {"wmma", 2, 32, 8, 8, false, wmma_a, wmma_b, wmma_c},
    {"mfma", 3, 64, 2, 2, false, mfma_a, mfma_b, mfma_c},
    {"dpas8", 4, 8, 16, 16, false, dpas8_a, dpas8_b, dpas8_c},
    {"dpas16", 5, 16, 8, 8, false, dpas16_a, dpas16_b, dpas16_b},
};

/* ---- sources ---- */

typedef struct expansion {
    char *text;
    size_t length, capacity;
    char seen[MOST_FILES][64];
    int count;
} expansion;

static void append(expansion *e, const char *text)
{
    size_t length = strlen(text);
    if (e->length + length + 1 > e->capacity) {
        e->capacity = 2 * (e->length + length + 1);
        e->text = realloc(e->text, e->capacity);
        assert_non_null(e->text);
    }
    memcpy(e->text + e->length, text, length + 1);
    e->length += length;
}

static void expand(expansion *e, const char *folder, const char *name)
{
    char path[1024], line[512], included[64];
    for (int i = 0; i < e->count; i++) {
        if (strcmp(e->seen[i], name) == 0) {
            return;
        }
    }
    assert_true(e->count < MOST_FILES);
    snprintf(e->seen[e->count++], sizeof e->seen[0], "%s", name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "#include \"%63[^\"]\"", included) == 1) {
            expand(e, KERNEL_DIR, included);
        } else {
            append(e, line);
        }
    }
    fclose(file);
}

static cl_program build(const char *file, const char *options)
{
    cl_context context = clattn_context_opencl_context(device_context());
    cl_device_id device = clattn_context_opencl_device(device_context());
    expansion source = {0};
    cl_int code;

    expand(&source, TESTS_KERNELS, file);
    cl_program program = clCreateProgramWithSource(context, 1, (const char *[]){source.text}, NULL, &code);
    free(source.text);
    assert_cl(code);
    code = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        char log[4096] = "";
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        print_error("%s\n", log);
    }
    assert_cl(code);
    return program;
}

#define MOST_BUFFERS 8

/* Runs a kernel of FILE once by one work-group of `items`.  Its arguments are buffers, which begin with what is in
 * host[] and end there. */
static void run_kernel(const char *file, const char *name, const char *options, size_t items, cl_uint count,
                       void *const *host, const size_t *bytes)
{
    cl_context context = clattn_context_opencl_context(device_context());
    cl_command_queue queue = new_queue(device_context(), false);
    cl_program program = build(file, options);
    cl_mem buffer[MOST_BUFFERS];
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, name, &code);

    assert_cl(code);
    assert_true(count <= MOST_BUFFERS);
    for (cl_uint i = 0; i < count; i++) {
        buffer[i] = new_buffer(context, CL_MEM_READ_WRITE, bytes[i], host[i]);
        assert_cl(clSetKernelArg(kernel, i, sizeof buffer[i], &buffer[i]));
    }
    assert_cl(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &items, 0, NULL, NULL));
    for (cl_uint i = 0; i < count; i++) {
        read_buffer(queue, buffer[i], bytes[i], host[i]);
        device_release_buffer(buffer[i]);
    }
    assert_cl(clReleaseKernel(kernel));
    assert_cl(clReleaseProgram(program));
    assert_cl(clReleaseCommandQueue(queue));
}

/* ---- one kernel ---- */

typedef struct fragments_case {
    int width, row, column; /* width of the tiles, and where the matrices begin in them */
    int swap;
} fragments_case;

static const fragments_case shapes[] = {
    {16, 0, 0, 1}, {32, 16, 16, 2}, {64, 0, 32, 4}, {128, 32, 112, 2}, {40, 32, 16, 1}};

/* Returns the bits of a number of magnitude 1 to 4 with eight significant bits.  Numbers for different n differ and
 * have both signs, and their products are exact. */
static uint16_t bits_of(bool bf16, int n)
{
    return (uint16_t)(((n * 5 & 8) ? 0x8000 : 0) | (bf16 ? 0x3f80 + n : 0x3c00 + (n << 2)));
}

static double value_of(bool bf16, uint16_t bits)
{
    return storage_get(bf16 ? CLATTN_DTYPE_BF16 : CLATTN_DTYPE_F16, &bits);
}

enum { IN_A, IN_B, WORDS, C, PLACES, CHAINED, SWAPPED, COPIED, BUFFERS };

typedef struct results {
    uint16_t a[SIDE * SIDE], b[SIDE * SIDE];
    uint32_t words[64 * 32], chained[64 * 16], copied[16];
    float c[SIDE * SIDE], swapped[64];
    int32_t places[SIDE * SIDE];
} results;

static void run(const engine *e, bool bf16, bool transposed, const fragments_case *shape, results *r)
{
    char options[256];
    void *host[BUFFERS] = {r->a, r->b, r->words, r->c, r->places, r->chained, r->swapped, r->copied};
    const size_t bytes[BUFFERS] = {sizeof r->a,      sizeof r->b,       sizeof r->words,   sizeof r->c,
                                   sizeof r->places, sizeof r->chained, sizeof r->swapped, sizeof r->copied};

    snprintf(options, sizeof options,
             "-cl-std=CL1.2 -w -DMATRIX_EMULATED=1 -DMATRIX_ENGINE=%d -DMATRIX_BF16=%d -DTRANSPOSED=%d -DWIDTH=%d "
             "-DAT_ROW=%d "
             "-DAT_COLUMN=%d -DSWAP=%d",
             e->number, bf16, transposed, shape->width, shape->row, shape->column, shape->swap);
    run_kernel("fragments.cl", "fragments", options, (size_t)e->lanes, BUFFERS, host, bytes);
}

static uint16_t element(const uint32_t *words, int i)
{
    return (uint16_t)(words[i / 2] >> (i % 2 ? 16 : 0));
}

static void judge(const engine *e, bool bf16, const fragments_case *shape, const results *r)
{
    double product[SIDE][SIDE] = {{0}};

    for (int lane = 0; lane < e->lanes; lane++) {
        const uint32_t *a = r->words + lane * (e->a_words + e->b_words), *b = a + e->a_words;
        for (int i = 0; i < 2 * e->a_words; i++) {
            assert_int_equal(element(a, i), r->a[e->a(lane, i).row * SIDE + e->a(lane, i).column]);
        }
        for (int i = 0; i < 2 * e->b_words; i++) {
            assert_int_equal(element(b, i), r->b[e->b(lane, i).row * SIDE + e->b(lane, i).column]);
        }
        assert_true(r->swapped[lane] == 100.0f * (float)(lane ^ shape->swap));
    }
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            for (int k = 0; k < SIDE; k++) {
                product[i][j] += value_of(bf16, r->a[i * SIDE + k]) * value_of(bf16, r->b[k * SIDE + j]);
            }
            assert_true(r->c[i * SIDE + j] == (float)(2 * product[i][j]));
        }
    }
    for (int lane = 0; lane < e->lanes; lane++) {
        int floats = SIDE * SIDE / e->lanes;
        for (int i = 0; i < floats; i++) {
            assert_int_equal(r->places[lane * floats + i], e->c(lane, i).row * SIDE + e->c(lane, i).column);
        }
        int words = e->chain_a ? e->a_words : e->b_words;
        for (int i = 0; i < 2 * words; i++) {
            place p = e->chain_a ? e->a(lane, i) : e->b(lane, i);
            uint16_t expected;
            storage_set(bf16 ? CLATTN_DTYPE_BF16 : CLATTN_DTYPE_F16, &expected, product[p.row][p.column]);
            assert_int_equal(element(r->chained + lane * words, i), expected);
        }
    }
    for (int i = 0; i < 32; i++) {
        static const int from[4] = {0, 8, 16, 24}, count[4] = {8, 3, 0, 1};
        assert_int_equal(element(r->copied, i), i % 8 < count[i / 8] ? r->a[from[i / 8] + i % 8] : 0);
    }
}

static void fragments(const void *which, const char *type)
{
    const engine *e = which;
    bool bf16 = strcmp(type, "bfloat16") == 0;

    for (int transposed = 0; transposed < 2; transposed++) {
        for (size_t s = 0; s < COUNT_OF(shapes); s++) {
            static results r;
            if (level() != LEVEL_FULL && (s + (size_t)(2 * transposed + e->number)) % 5) {
                continue;
            }
            memset(&r, 0xff, sizeof r);
            for (int i = 0; i < SIDE * SIDE; i++) {
                r.a[i] = bits_of(bf16, i);
                r.b[i] = bits_of(bf16, (i * 7 + 3) & 255);
            }
            run(e, bf16, transposed, &shapes[s], &r);
            judge(e, bf16, &shapes[s], &r);
        }
    }
}

/* ---- wgmma ---- */

/* PTX ISA, wgmma's accumulator: d0 and d1 are neighbours in row lane / 4 of the warp's 16, d2 and d3 are eight rows
 * below, and the next four are eight columns further. */
static place wgmma_c(int lane, int i)
{
    int warp = lane / 32, in_warp = lane % 32;
    return (place){16 * warp + in_warp / 4 + (i % 4 < 2 ? 0 : 8), i / 4 * 8 + in_warp % 4 * 2 + i % 2};
}

/* Returns the byte of element (i, k) by the canonical layouts in units of 16 bytes, transposed: ((8, m), (T, 2k)) with
 * strides ((span, stride), (1, T)) if k runs along the rows, else ((T, span / 16, m), (8, k)) with ((1, T, leading),
 * (span, stride)). */
static int wgmma_byte(bool transposed, int at, int leading, int stride, int span, int i, int k)
{
    int units = span / 16, byte;

    if (transposed) {
        byte = at + i % 8 * 2 + i / 8 % units * 16 + i / (8 * units) * leading + k % 8 * span + k / 8 * stride;
    } else {
        byte = at + i % 8 * span + i / 8 * stride + k % 8 * 2 + k / 8 * 16;
    }
    /* Swizzle<n, 4, 3> with n = 3 for 128, 2 for 64 and 1 for 32 bytes exchanges bits from 4 on by bits from 7 on. */
    return byte ^ (byte / 128 % units * 16);
}

typedef struct wgmma_tile {
    int columns; /* columns of the product */
    bool transposed;
    int at, leading, stride, span;
    uint64_t descriptor; /* the descriptor, worked out by hand */
} wgmma_tile;

static const wgmma_tile wgmma_tiles[] = {
    {16, false, 0, 16, 256, 32, UINT64_C(0xc000001000010000)},
    {64, false, 1024, 16, 512, 64, UINT64_C(0x8000002000010040)},
    {64, false, 1056, 16, 512, 64, UINT64_C(0x8000002000010042)},
    {128, false, 2048 + 96, 16, 1024, 128, UINT64_C(0x4000004000010086)},
    {16, true, 512, 16, 256, 32, UINT64_C(0xc000001000010020)},
    {32, true, 0, 2048, 512, 64, UINT64_C(0x8000002000800000)},
    {128, true, 2048, 4096, 1024, 128, UINT64_C(0x4000004001000080)},
    {128, true, 8192, 8192, 1024, 128, UINT64_C(0x4000004002000200)},
};

static void wgmma_places(const void *which, const char *type)
{
    const wgmma_tile *t = which;
    static int32_t places[64 * 128];
    static uint32_t elements[128 * 16];
    static uint64_t descriptors[2];
    void *host[3] = {places, descriptors, elements};
    const size_t bytes[3] = {sizeof places, sizeof descriptors, sizeof elements};
    char options[256];

    (void)type;
    snprintf(
        options, sizeof options,
        "-cl-std=CL1.2 -w -DMATRIX_EMULATED=1 -DMATRIX_ENGINE=1 -DMATRIX_BF16=1 -DWGMMA_N=%d -DWGMMA_A_TRANSPOSED=0 "
        "-DWGMMA_B_TRANSPOSED=%d -DAT=%d -DLEADING=%d -DSTRIDE=%d -DSPAN=%d",
        t->columns, t->transposed, t->at, t->leading, t->stride, t->span);
    for (int i = 0; i < 3; i++) {
        memset(host[i], 0xff, bytes[i]);
    }
    run_kernel("wgmma.cl", "wgmma_places", options, 128, 3, host, bytes);
    for (int lane = 0; lane < 128; lane++) {
        for (int i = 0; i < t->columns / 2; i++) {
            place p = wgmma_c(lane, i);
            assert_int_equal(places[lane * (t->columns / 2) + i], p.row * t->columns + p.column);
        }
    }
    assert_true(descriptors[0] == t->descriptor);
    assert_true(descriptors[1] == ((t->descriptor & ~UINT64_C(0x3fff)) | 2048 / 16));
    for (int i = 0; i < t->columns; i++) {
        for (int k = 0; k < 16; k++) {
            assert_int_equal(elements[i * 16 + k],
                             wgmma_byte(t->transposed, t->at, t->leading, t->stride, t->span, i, k) / 2);
        }
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(engines); i++) {
        suite_add_case(fragments, &engines[i], "float16", "matrix fragments: %s, float16", engines[i].name);
        suite_add_case(fragments, &engines[i], "bfloat16", "matrix fragments: %s, bfloat16", engines[i].name);
    }
    for (size_t i = 0; i < COUNT_OF(wgmma_tiles); i++) {
        const wgmma_tile *t = &wgmma_tiles[i];
        suite_add_case(wgmma_places, t, "", "matrix wgmma: %d columns, rows of %d bytes%s at %d", t->columns, t->span,
                       t->transposed ? " along n" : "", t->at);
    }
    return suite_run("matrix", argc, argv);
}
