/* A program that reads and writes files, and knows libclattn-io alone.  Exits with 0 if an array is read as it was written, and a
 * file that is not there is told. */
#include <stdio.h>
#include <string.h>

#include <clattn/io.h>

int main(int argc, char **argv)
{
    static const float written[2][3] = {{1, 2, 3}, {4, 5, 6}};
    clattn_io_error error = {""};
    clattn_npy *npy = NULL;
    if (argc != 2 || clattn_npy_create("there/is/none.npy", &npy, &error) != CLATTN_ERROR_IO)
        return 1;
    puts(error.message);
    if (clattn_npy_write(argv[1], CLATTN_DTYPE_F32, 2, (const size_t[]){2, 3}, written, &error) ||
        clattn_npy_create(argv[1], &npy, &error))
        return 1;
    clattn_host_tensor read = clattn_npy_tensor(npy);
    int same = read.rank == 2 && read.extent[1] == 3 && read.bytes == sizeof written &&
               memcmp(read.data, written, sizeof written) == 0;
    clattn_npy_release(&npy);
    return !same;
}
