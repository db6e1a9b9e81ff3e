/* 2-D convolution on CPU devices: packed weights, and tiles of outputs whose inputs are copied. */
#include "base/size.h"
#include "base/try.h"
#include "ops/common/arrays.h"
#include "ops/conv2d/conv2d.h"
#include "program/defines.h"

enum { PACK, CONVOLVE }; /* kernels of the plan */

#define TILE_COLUMNS 48        /* of a tile: more make longer copies, fewer make copies overlap more */
#define TILE_OUTPUTS 288       /* of a tile, whose sums lie in the second-level cache */
#define PLANE_COLUMNS 512      /* the same of depthwise tiles whose vectors are columns */
#define PIXEL_CHANNELS 64      /* of a work-item of depthwise kernels whose vectors are channels */
#define FEW_CHANNELS 8         /* so few are neighbours in copies, however they lie in memory */
#define LEAST_BLOCK 8          /* tiles become smaller rather than blocks smaller than this */
#define PREFETCH_DISTANCE 1024 /* floats of packed weights */
#define ITEMS 4                /* work-items for each of the device's cores, if there is so much work */

static const char *const too_large = "the kernel's taps exceed what a work-item copies";

/* Chooses the macros of the plan.  A register tile and its operands fit the vector registers: 32 of them with 16 lanes,
 * otherwise 16; few output channels get narrow panels and longer tiles. */
static void choose_geometry(const struct capabilities *caps, const struct conv2d_problem *problem,
                            struct conv2d_plan *plan)
{
    const size_t channels = problem->out_channels, lanes = caps->lanes;
    size_t vectors;
    if (caps->quirks & (QUIRK_SLOW_COMPILER | QUIRK_SIMULATOR)) {
        plan->lanes = plan->rows = plan->panel = 4;
        plan->tiles = 4;
        plan->halo = 1024;
        return;
    }
    plan->lanes = lanes;
    plan->halo = 16384;
    if (conv2d_is_depthwise(problem)) {
        plan->halo = 24576; /* no sums are kept beside it */
        vectors = 1;
        plan->rows = 8;
    } else if (lanes == 16 && channels > 32) {
        const bool narrower = round_up(channels, 48) * 10 <= round_up(channels, 64) * 9;
        vectors = narrower ? 3 : 4;
        plan->rows = narrower ? 8 : 6;
    } else {
        vectors = channels > lanes ? 2 : 1;
        plan->rows = lanes == 16 ? 12 : 6;
    }
    plan->panel = vectors * lanes;
    plan->tiles = TILE_OUTPUTS / plan->rows;
}

static size_t panels_of(const struct conv2d_plan *plan, const struct conv2d_problem *problem)
{
    return conv2d_is_depthwise(problem) ? divide_up(problem->groups, plan->panel)
                                        : problem->groups * divide_up(problem->out_channels, plan->panel);
}

/* Chooses how inputs of a tile of so many outputs are copied (conv2d/args.h), and returns the positions of the copy.  With
 * `unit`, neighbouring outputs need neighbouring positions. */
static size_t set_tile(conv2d_axis *axis, int tile, bool unit)
{
    const size_t whole =
        (size_t)(tile - 1) * (size_t)axis->stride + (size_t)(axis->taps - 1) * (size_t)axis->dilation + 1;
    const size_t apart = (size_t)tile * (size_t)axis->taps;
    const bool one = whole <= apart && (!unit || axis->stride == 1);
    axis->tile = tile;
    axis->segments = one ? 1 : axis->taps;
    axis->length = one ? (int)whole : tile;
    axis->step = one ? 1 : axis->stride;
    axis->out_step = one ? axis->stride : 1;
    axis->tap_step = one ? axis->dilation : tile;
    return one ? whole : apart;
}

/* The smallest number of outputs in a tile that makes no more tiles than `most` outputs do. */
static int even_tile(int out, int most)
{
    const int tiles = (out + most - 1) / most;
    return (out + tiles - 1) / tiles;
}

static size_t tiles_of(const conv2d_args *a)
{
    return divide_up((size_t)a->down.out, (size_t)a->down.tile) *
           divide_up((size_t)a->across.out, (size_t)a->across.tile);
}

/* The parts of the output channels, each of which has its own work-items. */
static size_t parts_of(const struct conv2d_plan *plan, const struct conv2d_problem *problem, const conv2d_args *a)
{
    return a->lanes_along_channels ? divide_up(problem->groups, (size_t)a->block) : panels_of(plan, problem);
}

