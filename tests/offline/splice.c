/* splice IN OUT: changes the PTX of a kernel with wgmma as the library does before the driver compiles it. */
#include <stdio.h>
#include <stdlib.h>

#include "program/ptx_splice.h"

static void quit(const char *what, const char *file)
{
    fprintf(stderr, "splice: %s: %s\n", file, what);
    exit(1);
}

int main(int argc, char **argv)
{
    static char text[1 << 24];
    struct strbuf spliced = {0};

    if (argc != 3)
        quit("usage: splice IN OUT", argc ? argv[0] : "splice");
    FILE *in = fopen(argv[1], "rb");
    if (!in)
        quit("cannot be read", argv[1]);
    size_t bytes = fread(text, 1, sizeof text, in);
    if (bytes == sizeof text || ferror(in) || fclose(in))
        quit("cannot be read whole", argv[1]);
    const char *reason = ptx_splice(text, bytes, &spliced);
    if (reason || spliced.failed)
        quit(reason ? reason : "no memory", argv[1]);
    FILE *out = fopen(argv[2], "wb");
    if (!out || fwrite(spliced.text, 1, spliced.length, out) != spliced.length || fclose(out))
        quit("cannot be written", argv[2]);
    strbuf_clear(&spliced);
    return 0;
}
