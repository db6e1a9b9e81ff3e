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

#define COUNT_LIMIT 2147483647u

/* Parses a number of digits only: no sign, blank or hexadecimal.  Returns what follows it, or NULL. */
static const char *parse_count(const char *text, size_t *count)
{
    uint64_t value = 0;
    if (!isdigit((unsigned char)*text))
        return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > COUNT_LIMIT)
            return NULL;
    }
    if (value == 0)
        return NULL;
    *count = (size_t)value;
    return text;
}

static bool parse_sizes(const char *text, size_t count, size_t *sizes)
{
    for (size_t i = 0; i < count; i++) {
        text = parse_count(text, &sizes[i]);
        if (text == NULL || *text != (i + 1 < count ? ',' : '\0'))
            return false;
        text++;
    }
    return true;
}

static bool parse_whole(const char *text, uint64_t *value)
{
    *value = 0;
    if (*text == '\0')
        return false;
    for (; isdigit((unsigned char)*text); text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*value > (UINT64_MAX - digit) / 10)
            return false;
        *value = *value * 10 + digit;
    }
    return *text == '\0';
}

/* Parses `count` numbers, each a whole number or -1. */
static bool parse_limits(const char *text, size_t count, int64_t *limits)
{
    for (size_t i = 0; i < count; i++) {
        size_t digits = text[0] == '-' ? 1 : strspn(text, "0123456789"), value = 0;
        if (text[0] == '-' ? text[1] != '1' : digits == 0)
            return false;
        for (size_t c = 0; c < digits && text[0] != '-' && value <= COUNT_LIMIT; c++)
            value = value * 10 + (size_t)(text[c] - '0');
        if (value > COUNT_LIMIT)
            return false;
        limits[i] = text[0] == '-' ? -1 : (int64_t)value;
        text += text[0] == '-' ? 2 : digits;
        if (*text != (i + 1 < count ? ',' : '\0'))
            return false;
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
    if (*text == '\0')
        return complain(TOOL_BAD_INPUT, "%s: %s is empty, expected %s", table->command, row->name, row->value);
    if (list->count == OPTION_LIST_LIMIT)
        return complain(TOOL_BAD_INPUT, "%s: %s is given more than %d times", table->command, row->name,
                        OPTION_LIST_LIMIT);
    list->item[list->count++] = text;
    return TOOL_DONE;
}

int option_store(const option_table *table, const option_row *row, const char *text, void *fields)
{
    void *field = (char *)fields + row->offset;
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = true; return TOOL_DONE;
    case OPTION_TEXT:
        if (*text == '\0')
            return complain(TOOL_BAD_INPUT, "%s: %s is empty, expected %s", table->command, row->name, row->value);
        *(const char **)field = text;
        return TOOL_DONE;
    case OPTION_FLOAT:
        if (!option_parse_float(text, &((option_float *)field)->value))
            return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected a finite float32 number",
                            table->command, row->name, text);
        ((option_float *)field)->given = true;
        return TOOL_DONE;
    case OPTION_COUNT: {
        const char *end = parse_count(text, field);
        size_t most = row->count != 0 ? row->count : COUNT_LIMIT;
        if (end == NULL || *end != '\0' || *(size_t *)field > most)
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