/* Fills in the arguments that say how the work is divided; false if a pixel's inputs are too many to copy. */
static bool choose_tiles(const struct conv2d_plan *plan, const struct conv2d_problem *problem, size_t cores,
                         conv2d_args *a)
{
    const bool depthwise = conv2d_is_depthwise(problem), pixels = depthwise && a->x.head == 1 && problem->groups > 1;
    const bool planes = depthwise && !pixels; /* channels are copied one by one, and no sums are kept */
    const size_t channels = problem->in_channels, outputs = planes ? plan->halo / 6 : plan->rows * plan->tiles;
    size_t each =
        pixels ? size_min(round_up(problem->groups, plan->lanes), PIXEL_CHANNELS) : 1; /* floats of a position */
    int across = even_tile(a->across.out, (int)size_min(outputs, planes ? PLANE_COLUMNS : TILE_COLUMNS));
    int down = even_tile(a->down.out, (int)outputs / across);
    a->channels_inner = a->x.head == 1 || channels <= FEW_CHANNELS;
    a->lanes_along_channels = pixels;
    for (;;) {
        const size_t positions = set_tile(&a->down, down, false) * set_tile(&a->across, across, planes);
        for (; each > plan->lanes && positions * each > plan->halo; each -= plan->lanes)
            ;
        const size_t room = plan->halo / (positions * each);
        const size_t most = size_max(1, room), blocks = size_max(1, divide_up(channels, most));
        a->block = pixels ? (int)each : (int)size_max(1, size_min(most, round_up(divide_up(channels, blocks), 8)));
        const size_t items = tiles_of(a) * parts_of(plan, problem, a) * problem->batch;
        const bool fits = room >= size_min(size_max(channels, 1), LEAST_BLOCK);
        if (fits && (items >= ITEMS * cores || (size_t)(down * across) <= 4 * plan->rows))
            return true;
        if (down == 1 && across == 1)
            return room > 0;
        if (down > 1)
            down = even_tile(a->down.out, down / 2);
        else
            across = even_tile(a->across.out, across / 2);
    }
}

/* Depthwise kernels know one group, whose output channels are all channels. */
static void set_channels(const struct conv2d_problem *problem, conv2d_args *a)
{
    if (!conv2d_is_depthwise(problem))
        return;
    a->out_channels = a->groups;
    a->groups = 1;
}

static bool describe(const struct conv2d_plan *plan, const struct conv2d_problem *problem, size_t cores,
                     const clattn_conv2d_args *args, conv2d_args *a)
{
    conv2d_fill_args(problem, args, a);
    set_channels(problem, a);
    return choose_tiles(plan, problem, cores, a);
}

/* The most loop iterations of a work-item: of the copies, the products and the stores. */
static double iterations(const struct conv2d_plan *plan, const conv2d_args *a)
{
    const double channels = a->in_channels, taps = (double)a->down.taps * a->across.taps,
                 tile = a->down.tile * a->across.tile;
    const double positions = (double)(a->down.segments * a->down.length) * (a->across.segments * a->across.length);
    const double lanes = (double)plan->lanes, each = a->lanes_along_channels ? a->block : 1;
    const double register_tiles = (tile / (double)plan->rows + 1) * (each / lanes + 1);
    const double copies = positions * (channels + 2), store = 2 * tile * (double)plan->panel;
    const double pack = taps * (a->block + lanes) * (2 * lanes + 2) * (double)plan->panel / lanes;
    const double work = register_tiles * (taps * (channels + 2) + 8) + store + copies * each;
    return work > pack ? work : pack;
}

static const char *refuse(const struct offer *offer)
{
    const struct conv2d_problem *problem = offer->problem;
    const struct capabilities *caps = offer->caps;
    const clattn_conv2d_args largest = {.batch = problem->batch};
    struct conv2d_plan plan = {0};
    conv2d_args a;
    if (conv2d_is_empty(problem, problem->batch))
        return refuse_all_but_cpu(offer);
    choose_geometry(caps, problem, &plan);
    if (!describe(&plan, problem, caps->info.compute_units, &largest, &a))
        return too_large;
    const char *reason = refuse_loops(caps, iterations(&plan, &a));
    return reason ? reason : refuse_all_but_cpu(offer);
}

