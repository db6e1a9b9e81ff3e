#include "tool/embed_image/results.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tool/cli/json_text.h"

static int out_of_memory(void)
{
    return complain(TOOL_FAILED, "embed-image: out of memory for the results");
}

static int append_vector(json_t *array, const float *vector, size_t size)
{
    json_t *numbers = json_array();
    bool added = numbers != NULL;
    for (size_t i = 0; added && i < size; i++)
        added = json_array_append_new(numbers, json_real((double)vector[i])) == 0;
    added = json_array_append_new(array, numbers) == 0 && added;
    return added ? TOOL_DONE : out_of_memory();
}

int results_vectors(const image_results *r, json_t *array)
{
    int status = TOOL_DONE;
    for (size_t i = 0; i < r->count && status == TOOL_DONE; i++) {
        const float *vector = r->vectors + i * r->size;
        if (array != NULL) {
            status = append_vector(array, vector, r->size);
            continue;
        }
        for (size_t k = 0; k < r->size; k++)
            printf(k == 0 ? "%.9g" : " %.9g", (double)vector[k]);
        putchar('\n');
    }
    return status;
}

typedef struct match {
    double score;
    size_t place;
} match;

static int nearer_first(const void *left, const void *right)
{
    const match *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->place > b->place ? 1 : -1;
}

/* Sorts the pictures that could be read; returns how many these are. */
static size_t rank(const image_results *r, match *matches)
{
    size_t count = 0;
    for (size_t i = r->given; i < r->count; i++) {
        const float *vector = r->vectors + i * r->size;
        double score = 0.0;
        for (size_t k = 0; k < r->size; k++)
            score += (double)r->vectors[k] * (double)vector[k];
        if (!isnan(vector[0])) /* as those left out are */
            matches[count++] = (match){score, i};
    }
    qsort(matches, count, sizeof *matches, nearer_first);
    return count;
}

int results_matches(const image_results *r, const char *folder, size_t top, json_t *array)
{
    match *matches = malloc((r->count + 1) * sizeof *matches);
    int status = TOOL_DONE;
    if (matches == NULL)
        return out_of_memory();
    size_t count = rank(r, matches);
    if (count == 0)
        status = complain(TOOL_BAD_INPUT, "%s: none of its %zu pictures can be read: %s", folder, r->count - r->given,
                          r->left_out->first);
    count = top != 0 && top < count ? top : count;
    for (size_t i = 0; i < count && status == TOOL_DONE; i++) {
        const char *path = r->paths[matches[i].place];
        if (array == NULL)
            printf("%.6f\t%s\n", matches[i].score, path);
        else if (json_array_append_new(
                     array, json_pack("{s:f, s:o}", "score", matches[i].score, "picture", json_text(path))) != 0)
            status = out_of_memory();
    }
    free(matches);
    return status;
}
