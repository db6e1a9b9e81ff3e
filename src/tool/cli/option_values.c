/* Parsing and checking the values of options. */
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/cli/options.h"
#include "tool/tool.h"

const char *const option_align_choices[] = {"top-left", "bottom-right", NULL};
const clattn_dtype option_dtypes[] = {CLATTN_DTYPE_F32, CLATTN_DTYPE_F16, CLATTN_DTYPE_BF16};
const char *const option_dtype_choices[] = {"f32", "f16", "bf16", NULL};

#define COUNT_LIMIT 2147483647u

/* Parses a number of digits only: no sign, blank or hexadecimal.  Returns what follows it, or NULL if there is none or it
 * is larger than `most`. */
static const char *parse_digits(const char *text, uint64_t most, uint64_t *value)
{
    *value = 0;
    if (!isdigit((unsigned char)*text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*value > (most - digit) / 10)
            return NULL;
        *value = *value * 10 + digit;
    }
    return text;
}

static bool parse_sizes(const char *text, size_t count, size_t *sizes)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        text = parse_digits(text, COUNT_LIMIT, &value);
        if (text == NULL || value == 0 || *text != (i + 1 < count ? ',' : '\0'))
            return false;
        sizes[i] = (size_t)value;
        text++;
    }
    return true;
}

static bool parse_whole(const char *text, uint64_t *value)
{
    const char *end = parse_digits(text, UINT64_MAX, value);
    return end != NULL && *end == '\0';
}

/* Parses `count` numbers, each a whole number or -1. */
static bool parse_limits(const char *text, size_t count, int64_t *limits)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        bool none = strncmp(text, "-1", 2) == 0;
        text = none ? text + 2 : parse_digits(text, COUNT_LIMIT, &value);
        if (text == NULL || *text != (i + 1 < count ? ',' : '\0'))
            return false;
        limits[i] = none ? -1 : (int64_t)value;
        text++;
    }
    return true;
}

/* strtod takes hexadecimal, "nan", "inf" and leading blanks too; all of them are refused here. */
bool option_parse_float(const char *text, float *value)
{
    if (*text == '\0' || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (*end != '\0' || end == text)
        return false;
    /* Halfway between FLT_MAX and the next power of two rounds to infinity. */
    if (!(fabs(number) < (double)FLT_MAX * (1.0 + 0x1p-25)))
        return false;
    *value = (float)number;
    return number == 0.0 ? errno != ERANGE : *value != 0.0f;
}

static void list_choices(const option_row *row, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; row->choices[i] != NULL && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used == 0 ? "" : " or ", row->choices[i]);
}

static int parse_choice(const option_table *table, const option_row *row, const char *text, int32_t *index)
{
    char expected[256];
    for (int32_t i = 0; row->choices[i] != NULL; i++) {
        if (strcmp(row->choices[i], text) == 0) {
            *index = i;
            return TOOL_DONE;
        }
    }
    list_choices(row, expected, sizeof expected);
    return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected %s", table->command, row->name, text, expected);
}

static int store_in_list(const option_table *table, const option_row *row, const char *text, option_list *list)
{
    if (list->count == OPTION_LIST_LIMIT)
        return complain(TOOL_BAD_INPUT, "%s: %s is given more than %d times", table->command, row->name,
                        OPTION_LIST_LIMIT);
    list->item[list->count++] = text;
    return TOOL_DONE;
}

int option_store(const option_table *table, const option_row *row, const char *text, void *fields)
{
    void *field = (char *)fields + row->offset;
    if ((row->kind == OPTION_TEXT || row->kind == OPTION_LIST) && *text == '\0')
        return complain(TOOL_BAD_INPUT, "%s: %s is empty, expected %s", table->command, row->name, row->value);
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = true; return TOOL_DONE;
    case OPTION_TEXT: *(const char **)field = text; return TOOL_DONE;
    case OPTION_FLOAT:
        if (!option_parse_float(text, &((option_float *)field)->value))
            return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected a finite float32 number",
                            table->command, row->name, text);
        ((option_float *)field)->given = true;
        return TOOL_DONE;
    case OPTION_COUNT: {
        size_t most = row->count != 0 ? row->count : COUNT_LIMIT;
        if (!parse_sizes(text, 1, field) || *(size_t *)field > most)
            return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected a whole number from 1 to %zu",
                            table->command, row->name, text, most);
        return TOOL_DONE;
    }
    case OPTION_SIZES:
        if (!parse_sizes(text, row->count, field))
            return complain(
                TOOL_BAD_INPUT,
                "%s: %s '%s' is not valid, expected %s: %zu whole number%s from 1 to %u, separated by commas",
                table->command, row->name, text, row->value, row->count, row->count == 1 ? "" : "s", COUNT_LIMIT);
        return TOOL_DONE;
    case OPTION_WHOLE:
        if (!parse_whole(text, &((option_whole *)field)->value))
            return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected a whole number from 0 to %llu",
                            table->command, row->name, text, (unsigned long long)UINT64_MAX);
        ((option_whole *)field)->given = true;
        return TOOL_DONE;
    case OPTION_LIMITS:
        if (!parse_limits(text, row->count, ((option_limits *)field)->value))
            return complain(TOOL_BAD_INPUT,
                            "%s: %s '%s' is not valid, expected %s: %zu whole numbers from -1 to %u, "
                            "separated by a comma",
                            table->command, row->name, text, row->value, row->count, COUNT_LIMIT);
        ((option_limits *)field)->given = true;
        return TOOL_DONE;
    case OPTION_LIST: return store_in_list(table, row, text, field);
    case OPTION_CHOICE: return parse_choice(table, row, text, field);
    }
    return complain(TOOL_FAILED, "%s: %s is of an unknown kind", table->command, row->name);
}
