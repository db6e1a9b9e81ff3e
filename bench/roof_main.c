/* Prints the machine's roofs as one JSON line: float32 FMA, bfloat16 if the processor has it, memory read in order and
 * at several places at once, and memory copied. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "roof.h"

#define BLOCK 1048576L

static int usage(void)
{
    fprintf(stderr,
            "usage: roof [--only ROOF[,ROOF...]] [SECONDS [THREADS [STREAMS [PIECE]]]]\n"
            "ROOF: fma, bf16, read, streams or copy; all if not given\n"
            "SECONDS for each, 0.3 if not given; THREADS: the processors, if not given\n"
            "STREAMS that each thread reads at once, a power of two, 1 to 64, 2 if not given\n"
            "PIECE bytes of each in turn, a power of two, 128 to 1048576 / STREAMS, 131072 or the most if not given\n");
    return 2;
}

static bool is_power(long x)
{
    return x > 0 && !(x & (x - 1));
}

/* Whether `name` is one of the words in `only`, which commas separate; NULL has all words. */
static bool is_wanted(const char *only, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = only; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return !only;
}

static bool are_roofs(const char *only)
{
    for (; *only; only += *only == ',') {
        const size_t length = strcspn(only, ",");
        char name[8] = "";
        memcpy(name, only, length < sizeof name ? length : 0);
        if (!*name || !is_wanted("fma,bf16,read,streams,copy", name))
            return false;
        only += length;
    }
    return true;
}

int main(int argc, char **argv)
{
    const char *only = NULL;

    if (argc > 1 && strcmp(argv[1], "--only") == 0) {
        if (argc < 3 || !*argv[2] || !are_roofs(argv[2]))
            return usage();
        only = argv[2];
        argc -= 2;
        argv += 2;
    }
    double seconds = argc > 1 ? atof(argv[1]) : 0.3;
    long threads = argc > 2 ? atol(argv[2]) : sysconf(_SC_NPROCESSORS_ONLN);
    long streams = argc > 3 ? atol(argv[3]) : 2;
    if (argc > 5 || !(seconds > 0 && seconds <= 60) || threads < 1 || threads > 1024 || !is_power(streams) ||
        streams > 64)
        return usage();
    long most = BLOCK / streams, piece = argc > 4 ? atol(argv[4]) : most < 131072 ? most : 131072;
    if (!is_power(piece) || piece < 128 || piece > most)
        return usage();

    int count = (int)threads;
    printf("{\"threads\": %d", count);
    if (is_wanted(only, "fma"))
        printf(", \"fma_gflops\": %.1f", roof_fma_gflops(count, seconds));
    double bf16 = is_wanted(only, "bf16") ? roof_bf16_gflops(count, seconds) : 0;
    if (bf16 > 0)
        printf(", \"bf16_gflops\": %.1f", bf16);
    if (is_wanted(only, "read"))
        printf(", \"read_gbytes_per_s\": %.2f", roof_read_gbps(count, seconds));
    if (is_wanted(only, "streams"))
        printf(", \"streams\": %ld, \"piece_bytes\": %ld, \"streams_gbytes_per_s\": %.2f", streams, piece,
               roof_streams_gbps(count, seconds, (size_t)streams, (size_t)piece));
    if (is_wanted(only, "copy"))
        printf(", \"copy_gbytes_per_s\": %.2f", roof_copy_gbps(count, seconds));
    printf("}\n");
    return 0;
}
