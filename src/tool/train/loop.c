#include "tool/train/loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "tool/cli/os_tool.h"
#include "tool/cli/progress.h"

float train_rate(const train_rule *rule, size_t d_model, uint64_t step)
{
    const double now = (double)step, warmup = (double)rule->warmup, last = (double)rule->steps;
    const double warming = now / (warmup * sqrt(warmup)), peak = 1 / sqrt(warmup);
    double rate = fmin(1 / sqrt(now), warming);
    if (rule->schedule == TRAIN_SCHEDULE_COSINE && now > warmup)
        rate = peak * (1 + cos(acos(-1.0) * fmin((now - warmup) / fmax(last - warmup, 1), 1))) / 2;
    return (float)((double)rule->factor * rate / sqrt((double)d_model));
}

/* ---- files ---- */

static int draw(const train_run *r)
{
    model_path path;
    if (r->engine->world->rank > 0)
        return TOOL_DONE;
    if (!model_path_in(r->folder, "loss.svg", &path))
        return complain(TOOL_BAD_INPUT, "%s: the folder's name is too long", r->folder);
    return train_history_draw(r->history, path.text);
}

static int keep(const train_run *r)
{
    const int status = train_checkpoint_write(r->engine, r->history, r->folder);
    if (status == TOOL_DONE)
        draw(r); /* a picture that cannot be drawn is complained of, and training goes on */
    return status;
}

/* ---- steps ---- */

static void show(const train_run *r, double loss)
{
    char note[96];
    const train_rule *rule = r->rule;
    const double now = os_seconds(), all = rule->until - rule->started, step = (double)r->history->step;
    const double by_steps = step / (double)rule->steps, by_time = rule->until > 0 ? (now - rule->started) / all : 0;
    double left = r->seconds / fmax(step - (double)r->first_step, 1) * ((double)rule->steps - step);
    if (rule->until > 0)
        left = fmin(left, rule->until - now);
    snprintf(note, sizeof note, "loss %.3f, %.0f tokens/s, %.0f min left", loss,
             (double)r->tokens / fmax(r->seconds, 1e-9), ceil(fmax(left, 0) / 60));
    progress_note(note);
    progress_show(fmax(by_steps, by_time));
}

/* How many of `count` batches are this rank's: those whose number leaves its own when divided by how many ranks share them out. */
static size_t own_count(const train_run *r, size_t count)
{
    const size_t worker = world_worker(r->engine->world), workers = world_workers(r->engine->world);
    return count > worker ? (count - worker - 1) / workers + 1 : 0;
}

static bool is_own(const train_run *r, size_t batch)
{
    return batch % world_workers(r->engine->world) == world_worker(r->engine->world);
}

/* Makes a rank's losses those of all rows, added in their order, as each row's first rank has them: the same bits on all ranks, whose
 * devices may round differently. */
static int add_ranks(const train_run *r, train_losses *losses)
{
    tool_world *world = r->engine->world;
    const train_losses own = *losses;
    int status = TOOL_DONE;
    if (world->ranks < 2)
        return status;
    train_losses *all = calloc((size_t)world->ranks, sizeof *all);
    if (all == NULL)
        return complain(TOOL_FAILED, "train: no memory for the losses");
    TOOL_TRY(world_gather(world, &own, all, sizeof own));
    *losses = (train_losses){0};
    for (int32_t i = 0; i < world->ranks; i += world->columns) {
        losses->sum += all[i].sum;
        losses->labels += all[i].labels;
    }
fail:
    free(all);
    return status;
}

/* Complains of a loss that is no number.  All ranks have the same one, and the first tells: none need be ended by another. */
static int complain_of_loss(const train_run *r, const char *which, double loss)
{
    tool_world *world = r->engine->world;
    world->agreed = true;
    if (world->rank > 0)
        complain_no_more();
    return complain(TOOL_FAILED, "train: the %s of step %llu is %g; what is in %s, of before, stays", which,
                    (unsigned long long)r->history->step, loss, r->folder);
}

