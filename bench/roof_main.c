/* Prints the machine's roofs as one JSON line: float32 FMA, memory read and copy.  roof [SECONDS [THREADS]] */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "roof.h"

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0.3;
    long threads = argc > 2 ? atol(argv[2]) : sysconf(_SC_NPROCESSORS_ONLN);
    if (seconds <= 0 || seconds > 60 || threads < 1 || threads > 1024) {
        fprintf(stderr, "usage: roof [SECONDS [THREADS]]\n");
        return 2;
    }
    printf("{\"threads\": %ld, \"fma_gflops\": %.1f, \"read_gbytes_per_s\": %.2f, \"copy_gbytes_per_s\": %.2f}\n",
           threads, roof_fma_gflops((int)threads, seconds), roof_read_gbps((int)threads, seconds),
           roof_copy_gbps((int)threads, seconds));
    return 0;
}
