#include "chain.h"

#include <stdlib.h>

/* While a graph is divided: of each node its step, and of each step what is said below. */
typedef struct division {
    const graph *g;
    partition *made;
    size_t *step_of;       /* of each node; NO_PLACE: none */
    bool *taken;           /* each node that is in a step */
    size_t *level;         /* of each node */
    size_t *rise;          /* of each value: up to which level what makes it may rise */
    size_t *joined;        /* of each step, another of its chain, or itself; NO_PLACE: it is peeled off */
    bool *before, *behind; /* of each step: one that computes is before it in its chain, or behind it, or it is one */
    const char **reason;   /* why a node that is in no step is not, or NULL */
} division;

static OrtStatus *find_steps(division *d, bool on_processor)
{
    OrtStatus *failure = NULL;
    partition *made = d->made;
    for (int light = 0; light < 2; light++)
        for (size_t n = 0; n < d->g->nodes; n++) {
            step found_step;
            bool found = false;
            const char *reason = NULL;
            ORT_TRY(step_match(d->g, n, light, d->taken, &found_step, &found, &reason));
            if (found && found_step.kind == STEP_CONVOLUTION && on_processor) {
                found = false;
                reason = "processors convolve faster without clattn";
            }
            if (found) {
                for (size_t i = 0; i < found_step.nodes; i++)
                    d->taken[found_step.node[i]] = true;
                made->step[made->steps++] = found_step;
            } else if (reason)
                d->reason[n] = reason;
        }
fail:
    return failure;
}

static int by_last_node(const void *a, const void *b)
{
    const step *one = a, *two = b;
    size_t first = one->node[one->nodes - 1], second = two->node[two->nodes - 1];
    return (first > second) - (first < second);
}

/* The level of a value for a reader that is, or is not, a step: it rises where a value goes from one kind to the other. */
static size_t level_for(const division *d, size_t value, bool reader_is_step)
{
    const size_t producer = value == NO_PLACE ? NO_PLACE : d->g->value[value].producer;
    if (producer == NO_PLACE)
        return 0;
    return d->level[producer] + ((d->step_of[producer] != NO_PLACE) != reader_is_step);
}

/* Gives each node its level, so that what lies on one level never waits for a node of another kind between two of its own. */
static void find_levels(division *d)
{
    const graph *g = d->g;
    for (size_t n = 0; n < g->nodes; n++) {
        const size_t number = d->step_of[n];
        size_t level = 0;
        if (number == NO_PLACE) {
            for (size_t i = 0; i < g->node[n].reads; i++) {
                const size_t found = level_for(d, g->node[n].input[i], false);
                level = found > level ? found : level;
            }
            d->level[n] = level;
            continue;
        }
        /* A step runs where its last node is, which makes its output. */
        const step *s = &d->made->step[number];
        if (s->node[s->nodes - 1] != n)
            continue;
        for (size_t i = 0; i < STEP_READS; i++) {
            const size_t found = level_for(d, step_reads(s, i), true);
            level = found > level ? found : level;
        }
        for (size_t i = 0; i < s->nodes; i++)
            d->level[s->node[i]] = level;
    }
}

/* Raises steps that only steps of later levels read to the first of these: what waits for other nodes alone, such as a mask,
 * does not part attention from what it reads. */
static void raise_steps(division *d)
{
    const graph *g = d->g;
    for (size_t v = 0; v < g->values; v++)
        d->rise[v] = g->value[v].leaves ? 0 : SIZE_MAX;
    for (size_t n = 0; n < g->nodes; n++)
        for (size_t i = 0; d->step_of[n] == NO_PLACE && i < g->node[n].inputs; i++)
            if (g->node[n].input[i] != NO_PLACE)
                d->rise[g->node[n].input[i]] = 0;
    for (size_t number = d->made->steps; number-- > 0;) {
        const step *s = &d->made->step[number];
        size_t level = SIZE_MAX;
        for (size_t i = 0; i < STEP_OUTPUTS; i++)
            if (s->output[i] != NO_PLACE && d->rise[s->output[i]] < level)
                level = d->rise[s->output[i]];
        if (level == SIZE_MAX || level < d->level[s->node[0]])
            level = d->level[s->node[0]];
        for (size_t i = 0; i < s->nodes; i++)
            d->level[s->node[i]] = level;
        for (size_t i = 0; i < STEP_READS; i++) {
            const size_t value = step_reads(s, i);
            if (value != NO_PLACE && d->rise[value] > level)
                d->rise[value] = level;
        }
    }
}

