#include "tool/train/parts.h"

#include <stdlib.h>
#include <string.h>

/* Where a part lies in its tensor, which has one column or more: what a rank sends before its numbers. */
typedef struct part {
    uint64_t first[2], count[2], columns; /* rows and columns; columns of the whole tensor */
} part;

static part part_of(const clattn_parameter *p)
{
    const bool matrix = p->layout.rank > 1;
    return (part){.first = {p->first[0], matrix ? p->first[1] : 0},
                  .count = {p->layout.extent[0], matrix ? p->layout.extent[1] : 1},
                  .columns = matrix ? p->whole[1] : 1};
}

bool train_is_part(const clattn_parameter *p)
{
    return memcmp(p->whole, p->layout.extent, (size_t)p->layout.rank * sizeof *p->whole) != 0;
}

size_t train_part_count(const clattn_parameter *p)
{
    size_t count = 1;
    for (int32_t i = 0; i < p->layout.rank; i++)
        count *= p->layout.extent[i];
    return count;
}

size_t train_whole_count(const train_engine *e)
{
    size_t all = 0;
    for (size_t i = 0; i < clattn_trainer_parameter_count(e->trainer); i++) {
        clattn_parameter p = CLATTN_PARAMETER_INIT;
        size_t count = clattn_trainer_parameter(e->trainer, i, &p) == CLATTN_SUCCESS;
        for (int32_t k = 0; k < p.layout.rank; k++)
            count *= p.whole[k];
        all += count;
    }
    return all;
}

void train_part_cut(const clattn_parameter *p, const float *whole, float *numbers)
{
    const part at = part_of(p);
    for (uint64_t row = 0; row < at.count[0]; row++)
        memcpy(numbers + row * at.count[1], whole + (at.first[0] + row) * at.columns + at.first[1],
               at.count[1] * sizeof *numbers);
}

static void put(const part *at, const float *numbers, float *whole)
{
    for (uint64_t row = 0; row < at->count[0]; row++)
        memcpy(whole + (at->first[0] + row) * at->columns + at->first[1], numbers + row * at->count[1],
               at->count[1] * sizeof *numbers);
}

static int receive(const train_engine *e, int32_t from, float *whole)
{
    part its;
    float *numbers = NULL;
    int status;
    TOOL_TRY(world_exchange(e->world, from, NULL, 0, from, &its, sizeof its));
    numbers = malloc(its.count[0] * its.count[1] * sizeof *numbers);
    if (numbers == NULL)
        return complain(TOOL_FAILED, "train: no memory for the parameters");
    TOOL_TRY(world_exchange(e->world, from, NULL, 0, from, numbers, its.count[0] * its.count[1] * sizeof *numbers));
    put(&its, numbers, whole);
fail:
    free(numbers);
    return status;
}

int train_parts_collect(const train_engine *e, const clattn_parameter *p, const float *numbers, float *whole)
{
    const part own = part_of(p);
    int status = TOOL_DONE;
    if (e->world->rank > 0) {
        TOOL_TRY(world_exchange(e->world, 0, &own, sizeof own, 0, NULL, 0));
        return world_exchange(e->world, 0, numbers, train_part_count(p) * sizeof *numbers, 0, NULL, 0);
    }
    put(&own, numbers, whole);
    for (int32_t i = 1; i < e->world->columns; i++)
        TOOL_TRY(receive(e, i, whole));
fail:
    return status;
}
