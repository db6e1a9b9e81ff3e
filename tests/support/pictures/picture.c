#include "support/pictures/picture.h"

#include <math.h>
#include <string.h>

test_array job_picture(test_job *job, array_role role, clattn_dtype type, const size_t *extent, array_form form,
                       bool channels_last)
{
    if (!channels_last)
        return job_array(job, role, type, 4, extent, form);
    test_array array = job_array(job, role, type, 4, (size_t[]){extent[0], extent[2], extent[3], extent[1]}, form);
    const int64_t *stride = array.layout.stride, permuted[4] = {stride[0], stride[3], stride[1], stride[2]};
    memcpy(array.layout.extent, extent, 4 * sizeof *extent);
    memcpy(array.layout.stride, permuted, sizeof permuted);
    return array;
}

void picture_inject(test_array *array, size_t batch)
{
    const size_t *extent = array->layout.extent;
    size_t index[4] = {0};
    do {
        const bool one = !index[0] && !index[1] && index[2] == extent[2] / 2 && index[3] == extent[3] / 2;
        if (one || index[0] >= batch)
            array_set(array, index, NAN);
    } while (array_next(4, extent, index));
    array_upload(array);
}
