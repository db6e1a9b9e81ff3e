/* Attention of few queries on GPU-class devices: a work-group owns a few rows and reads K and V once for all of them
 * (cl/attention/gpu/decode.cl). */
#include "base/size.h"
#include "ops/attention/plan.h"
#include "program/defines.h"

#define TEAM 32
#define MOST_TEAMS 4
#define MOST_ROWS 4
#define FEW_ROWS 16         /* of a key/value head; for more the tiles of the other kernels are better used */
#define GROUPS_A_UNIT 8     /* that hide the memory's latency */
#define FEW_REGISTERS 128   /* of an item on NVIDIA, of which four work-groups then share a multiprocessor, */
#define MORE_REGISTERS 168  /* or three */
#define NEEDED_REGISTERS 64 /* beside what an item keeps: as ptxas 13.0 compiled it */
#define LOADS 4             /* of an item that are under way at a time; for a CPU's compiler few code is better */
#define LOADS_ON_CPU 2
#define ROW_BYTES 68              /* of local memory for what a row is, and for its factor */
#define PIECE sizeof(uint32_t[4]) /* that an item reads */

/* Rows of a key/value head: the queries of all its query heads. */
static size_t rows_of(const struct attention_problem *problem)
{
    return problem->query_length * (problem->heads / size_max(1, problem->kv_heads));
}

/* The rows of a work-group: a power of two. */
static size_t block_of(const struct attention_problem *problem)
{
    size_t rows = 1;
    while (rows < MOST_ROWS && rows < rows_of(problem))
        rows *= 2;
    return rows;
}

/* Items that share a row of so many elements: a power of two. */
static size_t items_of(size_t size, clattn_dtype dtype)
{
    size_t items = 1;
    while (items * PIECE < size * clattn_dtype_size(dtype))
        items *= 2;
    return items;
}

/* No more than give a team of items its keys. */
static size_t loads_of(const struct attention_problem *problem, size_t most)
{
    size_t key = items_of(problem->d_k, problem->desc.key.dtype);
    size_t value = items_of(problem->d_v, problem->desc.value.dtype);
    return size_min(most, size_min(key, value));
}

static size_t local_bytes(const struct attention_problem *problem, size_t teams)
{
    size_t items = items_of(problem->d_k, problem->desc.key.dtype), rows = block_of(problem);
    size_t keys = loads_of(problem, LOADS) * (TEAM / items);
    size_t part = size_max(rows * keys * (items + 1), TEAM * PIECE / 2);
    return sizeof(float) * teams * (part + rows * (TEAM + 1)) + rows * ROW_BYTES + 64;
}

/* What an item keeps in registers: its pieces of the rows' queries and outputs, as floats, and twice what it has under way. */
static size_t kept_registers(const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    size_t columns = PIECE / clattn_dtype_size(desc->key.dtype) + PIECE / clattn_dtype_size(desc->value.dtype);
    return block_of(problem) * columns + 2 * LOADS * PIECE / sizeof(float);
}

/* How often an item's loops turn at most, with one team and a CPU's few loads; none counts as unrolled. */
static double iterations(const struct attention_problem *problem)
{
    const clattn_attention_desc *desc = &problem->desc;
    double rows = (double)block_of(problem), loads = (double)loads_of(problem, LOADS_ON_CPU);
    double key_items = (double)items_of(problem->d_k, desc->key.dtype), d_v = (double)problem->d_v;
    double value_items = (double)items_of(problem->d_v, desc->value.dtype);
    double key_vector = (double)(PIECE / clattn_dtype_size(desc->key.dtype));
    double value_vector = (double)(PIECE / clattn_dtype_size(desc->value.dtype));
    double ask_keys = 2 * loads + key_vector * (1 + loads), ask_values = 2 * loads + value_vector * (1 + loads);
    double keys = loads * (1 + key_vector + rows * (1 + key_vector));
    double values = loads * (1 + value_vector + rows * (1 + value_vector));
    double parts = (rows * loads / key_items + 1) * (1 + key_items);
    double tile = key_items / loads * (1 + ask_keys + keys + parts) + rows * (TEAM + 3 + value_vector) +
                  value_items / loads * (1 + ask_values + values) + 1;
    double end = rows * (3 + rows * (1 + value_vector) + (d_v / TEAM + 1) * (1 + TEAM)) + TEAM + 2 + rows * key_vector;
    return ((double)problem->key_length / TEAM + 2) * tile + end + 100;
}

