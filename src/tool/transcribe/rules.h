/* Which tokens Whisper may choose next. */
#ifndef CLATTN_TOOL_TRANSCRIBE_RULES_H
#define CLATTN_TOOL_TRANSCRIBE_RULES_H

#include "tool/transcribe/tokens.h"

/* The first timestamp is at most so much into the window: 50 steps of 0.02 s. */
#define WHISPER_FIRST_MOST 50

/* Sets the logits of what may not follow the `count` tokens generated so far to -INFINITY:
 *
 *   tokens of the model's lists, and <|notimestamps|>, always;
 *   as the first token, all but timestamps up to a second;
 *   timestamps come in pairs, but directly before the end: after a lone one no words, after a pair no
 * timestamp; a timestamp is never before the last one, and after words not at it either; if all timestamps
 * together are likelier than each other token, what is not a timestamp. */
void whisper_rules_apply(const whisper_tokens *tokens, const int32_t *generated, size_t count, float *logits);

/* The logits become logarithms of probabilities (-INFINITY stays).  All -INFINITY: nothing changes. */
void whisper_log_softmax(float *logits, size_t count);

/* The probability that one token would have, of logits that no rule has been applied to. */
double whisper_probability(const float *logits, size_t count, int32_t token);

#endif
