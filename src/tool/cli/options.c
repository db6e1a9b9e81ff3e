#include "tool/cli/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/tool.h"

#define MAX_ROWS 64

/* The row whose name is the `length` characters at `name`, or NULL. */
static const option_row *find_row(const option_table *table, const char *name, size_t length)
{
    for (const option_row *row = table->rows; row->name != NULL; row++)
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return row;
    return NULL;
}

/* Whether the text is a value.  Anything that looks like an option is one, and the value was forgotten; but a number
 * may be negative, even if the option then refuses it with its own message. */
static bool looks_like_value(const option_row *row, const char *text)
{
    if (row->kind == OPTION_FLOAT)
        return strncmp(text, "--", 2) != 0;
    bool number = row->kind == OPTION_LIMITS || row->kind == OPTION_COUNT || row->kind == OPTION_SIZES ||
                  row->kind == OPTION_WHOLE;
    return text[0] != '-' || (number ? isdigit((unsigned char)text[1]) != 0 : text[1] == '\0');
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
    if (seen[row - table->rows] && row->kind != OPTION_LIST)
        return complain(TOOL_BAD_INPUT, "%s: %s is given twice", table->command, row->name);
    seen[row - table->rows] = true;

    const char *value = NULL;
    if (row->kind == OPTION_FLAG) {
        if (equals != NULL)
            return complain(TOOL_BAD_INPUT, "%s: %s takes no value, found '%s'", table->command, row->name, equals + 1);
    } else if (equals != NULL) {
        value = equals + 1;
    } else {
        if (*next == argc || !looks_like_value(row, argv[*next]))
            return complain(TOOL_BAD_INPUT, "%s: %s needs a value, %s", table->command, row->name, row->value);
        value = argv[(*next)++];
    }
    return option_store(table, row, value, fields);
}

/* Writes the usage text of one command to stdout. */
static void write_help(const option_table *table)
{
    printf("usage: clattn %s", table->command);
    if (table->operands != NULL)
        printf(table->operand_least == 0 ? " [%s]" : " %s", table->operands);
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

int options_parse(const option_table *table, int argc, char **argv, void *fields)
{
    bool seen[MAX_ROWS] = {false};
    const char **operands = (const char **)((char *)fields + table->operand_offset);
    size_t operand_count = 0;
    bool ended = false;

    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            write_help(table);
            return TOOL_HELPED;
        }
    }
    for (int next = 0; next < argc;) {
        const char *argument = argv[next];
        if (!ended && strcmp(argument, "--") == 0) {
            ended = true;
            next++;
        } else if (!ended && argument[0] == '-' && argument[1] != '\0') {
            int status = parse_option(table, argc, argv, &next, seen, fields);
            if (status != TOOL_DONE)
                return status;
        } else if (operand_count == table->operand_count) {
            return complain(TOOL_BAD_INPUT, "%s: unexpected argument '%s', see 'clattn %s --help'", table->command,
                            argument, table->command);
        } else {
            operands[operand_count++] = argument;
            next++;
        }
    }
    if (operand_count < table->operand_least)
        return complain(TOOL_BAD_INPUT, "%s: missing argument, expected %s", table->command, table->operands);
    for (const option_row *row = table->rows; row->name != NULL; row++)
        if (row->required && !seen[row - table->rows])
            return complain(TOOL_BAD_INPUT, "%s: %s %s is missing", table->command, row->name, row->value);
    return TOOL_DONE;
}

int options_make(option_table table, size_t bytes, int argc, char **argv, void **fields)
{
    table.operand_count = argc > 0 ? (size_t)argc : 0; /* as many as the command line can have */
    *fields = calloc(1, bytes + (table.operand_count + 2) * sizeof(const char *));
    if (*fields == NULL)
        return complain(TOOL_FAILED, "%s: out of memory for the arguments", table.command);
    return options_parse(&table, argc, argv, *fields);
}

int options_run(option_table table, size_t bytes, int argc, char **argv, int (*run)(const void *fields))
{
    void *fields;
    int status = options_make(table, bytes, argc, argv, &fields);
    if (status == TOOL_DONE)
        status = run(fields);
    free(fields);
    return status;
}
