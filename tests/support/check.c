#include "support/check.h"

#include <string.h>

void check_status(const clattn_context *context, clattn_status got, unsigned set, const char *call, const char *file,
                  int line)
{
    char message[4096] = "";

    if ((unsigned)got < 32 && (set & STATUS_BIT(got))) {
        return;
    }
    clattn_context_message(context, message, sizeof message);
    print_error("%s\n  gave %d (%s), expected one of:", call, (int)got, clattn_status_string(got));
    for (unsigned i = 0; i < 32; i++) {
        if (set & (1u << i)) {
            print_error(" %u (%s)", i, clattn_status_string((clattn_status)i));
        }
    }
    print_error("\n  message: %s\n", message);
    _fail(file, line);
}

void check_message(const clattn_context *context, const char *part, const char *file, int line)
{
    char message[4096] = "";

    clattn_context_message(context, message, sizeof message);
    if (!strstr(message, part)) {
        print_error("the message lacks \"%s\": %s\n", part, message);
        _fail(file, line);
    }
}
