/* Declarations that the whole command shares: exit statuses, the one error line, and the commands themselves. */
#ifndef CLATTN_TOOL_TOOL_H
#define CLATTN_TOOL_TOOL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/printf_like.h"

/* Exit statuses.  A function of the tool that returns `int` returns one of these, and if it is a failure the error line
 * has been written already. */
enum {
    TOOL_DONE = 0,
    TOOL_FAILED = 1,    /* the computation failed, or writing a result */
    TOOL_BAD_INPUT = 2, /* wrong usage, or wrong contents of a file */
    TOOL_NO_DEVICE = 3,
    TOOL_HELPED = 4 /* --help was written and nothing else is to be done; main makes it TOOL_DONE */
};

/* Calls a function of the tool; unless it returns TOOL_DONE, stores what it returned in the local `status` and jumps to
 * `fail`. */
#define TOOL_TRY(expression) \
    do { \
        status = (expression); \
        if (status != TOOL_DONE) \
            goto fail; \
    } while (0)

/* Writes "clattn: " and the message to stderr as exactly one line (control characters and line ends in it are
 * replaced) and returns `status`.  Only the first call of a process writes: an error that follows from another
 * is silent. */
int complain(int status, const char *format, ...) PRINTF_LIKE(2, 3);

/* Silences later calls of complain: a process that runs itself again has written the line already. */
void complain_no_more(void);

/* Makes the line name this process's rank, where several work together. */
void complain_as_rank(int rank);

/* Keeps the line until complain_deliver, which writes it, or drops it. */
void complain_hold(void);
void complain_deliver(bool speak);

/* The commands.  argv[0] is the first argument after the command's name. */
int cmd_devices(int argc, char **argv);
int cmd_attention(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_softmax(int argc, char **argv);
int cmd_mha(int argc, char **argv);
int cmd_denoise(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_embed_image(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_transcribe(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_translate(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_selftest(int argc, char **argv);

/* The subcommands of bench, one per operator. */
int bench_attention(int argc, char **argv);
int bench_matmul(int argc, char **argv);
int bench_softmax(int argc, char **argv);
int bench_layernorm(int argc, char **argv);
int bench_mha(int argc, char **argv);
int bench_encoder(int argc, char **argv);
int bench_startup(int argc, char **argv);
int bench_enqueue(int argc, char **argv);
int bench_ring(int argc, char **argv);
int bench_random(int argc, char **argv);

#endif
