#include "ops/common/arrays.h"

#include <string.h>

#include "base/layout.h"
#include "base/try.h"

clattn_status read_x_and_y(clattn_layout *x, clattn_layout *y, const char **reason)
{
    const struct layout_rule both[] = {
        {x, LAYOUT_OF("x"), LAYOUT_INPUT, 0, false},
        {y, LAYOUT_OF("y"), LAYOUT_OUTPUT, 0, false},
    };
    clattn_status status;
    TRY(layouts_read(both, 2, NULL, reason));
    REQUIRE(dtype_is_storage(x->dtype) && dtype_is_storage(y->dtype), CLATTN_ERROR_UNSUPPORTED,
            "x and y are float32, float16 or bfloat16");
    REQUIRE(x->rank == y->rank && !memcmp(x->extent, y->extent, sizeof x->extent), CLATTN_ERROR_INVALID_LAYOUT,
            "x and y differ in extents");
fail:
    return status;
}