static size_t root_of(const division *d, size_t number)
{
    while (d->joined[number] != number)
        number = d->joined[number];
    return number;
}

/* The step on the same level that makes what a step reads `i`th, or NO_PLACE. */
static size_t maker(const division *d, size_t number, size_t i)
{
    const step *s = &d->made->step[number];
    const size_t value = step_reads(s, i), producer = value == NO_PLACE ? NO_PLACE : d->g->value[value].producer;
    if (producer == NO_PLACE || d->step_of[producer] == NO_PLACE || d->level[producer] != d->level[s->node[0]])
        return NO_PLACE;
    return d->step_of[producer];
}

/* Leaves light steps that do not lie between two that compute: they would gain nothing.  What stays in a chain never waits for
 * what is left. */
static void peel(division *d)
{
    partition *made = d->made;
    bool *before = d->before, *behind = d->behind;
    for (size_t s = 0; s < made->steps; s++) {
        before[s] = behind[s] = made->step[s].kind < STEP_ELEMENTWISE;
        for (size_t i = 0; i < STEP_READS; i++) {
            const size_t other = maker(d, s, i);
            before[s] = before[s] || (other != NO_PLACE && before[other]);
        }
    }
    for (size_t s = made->steps; s-- > 0;)
        for (size_t i = 0; i < STEP_READS; i++) {
            const size_t other = maker(d, s, i);
            if (other != NO_PLACE)
                behind[other] = behind[other] || behind[s];
        }
    for (size_t s = 0; s < made->steps; s++) {
        const size_t source = maker(d, s, 0);
        /* A last reshape costs nothing and is kept, unless its target would be computed here for it alone. */
        if (made->step[s].kind == STEP_RESHAPE && !behind[s] && before[s] && maker(d, s, TARGET) == NO_PLACE)
            behind[s] = source != NO_PLACE && behind[source];
    }
    for (size_t s = 0; s < made->steps; s++)
        if (!before[s] || !behind[s])
            d->joined[s] = NO_PLACE;
}

/* Joins steps of one level, of which one reads what the other makes. */
static void join(division *d)
{
    const partition *made = d->made;
    for (size_t s = 0; s < made->steps; s++)
        for (size_t i = 0; i < STEP_READS && d->joined[s] != NO_PLACE; i++) {
            const size_t other = maker(d, s, i);
            if (other != NO_PLACE && d->joined[other] != NO_PLACE)
                d->joined[root_of(d, s)] = root_of(d, other);
        }
}

/* Whether it is known that a product has one row. */
static bool has_one_row(const graph *g, const step *product)
{
    const graph_value *x = &g->value[product->input[0]];
    bool one = x->rank > 0 && x->rank <= MOST_DIMENSIONS;
    for (size_t i = 0; one && i + 1 < x->rank; i++)
        one = x->dim[i] == 1;
    return one;
}

/* Numbers the chains that are to be taken.  Those of one token's products are left on processors: reading matrices bounds them, with
 * clattn or without, and its driver's threads sleep between short kernels. */
