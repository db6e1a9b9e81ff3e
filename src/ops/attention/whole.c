/* Checks where an enqueue's arrays lie in larger ones. */
#include "ops/attention/launch.h"
#include "ops/common/arrays.h"

/* Makes an extent of the larger arrays that is 0 what it is without them; false if `count` from `first` on are not within it. */
static bool within(size_t first, size_t count, size_t usual, size_t *whole)
{
    if (!*whole) {
        *whole = usual;
        return !first;
    }
    return count <= *whole && first <= *whole - count && *whole <= LENGTH_LIMIT;
}

clattn_status attention_read_whole(struct report *report, const struct attention_problem *problem,
                                   clattn_attention_args *args)
{
    const clattn_attention_desc *desc = &problem->desc;
    const bool there = args->whole.query || args->whole.key || args->whole.head || args->whole.query_length ||
                       args->whole.key_length || args->whole.heads || args->whole.batch;
    const size_t queries = problem->packed_queries ? desc->query.extent[2] : args->query_length;
    const size_t keys = problem->packed_keys ? desc->key.extent[2] : args->key_length;
    if (there && (attention_has_snippet(problem) || desc->cache.kind != CLATTN_CACHE_KIND_PLAIN))
        return report_error(report, CLATTN_ERROR_UNSUPPORTED, "whole: there are snippets, a ring or pages");
    if (!within(args->whole.query, queries, args->query_length, &args->whole.query_length) ||
        !within(args->whole.key, keys, args->key_length, &args->whole.key_length) ||
        !within(args->whole.head, problem->heads, problem->heads, &args->whole.heads))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "whole: the part's queries, keys or heads are not within it, or it is above 2^31 - 65537");
    if (args->whole.batch && (args->whole.batch > LENGTH_LIMIT - args->batch ||
                              args->whole.batch + args->batch > LENGTH_LIMIT / size_max(args->whole.heads, 1)))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "whole.batch is %zu, with more than 2^31 - 65537 heads of all items", args->whole.batch);
    if (desc->dropout.probability > 0 && (problem->packed_keys ? args->whole.key : args->whole.key % 4))
        return report_error(report, CLATTN_ERROR_INVALID_ARGUMENT,
                            "whole.key is %zu, with dropout expected a multiple of 4, or 0 if keys are packed",
                            args->whole.key);
    return CLATTN_SUCCESS;
}
