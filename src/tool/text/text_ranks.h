/* Texts that ranks share: the first one has all of them, gives each of N rows of ranks every N-th, and gets what comes of these.  The ranks
 * of a row have the model together, and make the same. */
#ifndef CLATTN_TOOL_TEXT_TEXT_RANKS_H
#define CLATTN_TOOL_TEXT_TEXT_RANKS_H

#include "tool/text/generator.h"
#include "tool/world/world.h"

/* Does what text_generator_run does, by all ranks.  The first rank calls it.  Returns an exit status, as all below. */
int text_ranks_run(tool_world *world, text_generator *generator, text_item *items, size_t count);

/* What the other ranks do until text_ranks_end. */
int text_ranks_serve(tool_world *world, text_generator *generator);

/* The first rank has no more texts. */
int text_ranks_end(tool_world *world);

#endif
