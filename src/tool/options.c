#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

const char *const option_align_choices[] = {"top-left", "bottom-right", NULL};
const char *const option_dtype_choices[] = {"f32", "-f16", "-bf16", NULL};

#define COUNT_LIMIT 2147483647u
#define MAX_ROWS 64

/* Digits and nothing else: no sign, no space, no hexadecimal.  Returns what follows them, or NULL. */
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

/* strtod takes hexadecimal, "nan", "inf" and leading space too: none of them is meant here. */
static bool parse_float(const char *text, float *value)
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
    for (size_t i = 0; row->choices[i] != NULL && used < bytes; i++) {
        if (row->choices[i][0] != '-')
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used == 0 ? "" : " or ", row->choices[i]);
    }
}

static int parse_choice(const option_table *table, const option_row *row, const char *text, int32_t *index)
{
    char expected[256];
    for (int32_t i = 0; row->choices[i] != NULL; i++) {
        const char *choice = row->choices[i];
        if (choice[0] != '-' && strcmp(choice, text) == 0) {
            *index = i;
            return TOOL_DONE;
        }
        if (choice[0] == '-' && strcmp(choice + 1, text) == 0) {
            list_choices(row, expected, sizeof expected);
            return complain(TOOL_BAD_INPUT, "%s: %s %s is not supported yet, expected %s", table->command,
                            row->name, text, expected);
        }
    }
    list_choices(row, expected, sizeof expected);
    return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected %s", table->command, row->name, text,
                    expected);
}

static int store_value(const option_table *table, const option_row *row, const char *text, char *fields)
{
    void *field = fields + row->offset;
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = true; return TOOL_DONE;
    case OPTION_TEXT:
        if (*text == '\0')
            return complain(TOOL_BAD_INPUT, "%s: %s is empty, expected %s", table->command, row->name,
                            row->value);
        *(const char **)field = text;
        return TOOL_DONE;
    case OPTION_FLOAT:
        if (!parse_float(text, &((option_float *)field)->value))
            return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected a finite float32 number",
                            table->command, row->name, text);
        ((option_float *)field)->given = true;
        return TOOL_DONE;
    case OPTION_COUNT: {
        const char *end = parse_count(text, field);
        if (end == NULL || *end != '\0')
            return complain(TOOL_BAD_INPUT, "%s: %s '%s' is not valid, expected a whole number from 1 to %u",
                            table->command, row->name, text, COUNT_LIMIT);
        return TOOL_DONE;
    }
    case OPTION_SIZES:
        if (!parse_sizes(text, row->count, field))
            return complain(
                TOOL_BAD_INPUT,
                "%s: %s '%s' is not valid, expected %s: %zu whole number%s from 1 to %u, separated by commas",
                table->command, row->name, text, row->value, row->count, row->count == 1 ? "" : "s",
                COUNT_LIMIT);
        return TOOL_DONE;
    case OPTION_CHOICE: return parse_choice(table, row, text, field);
    case OPTION_LATER: break;
    }
    return complain(TOOL_BAD_INPUT, "%s: %s is not supported yet", table->command, row->name);
}

/* The row whose name is the `length` characters at `name`, or NULL. */
static const option_row *find_row(const option_table *table, const char *name, size_t length)
{
    for (const option_row *row = table->rows; row->name != NULL; row++)
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return row;
    return NULL;
}

/* Numbers may be negative; anything else that looks like an option is one, and the value was forgotten. */
static bool looks_like_value(const option_row *row, const char *text)
{
    if (row->kind == OPTION_FLOAT)
        return strncmp(text, "--", 2) != 0;
    return text[0] != '-' || text[1] == '\0';
}

/* Reads the option at argv[*next] and its value, and moves *next past them. */
static int parse_option(const option_table *table, int argc, char **argv, int *next, bool *seen, char *fields)
{
    const char *argument = argv[(*next)++];
    const char *equals = strncmp(argument, "--", 2) == 0 ? strchr(argument, '=') : NULL;
    size_t length = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const option_row *row = find_row(table, argument, length);
    if (row == NULL)
        return complain(TOOL_BAD_INPUT, "%s: unknown option '%.*s', see 'clattn %s --help'", table->command,
                        (int)length, argument, table->command);
    if (row->kind == OPTION_LATER)
        return store_value(table, row, NULL, fields);
    if (seen[row - table->rows])
        return complain(TOOL_BAD_INPUT, "%s: %s is given twice", table->command, row->name);
    seen[row - table->rows] = true;

    const char *value = NULL;
    if (row->kind == OPTION_FLAG) {
        if (equals != NULL)
            return complain(TOOL_BAD_INPUT, "%s: %s takes no value, found '%s'", table->command, row->name,
                            equals + 1);
    } else if (equals != NULL) {
        value = equals + 1;
    } else {
        if (*next == argc || !looks_like_value(row, argv[*next]))
            return complain(TOOL_BAD_INPUT, "%s: %s needs a value, %s", table->command, row->name,
                            row->value);
        value = argv[(*next)++];
    }
    return store_value(table, row, value, fields);
}

option_outcome options_parse(const option_table *table, int argc, char **argv, void *fields)
{
    bool seen[MAX_ROWS] = {false};
    const char **operands = (const char **)((char *)fields + table->operand_offset);
    size_t operand_count = 0;
    bool ended = false;

    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            options_help(table);
            return OPTIONS_DONE;
        }
    }
    for (int next = 0; next < argc;) {
        const char *argument = argv[next];
        if (!ended && strcmp(argument, "--") == 0) {
            ended = true;
            next++;
        } else if (!ended && argument[0] == '-' && argument[1] != '\0') {
            if (parse_option(table, argc, argv, &next, seen, fields) != TOOL_DONE)
                return OPTIONS_BAD;
        } else if (operand_count == table->operand_count) {
            complain(TOOL_BAD_INPUT, "%s: unexpected argument '%s', see 'clattn %s --help'", table->command,
                     argument, table->command);
            return OPTIONS_BAD;
        } else {
            operands[operand_count++] = argument;
            next++;
        }
    }
    if (operand_count < table->operand_count && !table->operand_optional) {
        complain(TOOL_BAD_INPUT, "%s: missing argument, expected %s", table->command, table->operands);
        return OPTIONS_BAD;
    }
    for (const option_row *row = table->rows; row->name != NULL; row++) {
        if (row->required && !seen[row - table->rows]) {
            complain(TOOL_BAD_INPUT, "%s: %s %s is missing", table->command, row->name, row->value);
            return OPTIONS_BAD;
        }
    }
    return OPTIONS_RUN;
}

void options_help(const option_table *table)
{
    printf("usage: clattn %s", table->command);
    if (table->operands != NULL)
        printf(table->operand_optional ? " [%s]" : " %s", table->operands);
    bool optional = false;
    for (const option_row *row = table->rows; row->name != NULL; row++) {
        if (row->required)
            printf(" %s %s", row->name, row->value);
        optional = optional || (!row->required && row->help != NULL);
    }
    printf("%s\n%s\n\n", optional ? " [options]" : "", table->summary);
    for (const option_row *row = table->rows; row->name != NULL; row++) {
        if (row->help == NULL)
            continue;
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", row->name, row->value != NULL ? " " : "",
                 row->value != NULL ? row->value : "");
        if (strlen(left) > 26)
            printf("  %s\n  %-26s", left, "");
        else
            printf("  %-26s", left);
        printf("  %s%s\n", row->help, row->required ? " (required)" : "");
    }
    printf("  %-26s  this text\n", "--help");
}