static bool fits(const struct capabilities *caps, const struct attention_problem *problem, size_t teams)
{
    const clattn_device_info *info = &caps->info;
    return TEAM * teams <= info->max_work_group && TEAM <= info->max_work_item[0] && teams <= info->max_work_item[1] &&
           local_bytes(problem, teams) <= capabilities_local_room(caps);
}

static const char *refuse(const struct offer *offer)
{
    const struct attention_problem *problem = offer->problem;
    const clattn_attention_desc *desc = &problem->desc;
    const char *reason = attention_refuse(offer->caps, problem);
    if (reason)
        return reason;
    if ((reason = attention_refuse_tiles(offer->caps)))
        return reason;
    if (problem->is_double || clattn_dtype_size(desc->key.dtype) < 2 || clattn_dtype_size(desc->value.dtype) < 2)
        return "keys or values are float64 or have groups";
    if (desc->scoring.kind == CLATTN_SCORE_ADDITIVE || desc->dropout.probability > 0 || problem->has[ATTENTION_ENTROPY])
        return "additive scores, dropout and entropy belong to other solvers";
    if (items_of(problem->d_k, desc->key.dtype) > TEAM || items_of(problem->d_v, desc->value.dtype) > TEAM)
        return "a row of keys or of values is longer than 512 bytes";
    if (!fits(offer->caps, problem, 1))
        return "the device's work-groups or local memory are too small";
    if ((reason = refuse_loops(offer->caps, iterations(problem))))
        return reason;
    if (!offer->forced && rows_of(problem) > FEW_ROWS)
        return "a key/value head has more than 16 rows";
    return refuse_cpu(offer);
}

static clattn_status prepare_teams(struct attention_plan *plan, size_t teams)
{
    const struct attention_problem *problem = &plan->problem;
    const struct capabilities *caps = &plan->base.context->device.caps;
    const size_t local[3] = {TEAM, teams, 1};
    struct strbuf options = {0};
    attention_begin_geometry(plan);
    plan->queries_per_group = 1;
    plan->rows_per_group = block_of(problem);
    plan->groups = attention_groups_by_key_heads;
    plan->key_tile = TEAM * teams;
    plan->base.efficiency = 0.01;
    plan->splits =
        attention_splits(problem, attention_group_count(plan), GROUPS_A_UNIT * (size_t)caps->info.compute_units);
    attention_defines(problem, caps, &options);
    if (capabilities_have(caps, "cl_nv_compiler_options"))
        strbuf_printf(&options, " -cl-nv-maxrregcount=%d",
                      kept_registers(problem) + NEEDED_REGISTERS <= FEW_REGISTERS ? FEW_REGISTERS : MORE_REGISTERS);
    define_int(&options, "ROWS", (long long)plan->rows_per_group);
    define_int(&options, "TEAMS", (long long)teams);
    define_int(&options, "LOADS", (long long)loads_of(problem, capabilities_on_cpu(caps) ? LOADS_ON_CPU : LOADS));
    define_int(&options, "KEY_ITEMS", (long long)items_of(problem->d_k, problem->desc.key.dtype));
    define_int(&options, "VALUE_ITEMS", (long long)items_of(problem->d_v, problem->desc.value.dtype));
    return attention_add_kernel(plan, "attention/gpu/decode.cl", "attention_decode_rows", &options, local);
}

/* A kernel may allow fewer items than the device: step down until one fits. */
static clattn_status prepare(clattn_plan *base)
{
    struct attention_plan *plan = (struct attention_plan *)base;
    clattn_status status = CLATTN_ERROR_UNSUPPORTED;
    for (size_t teams = MOST_TEAMS; teams && status == CLATTN_ERROR_UNSUPPORTED; teams /= 2) {
        if (!fits(&base->context->device.caps, &plan->problem, teams))
            continue;
        plan_drop_kernels(base);
        status = prepare_teams(plan, teams);
    }
    return status;
}

const struct solver attention_decode_solver = {.name = "decode", .refuse = refuse, .prepare = prepare};
