/* What encoders of pictures have beside others: the checks of their fields, and the grids of their patches. */
#include "base/size.h"
#include "base/try.h"
#include "nn/model/model.h"
#include "ops/common/arrays.h"

#define PATCHES_LIMIT ((size_t)1 << 16)
#define WINDOW_LIMIT 64
#define DISTANCE_LIMIT 512

static clattn_status check_patches(const clattn_stack_desc *d, const char **reason)
{
    const clattn_patches *p = &d->patches;
    const bool pictures = d->input == CLATTN_STACK_INPUT_PICTURES, table = d->positions == CLATTN_POSITIONS_TABLE;
    const size_t sizes[] = {p->channels, p->height, p->width, p->grid_rows, p->grid_columns, p->registers, p->border};
    REQUIRE(is_flag(p->antialias) && is_flag(p->without_bias) && is_flag(p->class_token) && !p->reserved,
            CLATTN_ERROR_INVALID_LAYOUT,
            "patches: antialias, without_bias or class_token is neither 0 nor 1, or reserved is not 0");
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        REQUIRE(sizes[i] <= PATCHES_LIMIT, CLATTN_ERROR_INVALID_LAYOUT, "patches: a size is above 65536");
    if (!pictures) {
        REQUIRE(!p->channels && !p->height && !p->width && !p->grid_rows && !p->grid_columns && !p->antialias &&
                    !p->without_bias && !p->class_token && !p->registers && !p->border,
                CLATTN_ERROR_INVALID_LAYOUT, "patches are for pictures");
        return CLATTN_SUCCESS;
    }
    const size_t height = p->height + 2 * p->border, width = p->width + 2 * p->border;
    REQUIRE(p->channels && p->height && p->width && p->channels < MODEL_SIZE_LIMIT / height / width,
            CLATTN_ERROR_INVALID_LAYOUT,
            "patches: channels, height and width are at least 1, and their product, with borders, is below 2^31");
    REQUIRE(!p->border || !table, CLATTN_ERROR_INVALID_LAYOUT, "patches: a border is without a table of positions");
    const bool grid = table || (d->windows.whole && d->windows.position_bias == CLATTN_POSITION_BIAS_DECOMPOSED);
    REQUIRE(grid ? p->grid_rows && p->grid_columns : !p->grid_rows && !p->grid_columns && !p->antialias,
            CLATTN_ERROR_INVALID_LAYOUT, "patches: a table of positions has a grid, and there is none without");
    REQUIRE(!table || d->position_count == p->grid_rows * p->grid_columns ||
                (p->class_token && d->position_count == p->grid_rows * p->grid_columns + 1),
            CLATTN_ERROR_INVALID_LAYOUT,
            "patches: position_count is grid_rows * grid_columns, or one more if there is a class token");
    return CLATTN_SUCCESS;
}

static clattn_status check_windows(const clattn_stack_desc *d, const char **reason)
{
    const clattn_windows *w = &d->windows;
    const bool pictures = stack_has_patches(d);
    REQUIRE(w->shifted >= 0 && w->shifted <= 2 && enum_within(w->position_bias, CLATTN_POSITION_BIAS_DECOMPOSED),
            CLATTN_ERROR_INVALID_LAYOUT, "windows: shifted is not 0, 1 or 2, or position_bias is unknown");
    REQUIRE(!w->rows == !w->columns && w->rows <= WINDOW_LIMIT && w->columns <= WINDOW_LIMIT,
            CLATTN_ERROR_INVALID_LAYOUT, "windows: one of rows and columns is 0, or a size is above 64");
    REQUIRE(w->rows || (!w->shifted && !w->position_bias && !w->whole), CLATTN_ERROR_INVALID_LAYOUT,
            "windows: shifted, position_bias and whole are for windows, which have rows and columns");
    REQUIRE(d->layers >= 64 || !(w->whole >> d->layers), CLATTN_ERROR_INVALID_LAYOUT,
            "windows: whole has a layer that the stack does not have");
    REQUIRE(!w->whole || w->position_bias != CLATTN_POSITION_BIAS_TABLE, CLATTN_ERROR_INVALID_LAYOUT,
            "windows: whole layers have no table of distances");
    REQUIRE(w->position_bias != CLATTN_POSITION_BIAS_DECOMPOSED || !w->whole ||
                (d->patches.grid_rows && d->patches.grid_columns && d->patches.grid_rows <= DISTANCE_LIMIT &&
                 d->patches.grid_columns <= DISTANCE_LIMIT),
            CLATTN_ERROR_INVALID_LAYOUT,
            "windows: a decomposed bias of whole layers is for a first stage, and needs a grid of at most 512 x 512");
    REQUIRE(w->position_bias != CLATTN_POSITION_BIAS_DECOMPOSED ||
                ((!d->explicit_scale || isfinite(1 / d->scale)) && d->kv_heads == d->heads && d->softcap == 0),
            CLATTN_ERROR_INVALID_LAYOUT,
            "windows: a decomposed bias needs a scale whose inverse is finite, kv_heads = heads, and no softcap");
    REQUIRE(!w->rows || (pictures && !d->patches.class_token && !d->patches.registers && !d->causal && !d->rotary),
            CLATTN_ERROR_INVALID_LAYOUT,
            "windows are for pictures without class token and registers, and are neither causal nor rotary");
    REQUIRE(!d->neck || (pictures && !d->patches.class_token && !d->patches.registers && !d->projection &&
                         !d->final_norm && !d->next),
            CLATTN_ERROR_INVALID_LAYOUT,
            "a neck is for pictures without class token, registers, final_norm and projection, and for the last stage");
    return CLATTN_SUCCESS;
}

