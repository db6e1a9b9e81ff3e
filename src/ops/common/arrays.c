#include "ops/common/arrays.h"

#include <string.h>

#include "base/layout.h"

clattn_status read_x_and_y(clattn_layout *x, clattn_layout *y, const char **reason)
{
    const struct layout_rule both[] = {
        {x, LAYOUT_OF("x"), LAYOUT_INPUT, 0, false},
        {y, LAYOUT_OF("y"), LAYOUT_OUTPUT, 0, false},
    };
    clattn_status status = layouts_read(both, 2, NULL, reason);
    if (status != CLATTN_SUCCESS)
        return status;
    *reason = "x and y are float32, float16 or bfloat16";
    if (!dtype_is_storage(x->dtype) || !dtype_is_storage(y->dtype))
        return CLATTN_ERROR_UNSUPPORTED;
    *reason = "x and y differ in extents";
    if (x->rank != y->rank || memcmp(x->extent, y->extent, sizeof x->extent) != 0)
        return CLATTN_ERROR_INVALID_LAYOUT;
    return CLATTN_SUCCESS;
}
