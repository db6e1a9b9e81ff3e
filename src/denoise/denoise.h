/* Non-local means on a device, tile by tile, over the public API: what `clattn denoise` and the plug-ins share.
 *
 *   out(p) = sum_k w_pk in(k) / sum_k w_pk,   w_pk = exp(−|P(p) − P(k)|² / h²),   h² = patch² strength² / 255²
 *
 * over the window of p, for each plane of colour alone (Buades, Coll, Morel 2005).  Grey has one plane.  Colours have
 * three, an orthonormal basis (brightness, two differences), so that noise stays as strong as it was in each; what is
 * similar in brightness need not be so in colour. */
#ifndef CLATTN_DENOISE_DENOISE_H
#define CLATTN_DENOISE_DENOISE_H

#include <clattn/clattn.h>

#define DENOISE_MOST_PATCH 15
#define DENOISE_MOST_RADIUS 64
#define DENOISE_LEAST_STRENGTH 0.001f
#define DENOISE_MOST_STRENGTH 255.0f

/* What a caller who has no wishes gets. */
#define DENOISE_STANDARD_PATCH 5
#define DENOISE_STANDARD_RADIUS 7
#define DENOISE_STANDARD_STRENGTH 10.0f
#define DENOISE_STANDARD_MEMORY ((size_t)256 << 20)

typedef struct denoise_params {
    size_t height, width;   /* the largest part that one call writes; tiles may be smaller */
    int colours;            /* 1: grey, 3: red, green and blue */
    cl_channel_type type;   /* of a component: CL_UNORM_INT8, CL_UNORM_INT16 or CL_FLOAT */
    size_t patch;           /* odd, at most DENOISE_MOST_PATCH */
    size_t radius;          /* 1 ... DENOISE_MOST_RADIUS: the window is 2 radius + 1 pixels high and wide */
    size_t memory;          /* bytes on the device at the most */
    const char *solver;     /* of the attention, or NULL; must live until denoiser_open returns */
    uint32_t max_launch_ms; /* as of a control (control.h); 0: kernels in one piece */
} denoise_params;

/* Plans and memory for tiles of one size.  A zeroed one is closed.  One call at a time uses it. */
typedef struct denoiser {
    clattn_context *context; /* borrowed, as the queue */
    cl_command_queue queue;
    denoise_params params;
    size_t margin;  /* around a tile in the image: radius and half a patch */
    size_t tile[2]; /* height and width of the largest tile */
    size_t memory;  /* bytes on the device for such a tile, as estimated */
    clattn_plan *pack, *attend, *unpack;
    clattn_control *control;
    cl_mem in, out, patches, norms, cleaned;
    cl_mem workspace;       /* the attention's, so that nobody's other work delays it; NULL: it needs none */
    unsigned char *staging; /* RGBA, as the images */
    char message[256];      /* of a failed OpenCL call of the denoiser's own; otherwise empty */
} denoiser;

/* Where pixels are in host memory.  A pixel begins with its colours; what follows them is neither read nor written. */
typedef struct denoise_pixels {
    void *data;       /* the first pixel */
    size_t step, row; /* bytes from a pixel to the next one, and from a row to the next */
} denoise_pixels;

/* One call: the pixels (y, x) ... (y + part_height − 1, x + part_width − 1) of `in`, cleaned, become those of `out`.
 *
 * `in` may be a part of a larger picture.  The result is then that of the whole picture if `in` reaches `margin` pixels
 * beyond the part on each side, or to the picture's edge.  Float components that are not finite count as 0, and others are
 * limited to ±65504. */
typedef struct denoise_work {
    denoise_pixels in, out;
    size_t height, width; /* of `in` */
    size_t y, x, part_height, part_width;
    float strength; /* levels of 255: patches whose root mean square difference is this weigh 1/e */
    void (*progress)(void *user, double done); /* NULL, or called after each tile with the fraction that is done */
    void *user;
    clattn_control *control; /* the caller's, for all tiles together; NULL: the denoiser's own */
} denoise_work;

/* The bytes on the device that the smallest tile takes. */
size_t denoise_least_memory(const denoise_params *params);

/* Compiles plans and makes buffers; what fails leaves a denoiser that denoiser_close accepts.  Blocks.  OUT_OF_MEMORY if
 * `memory` or the device's largest buffer is too small for a tile. */
clattn_status denoiser_open(denoiser *d, clattn_context *context, cl_command_queue queue, const denoise_params *params);
void denoiser_close(denoiser *d);

/* Does the work and blocks until it is done.  `in` and `out` must not overlap. */
clattn_status denoiser_run(denoiser *d, const denoise_work *work);

/* How many tiles such a part takes. */
size_t denoiser_tiles(const denoiser *d, size_t height, size_t width);

/* Writes why the last call on `d` failed, in one line. */
void denoiser_message(const denoiser *d, clattn_status status, char *text, size_t bytes);

/* Notes that an OpenCL call of the denoiser's own has failed, if it has. */
clattn_status denoiser_opencl_check(denoiser *d, const char *call, cl_int code);

#endif
