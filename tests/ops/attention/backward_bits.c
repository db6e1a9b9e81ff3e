/* Gradients of attention that have to be the same in every bit: of a call that is repeated, and of items that change places.
 *
 * Holds: include/clattn/attention.h: sums have a fixed order, whatever the launch. */
#include <stdlib.h>
#include <string.h>

#include "support/attention/backward_job.h"
#include "support/attention/engine_cases.h"

#define BF CLATTN_DTYPE_BF16

/* ---- repeats ---- */

static const attention_case repeated = {"",
                                        ALL,
                                        .dim = {2, 4, 2, 13, 19, 8, 6},
                                        .sinks = true,
                                        .alibi = 1,
                                        .bias = MASK_FLOAT,
                                        .bias_rank = 2,
                                        .bias_extent = {13, 19},
                                        .dropout = 0.2f,
                                        .seed = 3};

/* Without what cpu has no gradients of; several items add to the same keys. */
static const attention_case repeated_by_cpu = {"",
                                               ALL,
                                               .dim = {2, 4, 2, 77, 101, 16, 24},
                                               .causal = true,
                                               .sinks = true,
                                               .dropout = 0.2f,
                                               .seed = 3,
                                               .long_loops = true};

/* Solvers of 16 bits repeat this one; it has the kernels of other cases. */
static const attention_case repeated_in_16_bits = {"", ALL, .dim = {2, 4, 2, 13, 19, 8, 8}, .type = FOUR(BF)};

static void repeats_give_the_same_bits(const void *test, const char *solver)
{
    struct backward_job j;

    backward_prepare(&j, test);
    if (!backward_plan(&j, solver)) {
        backward_release(&j);
        return;
    }
    test_array *const outputs[] = {&j.query, &j.key, &j.value, &j.bias, &j.alibi, &j.sinks};
    unsigned char *first[COUNT_OF(outputs)] = {0};
    const size_t count = by_level(2, 100, 100, 1000);
    for (size_t n = 0; n < count; n++) {
        backward_run(&j);
        for (size_t i = 0; i < COUNT_OF(outputs); i++) {
            const test_memory *memory = outputs[i]->memory;
            if (!memory) {
                continue;
            }
            const size_t bytes = memory->element_size * memory->count;
            array_download(outputs[i]);
            if (!first[i]) {
                first[i] = malloc(bytes);
                assert_non_null(first[i]);
                memcpy(first[i], memory->host, bytes);
            }
            assert_memory_equal(first[i], memory->host, bytes);
        }
    }
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        free(first[i]);
    }
    backward_release(&j);
}

/* ---- the place in the batch ---- */

/* What is an item's own: its lengths, and a bias whose gradient is not shared. */
static const attention_case placed[] = {
    {"lengths, bias, alibi", ALL, .dim = {3, 4, 2, 13, 19, 8, 6}, .causal = true, .bias = MASK_FLOAT, .alibi = 2,
     .list = {.queries = LIST(13, 4, 9), .keys = LIST(6, 19, 17)}, .entropy = true},
    {"plain", TINY, .dim = {3, 2, 1, 5, 7, 8, 8}},
    {"plain", BIG, .dim = {3, 4, 2, 77, 101, 8, 8}},
    {"bfloat16, plain", TINY, .dim = {3, 2, 1, 5, 7, 8, 8}, .type = FOUR(BF)},
    {"bfloat16, plain", BIG, .dim = {3, 4, 2, 77, 101, 8, 8}, .type = FOUR(BF)},
};

/* Moves the elements of each item of an array to the next item, the last one's to the first; `dense` has them as they were. */
static void move_items(test_array *array, const double *dense)
{
    size_t index[CLATTN_MAX_RANK] = {0}, n = 0;
    do {
        size_t to[CLATTN_MAX_RANK];
        memcpy(to, index, sizeof to);
        to[0] = (index[0] + 1) % array->layout.extent[0];
        array_set(array, to, dense[n++]);
    } while (array_next(array->layout.rank, array->layout.extent, index));
}

