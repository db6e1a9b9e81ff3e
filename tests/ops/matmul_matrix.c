/* Products by matrix engines are tested with the whole kernel and emulated fragments of each engine, and with GPUs on
 * paper, which tell who may use an engine.
 *
 * A device's own engines take the cases of their emulations.
 *
 * Holds: what tests/ops/matmul.c holds, for float16 and bfloat16; that only a caller who names an emulation gets it;
 * that an engine is used on its own vendor's GPUs alone and, unless a caller names it, only with a self-check.
 * tests/plan/self_check_engines.c holds that the self-check notices fragments in the wrong places. */
#include <stdio.h>
#include <string.h>

#include "offline/paper.h"
#include "support/ops/matmul_case.h"

#define ENGINES .solvers = MATMUL_EMULATED
/* One engine of each kind: mma copies tiles asynchronously, MFMA loads them through registers, wgmma reads them from
 * local memory by itself. */
#define THREE .solvers = (EMULATED_MMA | EMULATED_MFMA | MATMUL_WGMMA)
#define OTHERS .solvers = MATMUL_EMULATED & ~(EMULATED_MMA | EMULATED_MFMA | MATMUL_WGMMA)
#define EMULATED_MMA (MATMUL_EMULATED & -MATMUL_EMULATED)
#define EMULATED_MFMA (4 * EMULATED_MMA)
#define TYPES(x, y, z, w) \
    .type = {.a = CLATTN_DTYPE_##x, .b = CLATTN_DTYPE_##y, .c = CLATTN_DTYPE_##z, .bias = CLATTN_DTYPE_##w}
/* A program takes a compiler two seconds.  It is determined by the storage type, the bias, which of A and B are
 * transposed, and the tile that the planner chooses for the sizes.  So that cases share programs, float16 goes with a
 * bias and with B as a layer's weight, (n, k), and bfloat16 with neither; sizes that do not matter have a tile of one
 * square (m and n up to 16) or 64 x 64 (n = 33). */
#define F16_WEIGHT TYPES(F16, F16, F16, F16), .bias = true
#define WEIGHT F16_WEIGHT, .b = FORM_TRANSPOSED
#define PLAIN TYPES(BF16, BF16, F32, F32)
/* These forms are read 16 bytes at a time. */
#define WEIGHT_EIGHTS F16_WEIGHT, .a = FORM_ALIGNED, .b = FORM_ALIGNED_TRANSPOSED
#define PLAIN_EIGHTS PLAIN, .a = FORM_ALIGNED, .b = FORM_ALIGNED
/* A is transposed here. */
#define ACROSS_EIGHTS PLAIN, .a = FORM_ALIGNED_TRANSPOSED, .b = FORM_ALIGNED

static matmul_case sizes[] = {
    {"one of everything", ALL, ENGINES, WEIGHT, .m = 1, .n = 1, .k = 1},
    {"a square - 1", ALL, ENGINES, PLAIN, .m = 15, .n = 15, .k = 15},
    {"a square, weight", ALL, ENGINES, WEIGHT_EIGHTS, .m = 16, .n = 16, .k = 16, .integers = true},
    {"a square, eights", ALL, ENGINES, PLAIN_EIGHTS, .m = 16, .n = 16, .k = 32},
    {"a square + 1, weight", ALL, ENGINES, WEIGHT_EIGHTS, .m = 17, .n = 33, .k = 17},
    {"a square + 1, eights", ALL, ENGINES, PLAIN_EIGHTS, .m = 17, .n = 33, .k = 40},
    {"steps in flight", ALL, ENGINES, WEIGHT_EIGHTS, .m = 7, .n = 9, .k = 168},
    {"inner size 1", BIG, THREE, PLAIN_EIGHTS, .m = 33, .n = 61, .k = 1},
    {"32 x 32 tile", BIG, THREE, PLAIN_EIGHTS, .m = 32, .n = 32, .k = 64, .integers = true},
    {"64 x 64 tile", BIG, THREE, WEIGHT_EIGHTS, .m = 64, .n = 64, .k = 96},
    {"64 x 64 tile + 1", BIG, THREE, PLAIN_EIGHTS, .m = 65, .n = 67, .k = 104},
    {"primes", BIG, THREE, PLAIN, .m = 97, .n = 83, .k = 61},
    {"primes, rows of 16 bytes", BIG, THREE, PLAIN_EIGHTS, .m = 97, .n = 83, .k = 61},
    {"primes, rows of 16 bytes, weight", BIG, THREE, WEIGHT_EIGHTS, .m = 97, .n = 83, .k = 61},
    {"128 x 128 tile", BIG, THREE, WEIGHT_EIGHTS, .m = 128, .n = 128, .k = 256},
    {"128 x 128 tile + 8", BIG, THREE, PLAIN_EIGHTS, .m = 136, .n = 136, .k = 168},
    {"128 x 128 tile + 1", BIG, THREE, PLAIN_EIGHTS, .m = 129, .n = 131, .k = 72, .integers = true},
    {"panels of A and B", BIG, .solvers = MATMUL_WGMMA, ACROSS_EIGHTS, .m = 136, .n = 136, .k = 40},
    {"one panel of B, 64 wide", BIG, .solvers = MATMUL_WGMMA, ACROSS_EIGHTS, .m = 64, .n = 64, .k = 72},
    {"one panel of B, 32 wide", BIG, .solvers = MATMUL_WGMMA, PLAIN_EIGHTS, .m = 40, .n = 32, .k = 136},
    {"spans of 64 bytes", BIG, .solvers = MATMUL_WGMMA, WEIGHT_EIGHTS, .m = 129, .n = 121, .k = 200},
    {"spans of 128 bytes", BIG, .solvers = MATMUL_WGMMA, WEIGHT_EIGHTS, .m = 64, .n = 64, .k = 200},
    {"a tile of 64 rows", MORE, .solvers = MATMUL_WGMMA, WEIGHT_EIGHTS, .m = 64, .n = 264, .k = 168},
    {"deep", FULL, THREE, WEIGHT_EIGHTS, .m = 13, .n = 17, .k = 4104},
    {"tall", BIG, THREE, WEIGHT_EIGHTS, .m = 515, .n = 5, .k = 64},
    {"wide", BIG, THREE, PLAIN_EIGHTS, .m = 5, .n = 515, .k = 64},
};

/* Emulations choose smaller tiles than this one, which GPUs use for large products; emulated, it takes 48 KiB of local memory. */
static matmul_case largest[] = {
    {"a tile of 128 x 128", MORE, .solvers = EMULATED_MMA, WEIGHT_EIGHTS, .m = 131, .n = 137, .k = 104,
     .tuning = "rows=128 columns=128"},
};

static matmul_case forms[] = {
    {"A transposed", ALL, OTHERS, ACROSS_EIGHTS, .m = 17, .n = 16, .k = 40},
    {"A transposed", ALL, THREE, ACROSS_EIGHTS, .m = 17, .n = 33, .k = 40},
    {"A transposed", BIG, THREE, PLAIN, .m = 97, .n = 83, .k = 61, .a = FORM_TRANSPOSED},
    {"both transposed, eights", MORE, THREE, F16_WEIGHT, .m = 97, .n = 88, .k = 72, .a = FORM_ALIGNED_TRANSPOSED,
     .b = FORM_ALIGNED_TRANSPOSED},
    {"one of two in eights", ALL, ENGINES, PLAIN, .m = 17, .n = 33, .k = 24, .a = FORM_ALIGNED, .b = FORM_PADDED},
    {"C transposed", BIG, THREE, WEIGHT_EIGHTS, .m = 97, .n = 83, .k = 61, .c = FORM_TRANSPOSED},
    {"gaps", BIG, THREE, PLAIN, .m = 97, .n = 83, .k = 61, .a = FORM_PADDED, .b = FORM_PADDED, .c = FORM_PADDED},
    {"columns apart", ALL, ENGINES, F16_WEIGHT, .m = 7, .n = 13, .k = 11, .a = FORM_SPREAD, .b = FORM_SPREAD,
     .c = FORM_SPREAD, .bias_form = FORM_SPREAD},
    {"rows backwards", BIG, THREE, PLAIN, .m = 97, .n = 83, .k = 61, .a = FORM_FLIPPED, .b = FORM_FLIPPED,
     .c = FORM_FLIPPED},
    {"columns backwards", ALL, ENGINES, F16_WEIGHT, .m = 7, .n = 13, .k = 11, .a = FORM_MIRRORED, .b = FORM_MIRRORED,
     .c = FORM_MIRRORED},
    {"one row of A for all", ALL, ENGINES, PLAIN, .m = 7, .n = 13, .k = 11, .a = FORM_SHARED_FIRST},
    {"two types", ALL, ENGINES, TYPES(F16, BF16, F32, F32), .refused_by = MATMUL_EMULATED, .m = 7, .n = 13, .k = 11},
    {"float32", ALL, ENGINES, .refused_by = MATMUL_EMULATED, .m = 7, .n = 13, .k = 11},
};

/* An activation and an operand are in one program; test_matmul_epilogue tests operands alone by the same macros. */
#define EPILOGUE \
    TYPES(BF16, BF16, BF16, BF16), .type.operand = CLATTN_DTYPE_BF16, .a = FORM_ALIGNED, .b = FORM_ALIGNED, \
                                   .bias = true, .activation = CLATTN_ACTIVATION_GELU, .operand = OPERAND_ADD
static matmul_case epilogues[] = {
    {"GELU and operand", ALL, THREE, EPILOGUE, .m = 17, .n = 33, .k = 24},
    {"GELU and operand in place", BIG, THREE, EPILOGUE, .batch = 3, .m = 33, .n = 61, .k = 40, .in_place = true},
    {"int8 weights", ALL, THREE, TYPES(BF16, I8, F32, F32), .refused_by = MATMUL_EMULATED, .m = 7, .n = 13, .k = 11},
};

static matmul_case batches[] = {
    {"batch", ALL, ENGINES, PLAIN_EIGHTS, .batch = 3, .m = 5, .n = 8, .k = 16},
    {"batch", BIG, THREE, WEIGHT_EIGHTS, .batch = 5, .m = 67, .n = 35, .k = 40},
    {"B shared by extent", BIG, THREE, PLAIN_EIGHTS, .batch = 5, .m = 67, .n = 35, .k = 37, .shared_b = true},
    {"A shared by stride", ALL, ENGINES, PLAIN, .batch = 3, .m = 5, .n = 7, .k = 11, .a = FORM_SHARED_FIRST},
    {"smaller at enqueue", ALL, ENGINES, PLAIN_EIGHTS, .batch = 3, .m = 9, .n = 7, .k = 11, .shorter = true,
     .actual_batch = 2, .actual_m = 5, .inject = MATMUL_BEYOND},
    {"smaller at enqueue", BIG, THREE, WEIGHT_EIGHTS, .batch = 5, .m = 131, .n = 67, .k = 40, .shorter = true,
     .actual_batch = 4, .actual_m = 66, .inject = MATMUL_BEYOND},
    {"no rows", ALL, ENGINES, PLAIN, .m = 0, .n = 7, .k = 11},
    {"no inner size: the bias", ALL, ENGINES, WEIGHT, .m = 5, .n = 7, .k = 0},
    {"no inner size: zeros", ALL, ENGINES, PLAIN, .m = 5, .n = 7, .k = 0},
    {"NaN in A: its row alone", ALL, ENGINES, WEIGHT_EIGHTS, .m = 17, .n = 33, .k = 11, .inject = MATMUL_A_NAN},
    {"Inf in A: its row alone", BIG, THREE, PLAIN_EIGHTS, .m = 97, .n = 83, .k = 61, .inject = MATMUL_A_INF},
    {"NaN in B: its column alone", ALL, ENGINES, PLAIN_EIGHTS, .m = 7, .n = 33, .k = 11, .inject = MATMUL_B_NAN},
    {"NaN in B: its column alone", BIG, THREE, WEIGHT_EIGHTS, .m = 97, .n = 83, .k = 61, .inject = MATMUL_B_NAN},
};

/* ---- who may use an engine ---- */

static clattn_status plan_of(clattn_context *context, const char *solver, clattn_dtype dtype, size_t m,
                             clattn_plan **plan)
{
    const clattn_matmul_desc desc = matmul_contiguous(dtype, m, 64, 64);
    const clattn_plan_options options = {.size = sizeof options, .solver = solver};
    return clattn_matmul_plan_create(context, &desc, &options, plan);
}

/* A device that is no GPU refuses the engine with a reason, and explain does not mention emulations. */
static void no_engine_here(void **state)
{
    clattn_plan *plan = NULL;
    char message[512];

    (void)state;
    if (!device_is_cpu()) {
        skip();
    }
    assert_status(device_context(), plan_of(device_context(), NULL, CLATTN_DTYPE_BF16, 64, &plan), CLATTN_SUCCESS);
    assert_non_null(strstr(clattn_plan_explain(plan), "matrix: refused, the device is no GPU"));
    assert_null(strstr(clattn_plan_explain(plan), "emulated"));
    clattn_plan_release(&plan);
    assert_status(device_context(), plan_of(device_context(), "matrix", CLATTN_DTYPE_BF16, 64, &plan),
                  CLATTN_ERROR_UNSUPPORTED);
    clattn_context_message(device_context(), message, sizeof message);
    assert_non_null(strstr(message, "the device is no GPU"));
}

#define NO_WGMMA "its compute capability is not 9.0, the only one with wgmma"
#define NO_AMD "it has neither WMMA (gfx11) nor MFMA (gfx90a, gfx94x)"
#define NO_NVIDIA "it is no GPU of NVIDIA's"

/* An engine of a GPU on paper, or why it has none. */
typedef struct gpu_engine {
    const char *name, *refusal;
    bool has_run; /* whether a real GPU has executed it */
} gpu_engine;

/* Which GPUs on paper have an engine and wgmma, which only Hopper has.  They compute nothing, so that self-checks refuse
 * the engines and the tile solver too. */
static const struct {
    const char *target;
    gpu_engine matrix, wgmma;
} known[] = {
    {"sm_80", {"NVIDIA's mma.sync, tiles of ", NULL, true}, {NULL, NO_WGMMA, false}},
    {"sm_90", {"NVIDIA's mma.sync, tiles of ", NULL, true}, {"NVIDIA's wgmma, tiles of 64 x ", NULL, true}},
    {"gfx1030", {NULL, NO_AMD, false}, {NULL, NO_AMD, false}},
    {"gfx90a", {"AMD's MFMA, tiles of ", NULL, false}, {NULL, NO_NVIDIA, false}},
    {"gfx1100", {"AMD's WMMA, tiles of ", NULL, false}, {NULL, NO_NVIDIA, false}},
    {"dg2", {"Intel's dpas in sub-groups of 8, tiles of ", NULL, false}, {NULL, NO_NVIDIA, false}},
};

static void of_one_kernel(void *user, const built_kernel *kernel)
{
    if (!strcmp(kernel->name, "matmul_wgmma")) {
        *(bool *)user = true;
        assert_non_null(kernel->binary);
        assert_contains(kernel->binary, ".target sm_90a, texmode_independent\n");
        assert_contains(kernel->binary,
                        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd1, ");
        assert_null(strstr(kernel->binary, "//clattn."));
        assert_contains(kernel->options, " -DPTX_SPLICE=1");
    } else {
        assert_null(kernel->binary);
    }
}

static void engine_of_gpu(const offline_target *target, const char *solver, const gpu_engine *engine)
{
    clattn_context *context = paper_context(target, false);
    clattn_plan *plan = NULL;
    char message[512], line[256];
    bool seen = false;

    /* Without a self-check only a caller who names the engine gets it. */
    clattn_status status = plan_of(context, solver, CLATTN_DTYPE_BF16, 64, &plan);
    clattn_context_message(context, message, sizeof message);
    assert_int_equal(status, engine->name ? CLATTN_SUCCESS : CLATTN_ERROR_UNSUPPORTED);
    if (engine->name) {
        snprintf(line, sizeof line, "    %s", engine->name);
        assert_contains(clattn_plan_explain(plan), line);
        assert_int_equal(!strstr(clattn_plan_explain(plan), "; this engine has never run on real hardware"),
                         engine->has_run);
        platform_visit_kernels(of_one_kernel, &seen);
        assert_int_equal(seen, !strcmp(solver, "wgmma"));
        clattn_plan_release(&plan);
    } else {
        assert_contains(message, engine->refusal);
    }
    assert_int_equal(plan_of(context, NULL, CLATTN_DTYPE_BF16, 64, &plan), CLATTN_SUCCESS);
    assert_string_equal(clattn_plan_solver(plan), "tile");
    snprintf(line, sizeof line, "  %s: refused, %s", solver,
             engine->name ? "the planner takes it only behind the self-check, which is off" : engine->refusal);
    assert_contains(clattn_plan_explain(plan), line);
    assert_null(strstr(clattn_plan_explain(plan), "emulated"));
    clattn_plan_release(&plan);
    clattn_context_release(&context);

    /* With a self-check the engine is tried and found wrong. */
    context = paper_context(target, true);
    status = plan_of(context, solver, CLATTN_DTYPE_BF16, 64, &plan);
    clattn_context_message(context, message, sizeof message);
    snprintf(line, sizeof line, "matmul_%s disagrees with the reference on this device: c[", solver);
    assert_contains(message, engine->name ? line : engine->refusal);
    assert_int_equal(status, engine->name ? CLATTN_ERROR_MISCOMPILED : CLATTN_ERROR_UNSUPPORTED);
    clattn_context_release(&context);
}

static void engines_of_gpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < target_count; i++) {
        assert_string_equal(targets[i].name, known[i].target);
        engine_of_gpu(&targets[i], "matrix", &known[i].matrix);
    }
}