/* Adds a step, all of whose batches have been taken, to the history. */
static int end_step(train_run *r)
{
    train_history *h = r->history;
    train_losses losses = r->taken;
    const int status = add_ranks(r, &losses);
    if (status != TOOL_DONE)
        return status;
    const double loss = losses.sum / (double)losses.labels;
    r->taken = (train_losses){0};
    r->taken_batches = 0;
    h->step++;
    if (!isfinite(loss))
        return complain_of_loss(r, "loss", loss);
    if (!train_curve_add(&h->losses, (float)loss))
        return complain(TOOL_FAILED, "train: no memory for the losses");
    show(r, loss);
    return TOOL_DONE;
}

/* Waits for the oldest batch that is under way, and takes its losses. */
static int take_batch(train_run *r)
{
    train_losses losses;
    int status;
    TOOL_TRY(train_engine_collect(r->engine, &losses));
    r->taken.sum += losses.sum;
    r->taken.labels += losses.labels;
    if (++r->taken_batches == own_count(r, r->rule->parts))
        status = end_step(r);
fail:
    return status;
}

static uint64_t seed_of(const train_run *r, uint64_t position)
{
    return (r->rule->seed + 1) * 0x9e3779b97f4a7c15u + position;
}

/* Enqueues the rank's batches of a step and the update.  The losses of batches before are taken as their places are needed, so the
 * device always has a batch to compute. */
static int enqueue_step(train_run *r, uint64_t step)
{
    const train_rule *rule = r->rule;
    train_history *h = r->history;
    size_t labels = 0;
    int status = TOOL_DONE;
    for (size_t i = 0; i < rule->parts; i++)
        labels += train_batch_at(r->batches, h->position + i).labels;
    for (size_t i = 0; i < rule->parts; i++, h->position++) {
        const train_batch batch = train_batch_at(r->batches, h->position);
        const train_pass pass = {
            .accumulate = own_count(r, i) > 0, .scale = 1 / (float)labels, .seed = seed_of(r, h->position)};
        r->tokens += batch.tokens;
        if (!is_own(r, i))
            continue;
        if (r->engine->flying == TRAIN_FLIGHT)
            TOOL_TRY(take_batch(r));
        TOOL_TRY(train_engine_enqueue(r->engine, r->batches->items, &batch, &pass));
    }
    clattn_update_args update = CLATTN_UPDATE_ARGS_INIT;
    update.learning_rate = (double)train_rate(rule, r->engine->shape->d_model, step);
    update.beta2 = 0.98;
    update.epsilon = 1e-9;
    update.weight_decay = (double)rule->weight_decay;
    update.clip_norm = (double)rule->clip;
    update.step = (int64_t)step;
    status = train_engine_update(r->engine, &update);
fail:
    return status;
}

/* ---- validation ---- */

static int collect_into(train_run *r, train_losses *sum)
{
    train_losses part;
    const int status = train_engine_collect(r->engine, &part);
    if (status == TOOL_DONE) {
        sum->sum += part.sum;
        sum->labels += part.labels;
    }
    return status;
}

/* Sets r->check_loss to the mean loss of all labels of the validation's items. */
static int validate(train_run *r)
{
    const train_pass pass = {.evaluation = true};
    const double before = os_seconds() - r->engine->compiling;
    train_losses sum = {0};
    int status = TOOL_DONE;
    for (size_t i = 0; i < r->checks->count; i++) {
        const train_batch batch = train_batch_at(r->checks, i);
        if (!is_own(r, i))
            continue;
        TOOL_TRY(train_engine_enqueue(r->engine, r->checks->items, &batch, &pass));
        if (r->engine->flying == TRAIN_FLIGHT)
            TOOL_TRY(collect_into(r, &sum));
    }
    while (r->engine->flying > 0)
        TOOL_TRY(collect_into(r, &sum));
    TOOL_TRY(add_ranks(r, &sum));
    r->check_loss = sum.sum / (double)sum.labels;
    r->check_seconds = os_seconds() - r->engine->compiling - before;
    if (!isfinite(r->check_loss))
        status = complain_of_loss(r, "validation loss", r->check_loss);
fail:
    return status;
}

static void tell(const train_run *r)
{
    const train_history *h = r->history;
    progress_hide();
    printf("step %llu: loss %.4f", (unsigned long long)h->step, (double)h->losses.value[h->losses.count - 1]);
    if (r->checks->count > 0)
        printf(", validation %.4f", r->check_loss);
    printf(", %.0f tokens/s\n", (double)r->tokens / fmax(r->seconds, 1e-9));
    fflush(stdout);
}

