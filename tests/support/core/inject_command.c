/* Linked into the command: serves before main. */
#include "support/core/inject.h"

__attribute__((constructor)) static void serve(void)
{
    inject_serve();
}
