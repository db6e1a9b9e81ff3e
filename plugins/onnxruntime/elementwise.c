/* Functions of each element, for which clattn has no operator: a kernel of the provider's own. */
#include "run.h"

#include <stdio.h>

const struct elementwise elementwise_functions[] = {
    {"Add", 2, "a + b"},
    {"Sub", 2, "a - b"},
    {"Mul", 2, "a * b"},
    {"Div", 2, "a / b"},
    {"Pow", 2, "b == 2.0f ? a * a : pow(a, b)"},
    {"Neg", 1, "-a"},
    {"Abs", 1, "fabs(a)"},
    {"Sqrt", 1, "sqrt(a)"},
    {"Reciprocal", 1, "1.0f / a"},
    {"Exp", 1, "exp(a)"},
    {"Erf", 1, "erf(a)"},
    {"Tanh", 1, "tanh(a)"},
    {"Sigmoid", 1, "1.0f / (1.0f + exp(-a))"},
    {0},
};

/* One kernel for each type; between these two come the functions, by their numbers, each with a loop of its own.  A group has piece.x
 * elements of each of piece.y rows, an item every `local size`-th of these; with ALONE it has one item.  There are begin.w rows.  Strides
 * are in elements, 0 where an array is broadcast.
 *
 * int8 has up to eight dimensions, the first of which are 1. */
static const char start[] =
    "#ifdef HALF\n"
    "#define TYPE half\n"
    "#define LOAD(p, i) vload_half(i, p)\n"
    "#define STORE(v, p, i) vstore_half_rte(v, i, p)\n"
    "#elif defined BFLOAT16\n"
    "#define TYPE ushort\n"
    "#define LOAD(p, i) as_float((uint)p[i] << 16)\n"
    "#define STORE(v, p, i) p[i] = rounded(v)\n"
    "ushort rounded(float x)\n"
    "{\n"
    "    uint bits = as_uint(x);\n"
    "    return isnan(x) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;\n"
    "}\n"
    "#else\n"
    "#define TYPE float\n"
    "#define LOAD(p, i) p[i]\n"
    "#define STORE(v, p, i) p[i] = v\n"
    "#endif\n"
    "#ifdef ALONE\n"
    "#define FIRST 0\n"
    "#define STEP 1\n"
    "#else\n"
    "#define FIRST (int)get_local_id(0)\n"
    "#define STEP (int)get_local_size(0)\n"
    "#endif\n"
    "#define EACH(expression) \\\n"
    "    for (int i = first + FIRST; i < last; i += STEP) { \\\n"
    "        const float a = LOAD(pa, i * a_stride.s7), b = LOAD(pb, i * b_stride.s7); \\\n"
    "        STORE((expression), py, i); \\\n"
    "    }\n"
    "kernel void elementwise(const global TYPE *x, const global TYPE *z, global TYPE *y, int8 extent,\n"
    "                        int8 a_stride, int8 b_stride, int4 begin, int function, int2 piece)\n"
    "{\n"
    "    int first = (int)get_group_id(0) * piece.x, last = min(first + piece.x, extent.s7);\n"
    "    int top = (int)get_group_id(1) * piece.y, bottom = min(top + piece.y, begin.w);\n"
    "    int e[7] = {extent.s0, extent.s1, extent.s2, extent.s3, extent.s4, extent.s5, extent.s6};\n"
    "    int sa[7] = {a_stride.s0, a_stride.s1, a_stride.s2, a_stride.s3, a_stride.s4, a_stride.s5,\n"
    "                 a_stride.s6};\n"
    "    int sb[7] = {b_stride.s0, b_stride.s1, b_stride.s2, b_stride.s3, b_stride.s4, b_stride.s5,\n"
    "                 b_stride.s6};\n"
    "    for (int row = top; row < bottom; row++) {\n"
    "        const global TYPE *pa = x + begin.x, *pb = z + begin.y;\n"
    "        global TYPE *py = y + begin.z + row * extent.s7;\n"
    "        for (int d = 6, rest = row; rest > 0; rest /= e[d--]) {\n"
    "            pa += rest % e[d] * sa[d];\n"
    "            pb += rest % e[d] * sb[d];\n"
    "        }\n"
    "        switch (function) {\n";

static const char rest[] = "        default: break;\n"
                           "        }\n"
                           "    }\n"
                           "}\n";

#define PIECE 1024 /* elements of a group: of one row or, on processors, of short ones */

