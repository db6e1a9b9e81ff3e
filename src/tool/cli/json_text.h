/* Text of unknown origin as JSON, and whether jansson has run out of memory. */
#ifndef CLATTN_TOOL_CLI_JSON_TEXT_H
#define CLATTN_TOOL_CLI_JSON_TEXT_H

#include <stdbool.h>

#include <jansson.h>

/* Makes a JSON string of any bytes: bytes that are not UTF-8 become '?'.  NULL if memory runs out. */
json_t *json_text(const char *text);

/* Makes jansson's allocations noticed; called first in main. */
void json_watch_memory(void);

/* Releases what json_dumps has returned; NULL is fine. */
void json_release(void *memory);

/* Whether an allocation of jansson's has failed since then.  Its functions do not always say so: json_dumps leaves out
 * the keys that it has no memory for. */
bool json_memory_failed(void);

#endif
