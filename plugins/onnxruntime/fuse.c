/* Steps of a chain that are computed together with others, or not at all. */
#include "run.h"

/* Whether a step's elements are read on the device, or outside. */
static bool is_wanted(const chain *c, size_t s)
{
    const chain_value *made = &c->value[c->step[s].output[0]];
    return made->readers > 0 || made->output != NO_PLACE;
}

/* Transpositions and reshapes that are asked only for their shape, and those that every reader looks through, read nothing. */
static void find_idle(chain *c, const graph *g)
{
    for (size_t s = c->steps; s-- > 0;) {
        const bool moves = c->step[s].kind == STEP_TRANSPOSE || c->step[s].kind == STEP_RESHAPE;
        if (moves && !g->value[c->step[s].output[0]].numbers && !is_wanted(c, s)) {
            c->idle[s] = true;
            c->value[c->step[s].input[0]].readers--;
        }
    }
}

/* The step that makes a value, for the one step that reads it, if nobody else does; or NO_PLACE. */
static size_t maker_for_one(const chain *c, size_t value)
{
    size_t s = 0;
    while (s < c->steps && c->step[s].output[0] != value)
        s++;
    return s < c->steps && c->value[value].readers == 1 && c->value[value].output == NO_PLACE ? s : NO_PLACE;
}

/* The same, behind reshapes that one step reads. */
static size_t maker_behind(const chain *c, size_t value)
{
    size_t s = maker_for_one(c, value);
    while (s != NO_PLACE && c->step[s].kind == STEP_RESHAPE)
        s = maker_for_one(c, c->step[s].input[0]);
    return s;
}

/* Finds attention whose output is turned. */
static void find_turns(chain *c)
{
    for (size_t s = 0; s < c->steps; s++) {
        if (c->step[s].kind != STEP_TRANSPOSE || c->idle[s])
            continue;
        const size_t maker = maker_behind(c, c->step[s].input[0]);
        if (maker != NO_PLACE && c->step[maker].kind == STEP_ATTENTION && !c->step[maker].attention.output.split) {
            c->turn[s] = maker;
            c->turn[maker] = s;
        }
    }
}

/* Whether a product is one that can be computed with others. */
static bool is_plain(const chain *c, size_t s)
{
    const step *p = &c->step[s];
    return p->kind == STEP_PRODUCT && p->reshape.kind == RESHAPE_NONE && p->input[PRODUCT_OPERAND] == NO_PLACE &&
           p->activation.function == CLATTN_ACTIVATION_NONE && c->joint[s].first == NO_PLACE;
}

/* Joins products of one array, given in the order of the steps. */
static void join(chain *c, const graph *g, const size_t *product, size_t count)
{
    chain_joint *first = &c->joint[product[0]];
    size_t pitch = 0;
    for (size_t i = 0; i < count; i++) {
        const step *s = &c->step[product[i]];
        c->joint[product[i]].first = product[0];
        c->joint[product[i]].column = pitch;
        first->step[i] = product[i];
        pitch += (size_t)g->value[s->input[PRODUCT_B]].dim[!s->product.transposed];
    }
    first->steps = count;
    for (size_t i = 0; i < count; i++)
        c->joint[product[i]].pitch = pitch;
}

/* Whether two products are of one array, both with a bias or both without. */
static bool are_alike(const chain *c, const graph *g, size_t first, size_t second)
{
    const size_t *one = c->step[first].input, *other = c->step[second].input;
    return one[PRODUCT_A] == other[PRODUCT_A] && g->value[one[PRODUCT_B]].type == g->value[other[PRODUCT_B]].type &&
           (one[PRODUCT_BIAS] == NO_PLACE) == (other[PRODUCT_BIAS] == NO_PLACE);
}

/* The products that make queries, keys and values of attention, in the order of the steps; returns how many there are. */
static size_t find_makers(const chain *c, const step *attention, size_t maker[3])
{
    size_t count = 0;
    for (size_t i = QUERY; i <= VALUE; i++) {
        const size_t found = maker_behind(c, attention->input[i]);
        if (found == NO_PLACE || !is_plain(c, found))
            continue;
        size_t at = count++;
        for (; at > 0 && maker[at - 1] > found; at--)
            maker[at] = maker[at - 1];
        maker[at] = found;
    }
    return count;
}

/* Joins products of one array that make attention's queries, keys and values: all three, or the first two that are alike. */
static void find_joints(chain *c, const graph *g)
{
    for (size_t s = 0; s < c->steps; s++) {
        const step *a = &c->step[s];
        size_t maker[3], joined = 0;
        if (a->kind != STEP_ATTENTION || a->input[LENGTHS] != NO_PLACE || a->output[PRESENT_KEY] != NO_PLACE)
            continue;
        const size_t count = find_makers(c, a, maker);
        for (size_t i = 0; i + 1 < count && joined < 2; i++) {
            size_t product[3] = {maker[i]};
            joined = 1;
            for (size_t n = i + 1; n < count; n++)
                if (are_alike(c, g, maker[i], maker[n]))
                    product[joined++] = maker[n];
            if (joined > 1)
                join(c, g, product, joined);
        }
    }
}

void chain_fuse(chain *c, const graph *g)
{
    for (size_t s = 0; s < c->steps; s++)
        c->turn[s] = c->joint[s].first = NO_PLACE;
    find_idle(c, g);
    find_turns(c);
    find_joints(c, g);
}
