#include "support/core/one_context.h"

clattn_context *context;

int open_context(void **state)
{
    (void)state;
    context = new_context();
    return 0;
}

int close_context(void **state)
{
    (void)state;
    release_context(&context);
    return 0;
}
