/* Texts to token numbers by src/tool/embed/wordpiece.h, for compare.py:
 *
 *     wordpiece_tokenize vocab|json FILE MOST < TEXTS
 *
 * A text is a line with its number of bytes, and so many bytes after it.  Prints a line for each: how many
 * tokens there would be without the limit of MOST, and the numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/embed/wordpiece.h"

int main(int argc, char **argv)
{
    wordpiece *tokenizer = NULL;
    wordpiece_ids ids = {0};
    clattn_io_error error = {""};
    size_t bytes = 0, most = argc == 4 ? (size_t)strtoul(argv[3], NULL, 10) : 0;
    char *text = NULL;
    if (most < 2 || (strcmp(argv[1], "vocab") != 0 && strcmp(argv[1], "json") != 0))
        return 2;
    clattn_status status = strcmp(argv[1], "vocab") == 0 ? wordpiece_open_vocab(argv[2], &tokenizer, &error)
                                                         : wordpiece_open_json(argv[2], &tokenizer, &error);
    if (status != CLATTN_SUCCESS)
        fprintf(stderr, "%s\n", error.message);
    while (status == CLATTN_SUCCESS && scanf("%zu", &bytes) == 1 && getchar() == '\n') {
        text = realloc(text, bytes + 1);
        if (text == NULL || fread(text, 1, bytes, stdin) != bytes)
            return 1;
        status = wordpiece_encode(tokenizer, text, bytes, most, &ids);
        printf("%zu", ids.total);
        for (size_t i = 0; i < ids.count; i++)
            printf(" %d", (int)ids.id[i]);
        putchar('\n');
    }
    free(text);
    wordpiece_ids_release(&ids);
    wordpiece_close(&tokenizer);
    return status == CLATTN_SUCCESS ? 0 : 1;
}