static clattn_status workspace(const struct conv2d_plan *plan, const struct conv2d_problem *problem, size_t *bytes)
{
    const size_t taps = problem->kernel[0] * problem->kernel[1];
    size_t panel;
    if (!size_mul(taps, problem->in_channels, &panel) || !size_add(panel, 1, &panel) ||
        !size_mul(panel, plan->panel * sizeof(float), &panel) || !size_mul(panel, panels_of(plan, problem), bytes) ||
        *bytes > INT64_MAX / 2)
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_OVERFLOW,
                            "conv2d: the workspace overflows");
    return CLATTN_SUCCESS;
}

static void groups_of(const struct conv2d_plan *plan, const struct conv2d_problem *problem, const conv2d_args *a,
                      size_t pack[3], size_t convolve[3])
{
    pack[0] = panels_of(plan, problem);
    pack[1] = size_max(1, divide_up((size_t)a->in_channels, (size_t)a->block));
    pack[2] = 1;
    convolve[0] = tiles_of(a);
    convolve[1] = parts_of(plan, problem, a);
    convolve[2] = (size_t)a->batch;
}

static clattn_status launch(const struct conv2d_plan *plan, const struct conv2d_problem *problem, struct chain *chain,
                            const clattn_conv2d_args *args, conv2d_args *kernel_args)
{
    clattn_status status;
    const clattn_binding *pack[] = {&args->weight, problem->has_bias ? &args->bias : NULL, &chain->workspace};
    const clattn_binding *convolve[] = {&args->x, &chain->workspace, problem->has_operand ? &args->operand : NULL,
                                        &args->y};
    size_t pack_groups[3], groups[3];
    if (!describe(plan, problem, plan->base.context->device.caps.info.compute_units, args, kernel_args))
        return report_error(&plan->base.context->device.report, CLATTN_ERROR_UNSUPPORTED, "conv2d: %s", too_large);
    kernel_args->packed_offset = chain->workspace.offset / (int64_t)sizeof(float);
    kernel_args->packed_bias = (int64_t)(panels_of(plan, problem) * plan->panel * problem->in_channels *
                                         problem->kernel[0] * problem->kernel[1]);
    groups_of(plan, problem, kernel_args, pack_groups, groups);
    TRY(chain_launch(chain, &plan->base, PACK, pack, kernel_args, pack_groups, false));
    TRY(chain_launch(chain, &plan->base, CONVOLVE, convolve, kernel_args, groups, true));
fail:
    return status;
}

static clattn_status prepare(clattn_plan *base)
{
    static const size_t one[3] = {1, 1, 1};
    clattn_status status;
    struct conv2d_plan *plan = (struct conv2d_plan *)base;
    const struct conv2d_problem *problem = &plan->problem;
    const bool depthwise = conv2d_is_depthwise(problem);
    const char *const names[] = {"conv2d_pack", depthwise ? "conv2d_depthwise" : "conv2d_cpu"};
    const clattn_conv2d_args largest = {.batch = problem->batch};
    size_t groups[2][3] = {{1, 1, 1}, {1, 1, 1}};
    conv2d_args a;
    choose_geometry(&base->context->device.caps, problem, plan);
    plan->launch = launch;
    plan->workspace = workspace;
    TRY(workspace(plan, problem, &base->workspace));
    if (!conv2d_is_empty(problem, problem->batch) &&
        describe(plan, problem, base->context->device.caps.info.compute_units, &largest, &a))
        groups_of(plan, problem, &a, groups[PACK], groups[CONVOLVE]);
    for (int i = PACK; i <= CONVOLVE; i++) {
        struct strbuf options = {0};
        conv2d_defines(problem, &options);
        define_int(&options, "LANES", (long long)plan->lanes);
        define_int(&options, "ROWS", (long long)plan->rows);
        define_int(&options, "HALO", (long long)plan->halo);
        if (!depthwise) {
            define_int(&options, "VECTORS", (long long)(plan->panel / plan->lanes));
            define_int(&options, "TILES", (long long)plan->tiles);
            define_int(&options, "PREFETCH_DISTANCE",
                       capabilities_prefetch(&base->context->device.caps) ? PREFETCH_DISTANCE : 0);
        }
        TRY(plan_add_kernel(base, depthwise ? "conv2d/depthwise.cl" : "conv2d/cpu.cl", &options, names[i],
                            i == PACK ? 3 : 4, sizeof(conv2d_args), one, groups[i]));
    }
    base->kernels[PACK].prepares = true;
fail:
    return status;
}

const struct solver conv2d_cpu_solver = {.name = "cpu", .efficiency = 0.2, .refuse = refuse, .prepare = prepare};
