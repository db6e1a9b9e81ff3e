#include "support/group/drawn.h"

#include <string.h>

#include "support/harness.h"

test_job *drawn_whole(drawn *w)
{
    return w->draw->backward ? &w->backward.job : &w->forward;
}

void drawn_prepare(drawn *w, const group_draw *d, uint64_t salt)
{
    memset(w, 0, sizeof *w);
    w->draw = d;
    if (!d->backward) {
        w->desc = attention_prepare(&w->forward, &d->test, salt);
        (void)attention_inject(&w->forward, &d->test);
        return;
    }
    backward_prepare(&w->backward, &d->test);
    struct backward_job *b = &w->backward;
    test_array *own[JOB_OUTPUTS] = {&b->query, &b->key,    &b->value, &b->mask,
                                    &b->bias,  &b->vector, &b->alibi, &b->sinks};
    for (int n = 0; n < JOB_OUTPUTS; n++)
        if (!(d->gradients >> n & 1))
            own[n]->memory = w->backward.job.output[n].memory = NULL;
}

void drawn_make_parts(drawn *w)
{
    for (int i = 0; i < w->draw->way.ranks; i++)
        if (w->draw->backward)
            group_part_make_backward(&w->parts[i], &w->backward, &w->draw->way, i);
        else
            group_part_make(&w->parts[i], &w->forward, &w->desc, &w->draw->way, i);
}

void drawn_give_parts(drawn *w)
{
    for (int i = 0; i < w->draw->way.ranks; i++) {
        group_part_give(&w->parts[i], drawn_whole(w), &w->draw->way);
        group_part_release(&w->parts[i]);
    }
}

static bool is_all_bf16(const attention_case *t)
{
    return t->type.query == CLATTN_DTYPE_BF16 && t->type.key == CLATTN_DTYPE_BF16 &&
           t->type.value == CLATTN_DTYPE_BF16 && t->type.output == CLATTN_DTYPE_BF16;
}

void drawn_judge(drawn *w)
{
    struct backward_job *b = &w->backward;
    if (!w->draw->backward) {
        attention_judge(&w->forward, &w->draw->test);
        return;
    }
    if (is_all_bf16(&w->draw->test))
        b->weights = CLATTN_DTYPE_BF16; /* which cpu-bf16 rounds them to */
    b->by_sums = w->draw->way.mode == CLATTN_GROUP_MODE_RING;
    backward_judge(b);
}

void drawn_release(drawn *w)
{
    if (w->draw->backward)
        backward_release(&w->backward);
    else
        job_release(&w->forward);
}