static void wgmma_of_gpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < target_count; i++) {
        engine_of_gpu(&targets[i], "wgmma", &known[i].wgmma);
    }
}

/* If a driver's binary cannot be spliced, the solver fails with the reason, and the next solver is tried. */
static const struct {
    const char *binary, *reason;
} binaries[] = {
    {NULL, "the driver gives none"},
    {"\x7f"
     "ELF",
     "it is no text"},
    {"", "it does not begin with .version and .target"},
    {".version 8.4\n.target sm_100\n.entry matmul_wgmma()\n{\n}\n", ".target is neither sm_90 nor sm_90a"},
    {".version 8.4\n.target sm_90\n.entry matmul_wgmma()\n{\n\tret;\n}\n", "it has no markers"},
};

static void binaries_that_cannot_be_spliced(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(binaries); i++) {
        clattn_plan *plan = NULL;
        char text[512], line[256];
        platform_give_binary(binaries[i].binary);
        clattn_context *context = paper_context(&targets[1], true);
        snprintf(line, sizeof line, "matmul/gpu/wgmma.cl: instructions cannot be put into the driver's binary: %s",
                 binaries[i].reason);
        /* The second failure is remembered. */
        for (int again = 0; again < 2; again++) {
            assert_int_equal(plan_of(context, "wgmma", CLATTN_DTYPE_BF16, 64, &plan), CLATTN_ERROR_BUILD);
            assert_null(plan);
            clattn_context_message(context, text, sizeof text);
            assert_contains(text, line);
        }
        /* Every solver is wrong on paper, but each is tried. */
        assert_int_equal(plan_of(context, NULL, CLATTN_DTYPE_BF16, 64, &plan), CLATTN_ERROR_MISCOMPILED);
        assert_contains(
            paper_log, "matmul: solver wgmma failed, trying the next: matmul/gpu/wgmma.cl: instructions cannot be put");
        assert_contains(paper_log, "matmul: solver matrix failed, trying the next: matmul_matrix disagrees");
        clattn_context_release(&context);
    }
    platform_give_binary(platform_ptx);
}