static void number_chains(division *d, bool all, bool on_processor)
{
    partition *made = d->made;
    size_t *number = d->level;                         /* of each root; levels are done with */
    bool *one_row = d->before, *more_rows = d->behind; /* whether a root's chain has such products; so are these */
    for (size_t s = 0; s < made->steps; s++) {
        number[s] = NO_PLACE;
        one_row[s] = more_rows[s] = false;
    }
    for (size_t s = 0; s < made->steps; s++)
        if (d->joined[s] != NO_PLACE && made->step[s].kind == STEP_PRODUCT)
            *(has_one_row(d->g, &made->step[s]) ? &one_row[root_of(d, s)] : &more_rows[root_of(d, s)]) = true;
    for (size_t s = 0; s < made->steps; s++) {
        if (d->joined[s] == NO_PLACE)
            continue;
        const size_t root = root_of(d, s);
        if (on_processor && one_row[root] && !more_rows[root]) {
            for (size_t i = 0; i < made->step[s].nodes; i++)
                d->reason[made->step[s].node[i]] =
                    "its chain's products have one row, which processors compute as fast without clattn";
            continue;
        }
        if ((all || made->step[s].kind == STEP_ATTENTION) && number[root] == NO_PLACE)
            number[root] = made->chains++;
    }
    for (size_t s = 0; s < made->steps; s++)
        made->chain[s] = d->joined[s] == NO_PLACE ? NO_PLACE : number[root_of(d, s)];
}

/* Tells why nodes are left. */
static void tell(const division *d, partition_left left, void *user)
{
    for (size_t n = 0; n < d->g->nodes; n++) {
        const size_t s = d->step_of[n];
        if (s == NO_PLACE && d->reason[n])
            left(user, n, d->reason[n]);
        else if (s != NO_PLACE && d->made->chain[s] == NO_PLACE && d->made->step[s].node[0] == n &&
                 d->made->step[s].kind < STEP_ELEMENTWISE)
            left(user, n, d->reason[n] ? d->reason[n] : "its chain has no attention");
    }
}

OrtStatus *partition_make(const graph *g, bool all, bool on_processor, partition_left left, void *user, partition *made)
{
    OrtStatus *failure = NULL;
    const size_t room = g->nodes + 1;
    division d = {.g = g, .made = made};
    *made = (partition){0};
    made->step = calloc(room, sizeof *made->step);
    made->chain = calloc(room, sizeof *made->chain);
    d.step_of = calloc(room, sizeof *d.step_of);
    d.taken = calloc(room, sizeof *d.taken);
    d.before = calloc(room, sizeof *d.before);
    d.behind = calloc(room, sizeof *d.behind);
    d.level = calloc(room, sizeof *d.level);
    d.rise = calloc(g->values + 1, sizeof *d.rise);
    d.joined = calloc(room, sizeof *d.joined);
    d.reason = calloc(room, sizeof *d.reason);
    if (!made->step || !made->chain || !d.step_of || !d.taken || !d.before || !d.behind || !d.level || !d.rise ||
        !d.joined || !d.reason) {
        failure = ort_failure(g->ort, ORT_FAIL, "clattn: no memory for the graph");
        goto fail;
    }
    ORT_TRY(find_steps(&d, on_processor));
    qsort(made->step, made->steps, sizeof *made->step, by_last_node);
    for (size_t n = 0; n < g->nodes; n++)
        d.step_of[n] = NO_PLACE;
    for (size_t s = 0; s < made->steps; s++)
        for (size_t i = 0; i < made->step[s].nodes; i++)
            d.step_of[made->step[s].node[i]] = s;
    find_levels(&d);
    raise_steps(&d);
    for (size_t s = 0; s < made->steps; s++)
        d.joined[s] = s;
    if (!all)
        peel(&d);
    join(&d);
    number_chains(&d, all, on_processor);
    if (left)
        tell(&d, left, user);
fail:
    free(d.step_of);
    free(d.taken);
    free(d.before);
    free(d.behind);
    free(d.level);
    free(d.rise);
    free(d.joined);
    free(d.reason);
    return failure;
}

void partition_release(partition *made)
{
    free(made->step);
    free(made->chain);
    *made = (partition){0};
}
