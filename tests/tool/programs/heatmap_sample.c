/* Writes a heat map to FILE that no command makes yet: two parts, with layers, labels and times. */
#include <math.h>

#include "tool/heatmap/heatmap.h"

enum { WORDS = 5, TIMES = 40, LAYERS = 2, HEADS = 3 };

static float self[LAYERS][HEADS][WORDS][WORDS], cross[HEADS][WORDS][TIMES];

static float probability(int part, int layer, int head, int query, int key)
{
    return (float)((7 * part + 5 * layer + 3 * head + 11 * query + 13 * key) % 17) / 64.0f;
}

int main(int argc, char **argv)
{
    static const char *const words[WORDS] = {"to", "be", "</script><script>document.title='run'</script>", "\xff\xfe",
                                             ""};
    for (int head = 0; head < HEADS; head++)
        for (int i = 0; i < WORDS; i++) {
            for (int j = 0; j < WORDS; j++)
                for (int layer = 0; layer < LAYERS; layer++)
                    self[layer][head][i][j] = probability(0, layer, head, i, j);
            for (int j = 0; j < TIMES; j++)
                cross[head][i][j] = probability(1, 0, head, i, j);
        }
    cross[2][1][4] = NAN;
    const heatmap_axis word = {.name = "word", .count = WORDS, .labels = words};
    const heatmap_axis time = {.name = "time", .count = TIMES, .first = 0.5, .step = 0.02, .unit = " s"};
    const heatmap_part parts[2] = {
        {.name = "self",
         .layer_name = "layer",
         .layers = LAYERS,
         .heads = HEADS,
         .query = word,
         .key = word,
         .values = &self[0][0][0][0]},
        {.name = "cross",
         .layer_name = "layer",
         .layers = 1,
         .heads = HEADS,
         .query = word,
         .key = time,
         .values = &cross[0][0][0]},
    };
    const heatmap map = {"A sample <b>of two parts</b>", 2, parts};
    int status = argc == 2 ? heatmap_check(&map, argv[1]) : 2;
    return status == 0 ? heatmap_store(&map, argv[1]) : status;
}
