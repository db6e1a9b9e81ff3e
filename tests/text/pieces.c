/* The vocabulary of the tests in Python: pieces make FILE COUNT TEXT ... makes one of texts; pieces encode FILE writes a line of
 * numbers for each line of standard input; pieces decode FILE turns such lines into texts; pieces list FILE writes all pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/run/device.h"
#include "tool/text/vocabulary.h"
#include "tool/tool.h"

#define LINE 65536

int exit_status_of(clattn_status status)
{
    return status == CLATTN_SUCCESS ? TOOL_DONE : TOOL_BAD_INPUT;
}

static int encode_line(const vocabulary *v, const char *line)
{
    vocabulary_ids ids = {0};
    int status = vocabulary_encode(v, line, strlen(line), &ids);
    for (size_t i = 0; i < ids.count; i++)
        printf(i == 0 ? "%d" : " %d", (int)ids.id[i]);
    putchar('\n');
    free(ids.id);
    return status;
}

static int decode_line(const vocabulary *v, char *line)
{
    vocabulary_ids ids = {0};
    char *text = NULL;
    int status = TOOL_DONE;
    for (char *number = strtok(line, " "); number != NULL && status == TOOL_DONE; number = strtok(NULL, " "))
        status = vocabulary_append(&ids, atoi(number));
    if (status == TOOL_DONE)
        status = vocabulary_decode(v, ids.id, ids.count, &text);
    if (status == TOOL_DONE)
        puts(text);
    free(text);
    free(ids.id);
    return status;
}

int main(int argc, char **argv)
{
    static char line[LINE];
    vocabulary *v;
    if (argc > 4 && strcmp(argv[1], "make") == 0)
        return vocabulary_train((const char *const *)&argv[4], (size_t)argc - 4, (size_t)atoi(argv[3]), argv[2]);
    if (argc != 3)
        return TOOL_BAD_INPUT;
    int status = vocabulary_open(argv[2], &v);
    if (status == TOOL_DONE && strcmp(argv[1], "list") == 0)
        for (size_t i = 0; i < vocabulary_size(v); i++)
            puts(vocabulary_piece(v, (int32_t)i));
    else
        while (status == TOOL_DONE && fgets(line, sizeof line, stdin) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            status = strcmp(argv[1], "encode") == 0 ? encode_line(v, line) : decode_line(v, line);
        }
    vocabulary_close(v);
    return status;
}
