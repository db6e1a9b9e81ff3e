/* Text of unknown origin as JSON. */
#ifndef CLATTN_TOOL_CLI_JSON_TEXT_H
#define CLATTN_TOOL_CLI_JSON_TEXT_H

#include <jansson.h>

/* A JSON string of any bytes: what is not UTF-8 becomes '?'.  NULL when memory runs out. */
json_t *json_text(const char *text);

#endif