/* Whether an array has a part for each item. */
static bool has_items(const test_array *array, size_t batch)
{
    return array->memory && array->layout.rank > 0 && array->layout.extent[0] == batch;
}

static double *dense_of(const test_array *array)
{
    return array_dense(array, array->layout.rank, array->layout.extent);
}

/* Items that change places take the bits of their gradients with them. */
static void places_do_not_matter(const void *test, const char *solver)
{
    struct backward_job j;
    const attention_case *t = test;

    backward_prepare(&j, t);
    if (!backward_plan(&j, solver)) {
        backward_release(&j);
        return;
    }
    test_array *const outputs[] = {&j.query, &j.key, &j.value, &j.bias, &j.alibi};
    test_array *const given[] = {&j.given, &j.lse, &j.given_output, &j.given_lse};
    double *before[COUNT_OF(outputs)] = {0};
    backward_run(&j);
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        if (has_items(outputs[i], t->dim.batch)) {
            array_download(outputs[i]);
            before[i] = dense_of(outputs[i]);
        }
    }
    for (size_t i = 0; i < COUNT_OF(j.job.input) + COUNT_OF(given); i++) {
        test_array *array = i < COUNT_OF(given) ? given[i] : &j.job.input[i - COUNT_OF(given)];
        if (has_items(array, t->dim.batch)) {
            double *dense = dense_of(array);
            move_items(array, dense);
            array_upload(array);
            free(dense);
        }
    }
    backward_run(&j);
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        if (before[i]) {
            const size_t count = array_count(outputs[i]->layout.rank, outputs[i]->layout.extent);
            const size_t item = count / t->dim.batch, rest = count - item;
            array_download(outputs[i]);
            double *after = dense_of(outputs[i]);
            assert_memory_equal(after + item, before[i], rest * sizeof *after);
            assert_memory_equal(after, before[i] + rest, item * sizeof *after);
            free(after);
            free(before[i]);
        }
    }
    backward_release(&j);
}

static void add_places(const attention_case *t, bool with_amx, bool with_engine)
{
    static const char *const solvers[] = {"generic", "cpu", "tile", "cpu-amx"};
    static const char *const of_16_bits[] = {"cpu-bf16", "emulated-mma", "matrix"};
    const bool is_short = t->type.query == BF;
    const char *const *names = is_short ? of_16_bits : solvers;
    const size_t count = t->bias ? 1 : is_short ? 2 + with_engine : 3 + with_amx;

    for (size_t i = 0; i < count && t->levels & level(); i++) {
        suite_add_case(places_do_not_matter, t, names[i], "places do not matter, %s: %s", names[i], t->rule);
    }
}

int main(int argc, char **argv)
{
    static const char *const engines[] = {"emulated-mma", "matrix"};
    const size_t engine_count = backward_has_engine() ? 2 : 1;
    const bool with_amx = !emulates_amx_too_slowly();
    suite_add_case(repeats_give_the_same_bits, &repeated, "generic", "repeats give the same bits, generic");
    suite_add_case(repeats_give_the_same_bits, &repeated_by_cpu, "cpu", "repeats give the same bits, cpu");
    if (with_amx) {
        suite_add_case(repeats_give_the_same_bits, &repeated_by_cpu, "cpu-amx", "repeats give the same bits, cpu-amx");
    }
    suite_add_case(repeats_give_the_same_bits, &repeated, "tile", "repeats give the same bits, tile");
    suite_add_case(repeats_give_the_same_bits, &repeated_in_16_bits, "cpu-bf16",
                   "repeats give the same bits, cpu-bf16");
    for (size_t i = 0; i < engine_count; i++) {
        suite_add_case(repeats_give_the_same_bits, &repeated_in_16_bits, engines[i], "repeats give the same bits, %s",
                       engines[i]);
    }
    for (size_t n = 0; n < COUNT_OF(placed); n++) {
        add_places(&placed[n], with_amx, engine_count > 1);
    }
    return suite_run("attention backward bits", argc, argv);
}