/* Validates, and writes the model if it is the best so far.  `recorded`: the history learns of it. */
static int check_model(train_run *r, bool recorded)
{
    train_history *h = r->history;
    int status = TOOL_DONE;
    bool best = true;
    if (r->checks->count > 0) {
        TOOL_TRY(validate(r));
        best = h->best_step == 0 || r->check_loss < h->best;
        if (recorded) {
            h->since_best = best ? 0 : h->since_best + 1;
            if (best) {
                h->best_step = h->step;
                h->best = r->check_loss;
            }
            if (!train_curve_add(&h->checks, (float)h->step) || !train_curve_add(&h->checks, (float)r->check_loss))
                TOOL_TRY(complain(TOOL_FAILED, "train: no memory for the losses"));
        }
    }
    tell(r);
    if (best)
        status = train_model_write(r->engine, r->folder);
fail:
    return status;
}

/* ---- the loop ---- */

/* Why this rank would end after a step, plus 1; 0: it would not. */
static int32_t own_end(const train_run *r, uint64_t step)
{
    const train_rule *rule = r->rule;
    if (step >= rule->steps)
        return 1 + TRAIN_END_STEPS;
    if (os_interrupted() != 0)
        return 1 + TRAIN_END_SIGNAL;
    return rule->until > 0 && os_seconds() + r->check_seconds >= rule->until ? 1 + TRAIN_END_TIME : 0;
}

/* Whether training ends after a step: all ranks do what the first of them says that would end. */
static int find_end(train_run *r, uint64_t step, bool *over)
{
    tool_world *world = r->engine->world;
    const int32_t own = own_end(r, step);
    int status = TOOL_DONE;
    int32_t *ends = calloc((size_t)world->ranks, sizeof *ends);
    if (ends == NULL)
        return complain(TOOL_FAILED, "train: no memory for the ranks");
    TOOL_TRY(world_gather(world, &own, ends, sizeof own));
    *over = false;
    for (int32_t i = world->ranks; i-- > 0;)
        if (ends[i] > 0) {
            r->end = (train_end)(ends[i] - 1);
            *over = true;
        }
fail:
    free(ends);
    return status;
}

/* Runs steps until one is to be validated or training is over, and leaves nothing under way. */
static int run_steps(train_run *r, bool *over)
{
    const double began = os_seconds() - r->engine->compiling - r->seconds;
    uint64_t step = r->history->step;
    int status = TOOL_DONE;
    do {
        TOOL_TRY(enqueue_step(r, ++step));
        r->seconds = os_seconds() - r->engine->compiling - began;
        TOOL_TRY(find_end(r, step, over));
    } while (!*over && step % r->rule->every != 0);
    while (r->engine->flying > 0)
        TOOL_TRY(take_batch(r));
    r->seconds = os_seconds() - r->engine->compiling - began;
fail:
    return status;
}

/* The end: the checkpoint is that of an uninterrupted training at this step, so it does not know the last validation unless
 * the step is one that is validated anyway. */
static int finish(train_run *r, bool validated)
{
    int status;
    TOOL_TRY(keep(r));
    if (validated)
        return status;
    if (r->end != TRAIN_END_SIGNAL)
        status = check_model(r, false);
    else if (r->history->best_step == 0)
        status = train_model_write(r->engine, r->folder);
fail:
    return status;
}

int train_loop(train_run *r)
{
    train_history *h = r->history;
    bool over = h->step >= r->rule->steps, validated = false;
    int status = TOOL_DONE;
    r->check_loss = NAN;
    r->first_step = h->step;
    r->end = TRAIN_END_STEPS;
    os_defer_signals();
    progress_begin("training");
    if (r->rule->until > 0 && r->checks->count > 0) /* so that it is known how much time the last one needs */
        TOOL_TRY(validate(r));
    while (!over) {
        TOOL_TRY(run_steps(r, &over));
        validated = h->step % r->rule->every == 0;
        if (!validated)
            break;
        TOOL_TRY(check_model(r, true));
        if (!over && r->rule->patience > 0 && h->since_best >= r->rule->patience) {
            r->end = TRAIN_END_PATIENCE;
            over = true;
        }
        if (!over)
            TOOL_TRY(keep(r));
    }
    TOOL_TRY(finish(r, validated));
fail:
    progress_end();
    return status;
}