static OrtStatus *build(engine *e, const char *options, cl_kernel *kernel)
{
    cl_int code;
    char cases[2048] = "";
    size_t used = 0;
    for (size_t i = 0; elementwise_functions[i].op; i++)
        used += (size_t)snprintf(cases + used, sizeof cases - used, "        case %zu: EACH(%s) break;\n", i,
                                 elementwise_functions[i].expression);
    const char *texts[] = {start, cases, rest};
    cl_context context = clattn_context_opencl_context(e->context);
    cl_program program = e->cl.clCreateProgramWithSource(context, 3, texts, NULL, &code);
    if (code == CL_SUCCESS)
        code = e->cl.clBuildProgram(program, 0, NULL, options, NULL, NULL);
    if (code == CL_SUCCESS)
        *kernel = e->cl.clCreateKernel(program, "elementwise", &code);
    if (program)
        e->cl.clReleaseProgram(program);
    return code == CL_SUCCESS
               ? NULL
               : ort_failure(e->ort, ORT_EP_FAIL, "clattn: the kernel of elementwise functions: OpenCL error %d", code);
}

OrtStatus *enqueue_elementwise(engine *e, size_t function, const run_array *a, const run_array *b, const run_array *y)
{
    OrtStatus *failure = NULL;
    int64_t a_stride[MOST_DIMENSIONS], b_stride[MOST_DIMENSIONS];
    cl_int8 extents, strides[2];
    size_t kept = 0, rows = 1;
    const size_t size = clattn_dtype_size(y->dtype);
    static const char *const options[2][3] = {{"", "-DHALF", "-DBFLOAT16"},
                                              {"-DALONE", "-DALONE -DHALF", "-DALONE -DBFLOAT16"}};
    const size_t type = y->dtype == CLATTN_DTYPE_F16 ? 1 : y->dtype == CLATTN_DTYPE_BF16 ? 2 : 0;
    cl_kernel *kernel = &e->elementwise[type];
    b = b ? b : a;
    if (!*kernel)
        ORT_TRY(build(e, options[e->shares][type], kernel));
    if (a->offset / size + a->elements > INT32_MAX || b->offset / size + b->elements > INT32_MAX ||
        y->offset / size + y->elements > INT32_MAX)
        return ort_failure(e->ort, ORT_EP_FAIL, "clattn: an array has more than 2^31 elements");
    strides_within(a, y, a_stride);
    strides_within(b, y, b_stride);
    /* From the last dimension, joining those that lie together in both. */
    for (size_t i = y->rank; i-- > 0;) {
        if (y->dim[i] == 1)
            continue;
        const size_t place = 7 - (kept ? kept - 1 : 0);
        if (kept && a_stride[i] == (int64_t)strides[0].s[place] * extents.s[place] &&
            b_stride[i] == (int64_t)strides[1].s[place] * extents.s[place]) {
            extents.s[place] *= (cl_int)y->dim[i];
            continue;
        }
        extents.s[7 - kept] = (cl_int)y->dim[i];
        strides[0].s[7 - kept] = (cl_int)a_stride[i];
        strides[1].s[7 - kept++] = (cl_int)b_stride[i];
    }
    for (; kept < 8; kept++) {
        extents.s[7 - kept] = 1;
        strides[0].s[7 - kept] = strides[1].s[7 - kept] = 0;
    }
    for (size_t i = 0; i < 7; i++)
        rows *= (size_t)extents.s[i];
    const cl_int4 begin = {
        {(cl_int)(a->offset / size), (cl_int)(b->offset / size), (cl_int)(y->offset / size), (cl_int)rows}};
    const cl_int number = (cl_int)function, each = e->shares && extents.s[7] < PIECE ? PIECE / extents.s[7] : 1;
    const cl_int2 piece = {{PIECE, each}};
    const struct {
        size_t bytes;
        const void *value;
    } arguments[] = {{sizeof a->buffer, &a->buffer}, {sizeof b->buffer, &b->buffer},   {sizeof y->buffer, &y->buffer},
                     {sizeof extents, &extents},     {sizeof strides[0], &strides[0]}, {sizeof strides[1], &strides[1]},
                     {sizeof begin, &begin},         {sizeof number, &number},         {sizeof piece, &piece}};
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < sizeof arguments / sizeof arguments[0] && code == CL_SUCCESS; i++)
        code = e->cl.clSetKernelArg(*kernel, i, arguments[i].bytes, arguments[i].value);
    const size_t local[2] = {e->shares ? 1 : 64, 1};
    const size_t
        global[2] = {((size_t)extents.s[7] + PIECE - 1) / PIECE *local[0], (rows + (size_t)each - 1) / (size_t)each};
    if (code == CL_SUCCESS)
        code = e->cl.clEnqueueNDRangeKernel(e->queue, *kernel, 2, NULL, global, local, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        failure = ort_failure(e->ort, ORT_EP_FAIL, "clattn: a kernel of elementwise functions: OpenCL error %d", code);
fail:
    return failure;
}
