#include <stdlib.h>
#include <string.h>

#include "tool/cli/json_text.h"

json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    /* Device names come from drivers: a damaged name is better than no report. */
    size_t length = strlen(text);
    char *ascii = malloc(length + 1);
    if (ascii == NULL)
        return NULL;
    for (size_t i = 0; i <= length; i++)
        ascii[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    value = json_string(ascii);
    free(ascii);
    return value;
}