static void older(offline_target *target)
{
    target->capability = 7;
}

static void newer(offline_target *target)
{
    target->capability_minor = 1;
}

static void much_newer(offline_target *target)
{
    target->capability = 10;
}

static void of_another_width(offline_target *target)
{
    target->wavefront = 96 - target->wavefront;
}

static void without_the_extension(offline_target *target)
{
    target->extensions = "cl_khr_fp16 cl_intel_subgroups cl_intel_required_subgroup_size";
}

static void with_wide_sub_groups(offline_target *target)
{
    target->sub_groups[0] = 32;
    target->sub_groups[1] = 0;
}

static void with_little_local_memory(offline_target *target)
{
    target->local_memory = 1024;
}

static void as_it_is(offline_target *target)
{
    (void)target;
}

#define DRIVERS "matrix engines are reached through NVIDIA's, AMD's and Intel's own drivers alone"

/* Devices that differ from the known ones in one respect, and why they refuse an engine; `forced` tells whether they
 * also refuse it to a caller who names it. */
static const struct refusal {
    const char *solver;
    size_t target;
    void (*change)(offline_target *target);
    const char *reason;
    clattn_dtype dtype;
    size_t m;
    bool forced;
} refused[] = {
    {"matrix", 0, older, "its compute capability is below 8.0", CLATTN_DTYPE_BF16, 64, true},
    {"matrix", 1, paper_hide_capability, "the driver does not tell the compute capability", CLATTN_DTYPE_BF16, 64,
     true},
    {"matrix", 0, paper_change_driver, DRIVERS, CLATTN_DTYPE_BF16, 64, true},
    {"matrix", 3, paper_change_driver, DRIVERS, CLATTN_DTYPE_BF16, 64, true},
    {"matrix", 3, of_another_width, "its wavefronts have another size than the instruction's", CLATTN_DTYPE_BF16, 64,
     true},
    {"matrix", 4, of_another_width, "its wavefronts have another size than the instruction's", CLATTN_DTYPE_F16, 64,
     true},
    {"matrix", 5, without_the_extension, "it has no cl_intel_subgroup_matrix_multiply_accumulate", CLATTN_DTYPE_F16, 64,
     true},
    {"matrix", 5, with_wide_sub_groups, "its smallest sub-groups have neither 8 nor 16 items", CLATTN_DTYPE_F16, 64,
     true},
    {"matrix", 0, with_little_local_memory, "the device's work-groups or local memory are too small", CLATTN_DTYPE_F16,
     64, true},
    {"matrix", 1, as_it_is, "a and b must both be float16 or both bfloat16", CLATTN_DTYPE_F32, 64, true},
    {"matrix", 3, as_it_is, "this GPU's MFMA takes float16 below 2^-14 for 0", CLATTN_DTYPE_F16, 64, false},
    {"matrix", 1, as_it_is, "most of a square of 16 x 16 would be idle", CLATTN_DTYPE_BF16, 4, false},
    {"wgmma", 1, newer, NO_WGMMA, CLATTN_DTYPE_BF16, 64, true},
    {"wgmma", 1, much_newer, NO_WGMMA, CLATTN_DTYPE_BF16, 64, true},
    {"wgmma", 1, paper_hide_capability, "the driver does not tell the compute capability", CLATTN_DTYPE_BF16, 64, true},
    {"wgmma", 1, paper_change_driver, DRIVERS, CLATTN_DTYPE_BF16, 64, true},
    {"wgmma", 1, with_little_local_memory, "the device's work-groups or local memory are too small", CLATTN_DTYPE_F16,
     64, true},
    {"wgmma", 1, as_it_is, "a and b must both be float16 or both bfloat16", CLATTN_DTYPE_F32, 64, true},
    {"wgmma", 1, as_it_is, "some of a product's 64 rows and 16 columns would be idle", CLATTN_DTYPE_BF16, 63, false},
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        const struct refusal *r = &refused[i];
        offline_target target = targets[r->target];
        clattn_plan *plan = NULL;
        char text[512];
        r->change(&target);
        clattn_context *context = paper_context(&target, false);
        if (r->forced) {
            assert_int_equal(plan_of(context, r->solver, r->dtype, r->m, &plan), CLATTN_ERROR_UNSUPPORTED);
            clattn_context_message(context, text, sizeof text);
            assert_contains(text, r->reason);
        }
        assert_int_equal(plan_of(context, NULL, r->dtype, r->m, &plan), CLATTN_SUCCESS);
        assert_string_not_equal(clattn_plan_solver(plan), r->solver);
        snprintf(text, sizeof text, "  %s: refused, %s", r->solver, r->reason);
        assert_contains(clattn_plan_explain(plan), text);
        clattn_plan_release(&plan);
        clattn_context_release(&context);
    }
}

