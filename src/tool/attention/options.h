/* The options that say what to attend: those of `clattn attention`, `clattn explain` and `clattn bench
 * attention`. */
#ifndef CLATTN_TOOL_ATTENTION_OPTIONS_H
#define CLATTN_TOOL_ATTENTION_OPTIONS_H

#include "tool/attention/request.h"
#include "tool/run/device.h"
#include "tool/heatmap/options.h"
#include "tool/cli/options.h"

/* Whose options they are.  Explain takes arrays or their shape, bench a shape, which it fills; neither writes
 * results. */
typedef enum attention_mode { ATTENTION_RUN, ATTENTION_EXPLAIN, ATTENTION_BENCH } attention_mode;

typedef struct attention_options {
    attention_mode mode;
    const char *input[INPUT_USER], *fused, *result[RESULT_COUNT]; /* files */
    const char *layout, *score_mod, *mask_mod, *score_mod_grad, *solver, *device;
    option_list user, user_scalar;
    heatmap_options heat;
    bool backward, causal, short_mask, ring, kv_int8, kv_int4, verify, json;
    int32_t align, dtype, score; /* the first two -1 where they are not given */
    option_float scale, softcap, dropout;
    option_limits window;
    option_whole seed, dropout_offset;
    size_t heads[2], kv_group, page_size, max_launch_ms, repeat, shape[7];
} attention_options;

/* Parses the options and refuses combinations that do not go together. */
int attention_options_parse(attention_mode mode, int argc, char **argv, attention_options *options);

/* Notes which results are wanted, splits MODE:FILE, and refuses two results in one file. Heat maps need the scores. */
int attention_take_results(attention_options *options, attention_request *request);

/* host_check_output with all files that the options name. */
int attention_check_output(const attention_options *options, const char *path);

/* Reads the files and completes the request. */
int attention_load(const attention_options *options, attention_request *request);

/* What explain and bench begin with: calls attention_begin, attention_options_parse, attention_take_results and
 * attention_load, and opens the device. */
int attention_open(attention_mode mode, int argc, char **argv, attention_options *options, attention_request *request,
                   tool_device *device);

/* attention_load's part for the user's functions, their buffers and numbers. */
int attention_load_user(const attention_options *options, attention_request *request);

/* Does device_check for a plan's making.  A function that does not compile is the user's, and so is the mistake: what the
 * compiler says of "score_mod:LINE" is said of the file. */
int attention_plan_check(const attention_options *options, const tool_device *device, clattn_status made);

#endif
