/* What the library reads of the processor by its own instructions is what Linux says of it. */
#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "support/harness.h"

/* Whether /proc/cpuinfo has the word in the first line of that name. */
static bool told(const char *text, const char *line, const char *word)
{
    const char *at = strstr(text, line), *end = at ? strchr(at, '\n') : NULL;
    const size_t length = strlen(word);
    for (at = at ? strstr(at, word) : NULL; at && end && at < end; at = strstr(at + 1, word))
        if (strchr("\t ", at[-1]) && strchr(" \n", at[length]))
            return true;
    return false;
}

static void instructions_are_those_that_the_system_lists(void **state)
{
    static char text[1 << 16];
    FILE *file = fopen("/proc/cpuinfo", "r");
    (void)state;
    if (!file)
        skip();
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    if (!strstr(text, "vendor_id")) /* another architecture's, or an emulator's */
        skip();
    const bool bf16 = told(text, "flags", "avx512_bf16") && told(text, "flags", "avx512vl");
    const bool amx = bf16 && told(text, "flags", "amx_bf16") && told(text, "flags", "amx_tile");
    assert_int_equal(os_processor_has_fast_bf16(), bf16 && told(text, "vendor_id", "AuthenticAMD"));
    assert_int_equal(os_processor_has_amx_bf16(), amx);
    assert_int_equal(os_processor_permit_amx_bf16(), told(text, "flags", "amx_tile"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_those_that_the_system_lists),
    };
    return RUN_TESTS("processor", tests, argc, argv);
}
