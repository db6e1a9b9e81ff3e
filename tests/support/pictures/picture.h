/* Arrays (batch, channels, height, width) in either order of memory. */
#ifndef TESTS_SUPPORT_PICTURES_PICTURE_H
#define TESTS_SUPPORT_PICTURES_PICTURE_H

#include "support/job.h"

/* As job_array of rank 4; with `channels_last` the form is that of (batch, height, width, channels). */
test_array job_picture(test_job *job, array_role role, clattn_dtype type, const size_t *extent, array_form form,
                       bool channels_last);

/* Sets one element, in the middle of the first channel, and all behind the first `batch` items to NaN, and uploads the array. */
void picture_inject(test_array *array, size_t batch);

#endif
