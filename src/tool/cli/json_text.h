/* Text of unknown origin as JSON. */
#ifndef CLATTN_TOOL_CLI_JSON_TEXT_H
#define CLATTN_TOOL_CLI_JSON_TEXT_H

#include <jansson.h>

/* Makes a JSON string of any bytes: bytes that are not UTF-8 become '?'.  NULL if memory runs out. */
json_t *json_text(const char *text);

#endif
