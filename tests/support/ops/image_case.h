/* Images: cases of pack and unpack as table rows, and images that know what they hold. */
#ifndef TESTS_SUPPORT_OPS_IMAGE_CASE_H
#define TESTS_SUPPORT_OPS_IMAGE_CASE_H

#include "support/job.h"

/* A 2D image and a host copy of its bytes. */
typedef struct test_image {
    cl_mem memory;
    cl_image_format format;
    size_t width, height, component; /* pixels, and bytes of one component */
    int components;                  /* of a pixel: 1, 2 or 4 */
    size_t layers;                   /* 0: one image; else the last of so many */
    unsigned char *host;
} test_image;

/* Makes an image and fills it with every kind of value that its format has: with unorm all integers in turn, otherwise
 * numbers of either sign, infinities, NaN, subnormals.  `memory` is NULL if the driver has no images of CL_R or CL_RG, which
 * PoCL 3.1 has not; any other failure is the test's. */
test_image image_create(cl_mem_flags flags, cl_image_format format, size_t width, size_t height, size_t layers,
                        uint64_t salt);
void image_release(test_image *image);

/* Reads the image back into `host`; of an array, all images but the last are asserted to be as they were made. */
void image_download(test_image *image);

/* Returns the stored number of component c (0 red … 3 alpha) of a pixel before any division; 0 for a component that the
 * format lacks, and for alpha what stands for 1. */
double image_stored(const test_image *image, size_t x, size_t y, int c);

typedef struct image_case {
    const char *rule;
    unsigned levels;
    clattn_image_operation operation;
    cl_channel_type type;
    size_t image[2];  /* width, height */
    size_t region[2]; /* the description's width, height */
    int channels;
    int patch;              /* 0: 1 */
    cl_channel_order order; /* 0: CL_RGBA */
    clattn_dtype dtype;     /* 0: CLATTN_DTYPE_F32 */
    array_form form;
    size_t layers; /* 0: one image; else the last of an array of so many */
    int norm;      /* 0: none, 1: of the row, 2: of each component */
    bool srgb, premultiplied;
    bool own_workspace; /* the caller brings the workspace, around which nothing may change */
    bool transform;     /* colours are multiplied by the matrix of image_case.c */
    bool finite;        /* unpack small numbers only */
    int origin[2];      /* x, y */
    bool explicit_region;
    size_t actual[2]; /* with explicit_region: width, height */
} image_case;

#define IMAGE_SOLVERS 2
extern const char *const image_solvers[IMAGE_SOLVERS];

void image_check(const void *test, const char *solver);

#endif