/* Whether 48 KiB of local memory are more than the device has; NVIDIA's GPUs have more than they report. */
static bool lacks_local_memory(void)
{
    clattn_device_info info = {.size = sizeof info};

    assert_status(device_context(), clattn_context_device_info(device_context(), &info), CLATTN_SUCCESS);
    return info.local_memory < 48 * 1024;
}

/* Whether the device has the engine, be it a wrong one. */
static bool has(const char *solver)
{
    clattn_plan *plan = NULL;
    const clattn_status status = plan_of(device_context(), solver, CLATTN_DTYPE_BF16, 64, &plan);

    clattn_plan_release(&plan);
    return status != CLATTN_ERROR_UNSUPPORTED;
}

/* Adds the cases, those of emulated engines for the device's own engines, too. */
static void add(matmul_case *cases, size_t count)
{
    const bool matrix = has("matrix"), wgmma = has("wgmma");

    for (matmul_case *c = cases; c < cases + count; c++) {
        const unsigned own = (matrix && (c->solvers & MATMUL_EMULATED & ~MATMUL_WGMMA) ? MATMUL_MATRIX : 0) |
                             (wgmma && (c->solvers & MATMUL_WGMMA) ? MATMUL_OWN_WGMMA : 0);
        c->refused_by |= (c->refused_by & MATMUL_EMULATED) == MATMUL_EMULATED ? own : 0;
        c->solvers |= own;
    }
    matmul_add(cases, count);
}

int main(int argc, char **argv)
{
    largest[0].refused_by = lacks_local_memory() ? EMULATED_MMA : 0;
    add(sizes, COUNT_OF(sizes));
    add(largest, COUNT_OF(largest));
    add(forms, COUNT_OF(forms));
    add(batches, COUNT_OF(batches));
    add(epilogues, COUNT_OF(epilogues));
    suite_add(no_engine_here, "matmul matrix: no engine here");
    suite_add(engines_of_gpus, "matmul matrix: engines of GPUs on paper");
    suite_add(wgmma_of_gpus, "matmul matrix: wgmma of GPUs on paper");
    suite_add(binaries_that_cannot_be_spliced, "matmul matrix: binaries that cannot be spliced");
    suite_add(refusals, "matmul matrix: refusals");
    return suite_run("matmul_matrix", argc, argv);
}
