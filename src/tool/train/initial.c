#include "tool/train/initial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "io/common.h"

#define TAU 6.28318530717958647692

static bool ends_with(const char *name, const char *end)
{
    const size_t bytes = strlen(name), own = strlen(end);
    return bytes >= own && strcmp(name + bytes - own, end) == 0;
}

/* The extents of the tensor called `name`; a vector has no columns. */
static void extents_of(const text_shape *shape, const char *name, size_t *rows, size_t *columns)
{
    const bool bias = ends_with(name, ".bias");
    *rows = shape->d_model;
    *columns = bias || ends_with(name, "norm.weight") ? 0 : shape->d_model;
    if (ends_with(name, ".tokens.weight"))
        *rows = shape->vocabulary;
    else if (strstr(name, ".feed_forward.in.") != NULL)
        *rows = shape->d_ff;
    else if (strstr(name, ".feed_forward.out.") != NULL && !bias)
        *columns = shape->d_ff;
}

/* A uniform number in (0, 1). */
static double uniform(uint32_t word)
{
    return ((double)word + 0.5) / 4294967296.0;
}

/* Fills `values` four by four.  Each name has numbers of its own. */
static void fill(const train_initial *initial, const char *name, size_t count, double deviation, double limit,
                 float *values)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (size_t i = 0; i < count; i += 4) {
        uint32_t word[4] = {(uint32_t)i, (uint32_t)(i >> 16 >> 16), hash, 0x696e6974u};
        philox(word, initial->seed);
        for (size_t j = 0; j < 4 && i + j < count; j++) {
            const double u = uniform(word[j]), pair = uniform(word[j ^ 1]);
            if (deviation == 0)
                values[i + j] = (float)(limit * (2 * u - 1));
            else if (j % 2 == 0) /* Box and Muller's two of a pair of uniform numbers */
                values[i + j] = (float)(deviation * sqrt(-2 * log(u)) * cos(TAU * pair));
            else
                values[i + j] = (float)(deviation * sqrt(-2 * log(pair)) * sin(TAU * u));
        }
    }
}

clattn_status train_initial_lookup(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    train_initial *initial = user;
    size_t rows, columns;
    extents_of(initial->shape, name, &rows, &columns);
    const size_t count = rows * (columns > 0 ? columns : 1);
    *tensor = (clattn_host_tensor){0};
    free(initial->memory);
    initial->memory = calloc(count, sizeof *initial->memory);
    if (initial->memory == NULL)
        return io_fail(error, CLATTN_ERROR_OUT_OF_MEMORY, name, "no memory for its first values");
    if (ends_with(name, ".tokens.weight"))
        fill(initial, name, count, 1 / sqrt((double)columns), 0, initial->memory);
    else if (columns > 0)
        fill(initial, name, count, 0, sqrt(6 / (double)(rows + columns)), initial->memory);
    else if (ends_with(name, ".weight"))
        for (size_t i = 0; i < count; i++)
            initial->memory[i] = 1;
    *tensor = (clattn_host_tensor){.dtype = CLATTN_DTYPE_F32,
                                   .rank = columns > 0 ? 2 : 1,
                                   .extent = {rows, columns},
                                   .bytes = count * sizeof(float),
                                   .data = initial->memory};
    return CLATTN_SUCCESS;
}
