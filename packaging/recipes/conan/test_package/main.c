/* Says which version was linked; opens a device, if there is one. */
#include <clattn/clattn.h>
#include <clattn/io.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    clattn_context *context = NULL;
    clattn_status status = clattn_context_create(NULL, &context);
    printf("clattn %s: %s\n", clattn_version_string(), clattn_status_string(status));
    clattn_context_release(&context);
    /* Of the other library: releasing nothing does nothing. */
    clattn_npy *npy = NULL;
    clattn_npy_release(&npy);
    return strcmp(clattn_version_string(), "@VERSION@") == 0 ? 0 : 1;
}