static bool is_factor(const clattn_restoration *r)
{
    switch ((int)r->kind) {
    case CLATTN_RESTORATION_KIND_SHUFFLE: return r->factor == 2 || r->factor == 3 || r->factor == 4 || r->factor == 8;
    case CLATTN_RESTORATION_KIND_SHUFFLE_ONCE: return r->factor >= 1 && r->factor <= 8;
    case CLATTN_RESTORATION_KIND_NEAREST: return r->factor == 2 || r->factor == 4 || r->factor == 8;
    case CLATTN_RESTORATION_KIND_ADDED: return r->factor == 1;
    default: return false;
    }
}

static clattn_status check_restoration(const clattn_stack_desc *d, const char **reason)
{
    const clattn_restoration *r = &d->restoration;
    REQUIRE(!r->reserved && enum_within(r->kind, CLATTN_RESTORATION_KIND_ADDED), CLATTN_ERROR_INVALID_LAYOUT,
            "restoration: unknown kind, or reserved is not 0");
    REQUIRE(d->residual <= 3 && d->residual != 2 && (d->residual != 3 || d->d_model >= 4), CLATTN_ERROR_INVALID_LAYOUT,
            "residual is not 0, 1 or 3, or 3 with a d_model below 4");
    if (!r->kind) {
        REQUIRE(!r->factor && !r->features, CLATTN_ERROR_INVALID_LAYOUT,
                "restoration: factor and features are for a kind");
        return CLATTN_SUCCESS;
    }
    const bool features = r->kind == CLATTN_RESTORATION_KIND_SHUFFLE || r->kind == CLATTN_RESTORATION_KIND_NEAREST;
    REQUIRE(is_factor(r), CLATTN_ERROR_INVALID_LAYOUT, "restoration: the kind does not have this factor");
    REQUIRE(features == (r->features != 0) && r->features <= PATCHES_LIMIT, CLATTN_ERROR_INVALID_LAYOUT,
            "restoration: features are 1 to 65536 for SHUFFLE and NEAREST, and 0 for others");
    REQUIRE(d->residual && !d->next && !d->neck && !d->projection, CLATTN_ERROR_INVALID_LAYOUT,
            "restoration is for a last stage with a residual, without neck and projection");
    return CLATTN_SUCCESS;
}

clattn_status pictures_check(const clattn_stack_desc *d, const char **reason)
{
    clattn_status status;
    TRY(check_patches(d, reason));
    TRY(check_windows(d, reason));
    status = check_restoration(d, reason);
fail:
    return status;
}

clattn_status stages_check(const struct stack *first, const char **reason)
{
    const bool restored = stack_last(first)->desc.restoration.kind;
    const clattn_patches *p = &first->desc.patches;
    REQUIRE(!restored ||
                (p->height == 1 && p->width == 1 && !p->class_token && !p->registers && !first->desc.positions),
            CLATTN_ERROR_INVALID_LAYOUT,
            "restoration is for patches of 1 x 1 without class token, registers and positions");
    for (const struct stack *stack = first; stack; stack = stack->next) {
        const clattn_stack_desc *d = &stack->desc;
        REQUIRE(restored || !d->residual, CLATTN_ERROR_INVALID_LAYOUT, "residual is for encoders with a restoration");
        REQUIRE(!restored || (d->input != CLATTN_STACK_INPUT_MERGED && d->windows.rows == first->desc.windows.rows &&
                              d->windows.columns == first->desc.windows.columns),
                CLATTN_ERROR_INVALID_LAYOUT,
                "stages of an encoder with a restoration continue one another, with windows of one size");
    }
    return CLATTN_SUCCESS;
}

/* ---- grids ---- */

size_t stack_prefix(const clattn_stack_desc *desc)
{
    return (desc->patches.class_token == 1) + size_min(desc->patches.registers, PATCHES_LIMIT);
}

struct grid stack_window(const clattn_stack_desc *desc, size_t layer, struct grid grid)
{
    return layer < 64 && desc->windows.whole >> layer & 1 ? grid
                                                          : (struct grid){desc->windows.rows, desc->windows.columns};
}

struct grid stack_grid(const struct stack *stack, size_t height, size_t width)
{
    const clattn_patches *p = &stack->desc.patches;
    const clattn_windows *w = &stack->desc.windows;
    if (!p->height || !p->width)
        return (struct grid){0};
    const struct grid grid = {height / p->height, width / p->width};
    if (!w->rows || !stack_last(stack)->desc.restoration.kind)
        return grid;
    return (struct grid){divide_up(grid.rows, w->rows) * w->rows, divide_up(grid.columns, w->columns) * w->columns};
}

const struct stack *stack_last(const struct stack *stack)
{
    while (stack->next)
        stack = stack->next;
    return stack;
}
