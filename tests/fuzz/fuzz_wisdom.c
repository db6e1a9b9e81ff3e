/* libFuzzer target for the text of wisdom, which comes from the cache's folder or from another machine.
 *
 * Whatever the bytes: a line and a reason, or records that are found by their keys, read in parts, and come back when they
 * are written and read again. */
#define _GNU_SOURCE
#include "fuzz_file.h"

#include <string.h>

#include "plan/wisdom/wisdom.h"

/* Whether both lists have the same lines. */
static bool same(const struct wisdom_list *a, const struct wisdom_list *b)
{
    bool all = a->count == b->count;
    for (size_t i = 0; all && i < a->count; i++)
        all = strcmp(a->record[i].line, b->record[i].line) == 0;
    return all;
}

/* Finds the record's bucket and forgets it. */
static void use(struct wisdom_list *list, size_t index)
{
    struct advice advice;
    char key[WISDOM_LINE];
    const struct wisdom_record *record = &list->record[index];
    REQUIRE(record->key + 1 + record->solver < strlen(record->line) && record->rank < WISDOM_RANKS);
    wisdom_read(record, &advice);
    REQUIRE(strlen(advice.solver) == record->solver && advice.rank == record->rank);
    REQUIRE(advice.settings.count <= TUNING_MOST);
    snprintf(key, sizeof key, "%.*s", (int)record->key, record->line);
    const struct wisdom_record *found = wisdom_list_find(list, key, 0);
    REQUIRE(found != NULL && found->rank <= record->rank);
    wisdom_list_forget(list, key);
    REQUIRE(wisdom_list_find(list, key, 0) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wisdom_list list = {0}, again = {0};
    struct strbuf text = {0}, token = {0};
    const char *reason = NULL;
    size_t line = 0;
    wisdom_token(&token, "a name, \xff and more", 1 + size % 30);
    REQUIRE(strchr(token.text, ' ') == NULL);
    strbuf_clear(&token);
    clattn_status status = wisdom_parse((const char *)data, size, &list, &line, &reason);
    if (status == CLATTN_SUCCESS) {
        wisdom_write(&list, &text);
        REQUIRE(wisdom_parse(text.text, text.length, &again, &line, &reason) == CLATTN_SUCCESS && same(&list, &again));
        while (list.count > 0)
            use(&list, list.count / 2);
    } else {
        REQUIRE(status == CLATTN_ERROR_FORMAT && line >= 1 && reason != NULL);
    }
    strbuf_clear(&text);
    wisdom_list_clear(&again);
    wisdom_list_clear(&list);
    return 0;
}
