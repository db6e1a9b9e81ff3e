/* Normalisation's solvers; ops/common/rows.h says what each does. */
#include "ops/norm/norm.h"

static const char *refuse_cpu_device(const clattn_context *context, const void *problem, bool forced)
{
    return row_refuse_cpu(&norm_row_operator, context, problem, forced);
}

static clattn_status prepare_cpu(clattn_plan *plan)
{
    return row_prepare_cpu(&norm_row_operator, plan);
}

const struct solver norm_cpu_solver = {.name = "cpu", .refuse = refuse_cpu_device, .prepare = prepare_cpu};

/* ---- a work-group a row ---- */

static const char *refuse_tile(const clattn_context *context, const void *problem, bool forced)
{
    return row_refuse_tile(&norm_row_operator, ROW_LOCAL_MEMORY, context, problem, forced);
}

static clattn_status prepare_tile(clattn_plan *plan)
{
    return row_prepare_tile(&norm_row_operator, ROW_LOCAL_MEMORY, plan);
}

const struct solver norm_tile_solver = {.name = "tile", .refuse = refuse_tile, .prepare = prepare_tile};

static const char *refuse_sub_group(const clattn_context *context, const void *problem, bool forced)
{
    return row_refuse_tile(&norm_row_operator, ROW_SUB_GROUPS, context, problem, forced);
}

static clattn_status prepare_sub_group(clattn_plan *plan)
{
    return row_prepare_tile(&norm_row_operator, ROW_SUB_GROUPS, plan);
}

const struct solver norm_sub_group_solver = {
    .name = "sub-group", .refuse = refuse_sub_group, .prepare = prepare_sub_group};

static const char *refuse_emulation(const clattn_context *context, const void *problem, bool forced)
{
    return row_refuse_tile(&norm_row_operator, ROW_EMULATED_SUB_GROUPS, context, problem, forced);
}

static clattn_status prepare_emulation(clattn_plan *plan)
{
    return row_prepare_tile(&norm_row_operator, ROW_EMULATED_SUB_GROUPS, plan);
}

/* For tests: only by name. */
const struct solver norm_emulated_sub_group_solver = {
    .name = "emulated-sub-group", .refuse = refuse_emulation, .prepare = prepare_emulation};

/* ---- an item a row ---- */

static const char *refuse_generic(const clattn_context *context, const void *problem, bool forced)
{
    (void)forced;
    return row_refuse_generic(&norm_row_operator, context, problem);
}

static clattn_status prepare_generic(clattn_plan *plan)
{
    return row_prepare_generic(&norm_row_operator, plan);
}

const struct solver norm_generic_solver = {.name = "generic", .refuse = refuse_generic, .prepare = prepare_generic};
