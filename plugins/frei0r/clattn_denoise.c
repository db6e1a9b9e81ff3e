/* A frei0r filter: non-local means of each frame, as `clattn denoise` does it.
 *
 * All instances of a process share one clattn context, which the first one makes; a program that only lists plug-ins starts
 * no OpenCL driver.  frei0r has no way to report errors: the program goes to stderr, in one line, and the frame through as it
 * is. */
#include <frei0r.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/os_threads.h"
#include "denoise/denoise.h"

enum { STRENGTH, PATCH, RADIUS, PARAMS };

static const f0r_param_info_t parameters[PARAMS] = {
    [STRENGTH] =
        {"strength", F0R_PARAM_DOUBLE,
         "how much patches may differ, about the noise's standard deviation, as a fraction of white (levels / 255)"},
    [PATCH] = {"patch", F0R_PARAM_DOUBLE, "compare P x P pixels: P / 15, taken for the nearest odd P"},
    [RADIUS] = {"radius", F0R_PARAM_DOUBLE, "look R pixels around: R / 64"},
};
static const double defaults[PARAMS] = {[STRENGTH] = 10.0 / 255, [PATCH] = 5.0 / 15, [RADIUS] = 7.0 / 64};

typedef struct instance {
    size_t width, height;
    double values[PARAMS]; /* 0 ... 1 */
    denoiser cleaner;      /* for the patch and radius of its params; closed until the first frame */
    clattn_status opened;  /* what opening it gave */
    bool complained;       /* about this denoiser */
} instance;

static struct {
    mtx_t lock; /* guards the members below */
    int users;  /* calls of f0r_init without their f0r_deinit */
    clattn_context *context;
} shared = {.lock = MTX_INIT};

/* Errors are written where they are met. */
static void write_log(void *user, clattn_log_level level, const char *line)
{
    (void)user;
    if (level != CLATTN_LOG_LEVEL_ERROR)
        fprintf(stderr, "clattn_denoise: %s\n", line);
}

int f0r_init(void)
{
    mtx_lock(&shared.lock);
    shared.users++;
    mtx_unlock(&shared.lock);
    return 1;
}

void f0r_deinit(void)
{
    mtx_lock(&shared.lock);
    if (shared.users > 0 && --shared.users == 0)
        clattn_context_release(&shared.context);
    mtx_unlock(&shared.lock);
}

void f0r_get_plugin_info(f0r_plugin_info_t *info)
{
    *info = (f0r_plugin_info_t){.name = "clattn_denoise",
                                .author = "clattn",
                                .plugin_type = F0R_PLUGIN_TYPE_FILTER,
                                .color_model = F0R_COLOR_MODEL_RGBA8888,
                                .frei0r_version = FREI0R_MAJOR_VERSION,
                                .major_version = 0,
                                .minor_version = 1,
                                .num_params = PARAMS,
                                .explanation =
                                    "Non-local means on any OpenCL device: every pixel becomes the mean of those "
                                    "around it whose patches are alike"};
}

void f0r_get_param_info(f0r_param_info_t *info, int index)
{
    if (index >= 0 && index < PARAMS)
        *info = parameters[index];
}

/* The process's context, made if there is none; NULL if there is no device, and the reason has been written. */
static clattn_context *find_context(void)
{
    mtx_lock(&shared.lock);
    if (shared.context == NULL) {
        clattn_context_params params = CLATTN_CONTEXT_PARAMS_INIT;
        char text[512];
        params.log = write_log;
        if (clattn_context_create(&params, &shared.context) != CLATTN_SUCCESS) {
            clattn_context_message(NULL, text, sizeof text);
            fprintf(stderr, "clattn_denoise: %s\n", text);
        }
    }
    clattn_context *context = shared.context;
    mtx_unlock(&shared.lock);
    return context;
}

f0r_instance_t f0r_construct(unsigned int width, unsigned int height)
{
    if (width == 0 || height == 0 || find_context() == NULL)
        return NULL;
    instance *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->width = width;
    made->height = height;
    memcpy(made->values, defaults, sizeof defaults);
    return made;
}

void f0r_destruct(f0r_instance_t given)
{
    instance *self = given;
    if (self == NULL)
        return;
    denoiser_close(&self->cleaner);
    free(self);
}

void f0r_set_param_value(f0r_instance_t given, f0r_param_t param, int index)
{
    instance *self = given;
    if (index < 0 || index >= PARAMS)
        return;
    const double value = *(const double *)param;
    self->values[index] = isnan(value) ? defaults[index] : fmin(fmax(value, 0), 1);
}

void f0r_get_param_value(f0r_instance_t given, f0r_param_t param, int index)
{
    const instance *self = given;
    if (index >= 0 && index < PARAMS)
        *(double *)param = self->values[index];
}

/* Makes plans for the patch and radius that are set, unless the denoiser has them. */
static clattn_status prepare(instance *self)
{
    const size_t half = (size_t)(self->values[PATCH] * DENOISE_MOST_PATCH / 2 + 1e-6);
    const size_t radius = (size_t)fmax(round(self->values[RADIUS] * DENOISE_MOST_RADIUS), 1);
    const denoise_params params = {.height = self->height,
                                   .width = self->width,
                                   .colours = 3,
                                   .type = CL_UNORM_INT8,
                                   .patch = 2 * half + 1,
                                   .radius = radius,
                                   .memory = DENOISE_STANDARD_MEMORY};
    denoiser *d = &self->cleaner;
    if (d->context != NULL && d->params.patch == params.patch && d->params.radius == params.radius)
        return self->opened;
    clattn_context *context = find_context(); /* there is one since f0r_construct */
    denoiser_close(d);
    self->complained = false;
    self->opened = denoiser_open(d, context, clattn_context_queue(context), &params);
    return self->opened;
}

void f0r_update(f0r_instance_t given, double time, const uint32_t *from, uint32_t *to)
{
    (void)time;
    instance *self = given;
    const size_t row = self->width * 4;
    const double strength = self->values[STRENGTH] * 255;
    memcpy(to, from, self->height * row); /* alpha */
    if (strength < (double)DENOISE_LEAST_STRENGTH)
        return;
    /* `in` is only read. */
    const denoise_work work = {.in = {(void *)(uintptr_t)from, 4, row},
                               .out = {to, 4, row},
                               .height = self->height,
                               .width = self->width,
                               .part_height = self->height,
                               .part_width = self->width,
                               .strength = (float)strength};
    clattn_status status = prepare(self);
    if (status == CLATTN_SUCCESS)
        status = denoiser_run(&self->cleaner, &work);
    if (status == CLATTN_SUCCESS)
        return;
    memcpy(to, from, self->height * row); /* some tiles may be done */
    if (self->complained)
        return;
    char text[512];
    denoiser_message(&self->cleaner, status, text, sizeof text);
    fprintf(stderr, "clattn_denoise: %s; frames stay as they are\n", text);
    self->complained = true;
}
