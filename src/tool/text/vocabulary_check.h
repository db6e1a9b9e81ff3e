/* What is looked at in a vocabulary's file before sentencepiece reads it. */
#ifndef CLATTN_TOOL_TEXT_VOCABULARY_CHECK_H
#define CLATTN_TOOL_TEXT_VOCABULARY_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the bytes are fields in Protocol Buffers' format, and the rules for characters, before (normalizer_spec, field 3) and
 * after (denormalizer_spec, field 5), have no table (field 2): sentencepiece trusts the places that are in one, and clattn's
 * vocabularies have none. */
bool vocabulary_has_no_table(const char *data, size_t bytes);

#endif
