/* What the image kernels are told, shared by the host and OpenCL C; lib/array.h has the rules. */
#ifndef CLATTN_CL_IMAGE_ARGS_H
#define CLATTN_CL_IMAGE_ARGS_H

#include "lib/array.h"

typedef struct image_args {
    launch_part part;
    args_long array_offset, array_row, array_col, array_channel; /* element (y, x, c) */
    args_long norm_offset, norm_row, norm_col, norm_channel;
    args_long raw_offset; /* bytes; it and the next eight are for CPUs, cpu.cl says what they are */
    int raw_x, raw_y, raw_width, raw_height;
    int components;         /* of a pixel of the image: 1, 2 or 4 */
    int component;          /* the bytes of each: 1, 2 or 4 */
    int blue_first;         /* 1: CL_BGRA */
    int layer;              /* of an array of images, for the host */
    int batch;              /* 0: nothing to do, return at once */
    int width, height;      /* of the region */
    int origin_x, origin_y; /* its first pixel in the image */
    int image_width, image_height;
    int channels;  /* 1 ... 4 */
    int patch;     /* odd; 1: the pixel alone */
    int store;     /* how unpack rounds: IMAGE_STORE_* */
    int transform; /* 1: colours are multiplied by the matrix */
    float levels;  /* with IMAGE_STORE_UNORM: 255 or 65535 */
    float norm_factor;
    float matrix[12]; /* three rows of four */
    int reserved;
} image_args;

#define IMAGE_STORE_FLOAT 0
#define IMAGE_STORE_HALF 1
#define IMAGE_STORE_UNORM 2

#endif
