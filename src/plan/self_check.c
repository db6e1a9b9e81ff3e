#include "plan/self_check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "base/size.h"
#include "base/try.h"
#include "plan/enqueue.h"
#include "plan/operator.h"

clattn_status check_array_room(clattn_context *context, const clattn_layout *layout, struct check_array *array)
{
    int64_t lowest, highest;
    array->elements = layout_reach(layout, layout->extent, 0, &lowest, &highest) ? (size_t)highest + 1 : 1;
    array->bytes = divide_up(array->elements * clattn_dtype_bits(layout->dtype), 8);
    array->host = calloc(1, array->bytes + 8);
    if (!array->host)
        return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
    return CLATTN_SUCCESS;
}

uint32_t check_random(uint32_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    return *random;
}

/* Writes one random number, composed of bits so that nothing is rounded. */
static void put(void *data, clattn_dtype dtype, size_t i, bool excludes, uint32_t *random)
{
    uint32_t bits = check_random(random), sign = bits >> 31, exponent = bits >> 20 & 3, word;
    bool excluded = excludes && bits % 5 == 0;
    float value = ldexpf(1.0f + (float)(bits & 127) / 128, (int)exponent - 4) * (sign ? -1.0f : 1.0f);
    if (excluded)
        value = -INFINITY;
    memcpy(&word, &value, sizeof word);
    switch (dtype) {
    case CLATTN_DTYPE_F64: ((double *)data)[i] = value; break;
    case CLATTN_DTYPE_BF16: ((uint16_t *)data)[i] = (uint16_t)(word >> 16); break;
    case CLATTN_DTYPE_F16:
        ((uint16_t *)data)[i] =
            (uint16_t)(excluded ? 0xfc00 : sign << 15 | (exponent - 4 + 15) << 10 | (bits & 127) << 3);
        break;
    default: ((float *)data)[i] = value;
    }
}

void check_array_fill(struct check_array *array, clattn_dtype dtype, bool excludes, uint32_t *random)
{
    for (size_t i = 0; i < array->elements; i++) {
        if (dtype == CLATTN_DTYPE_BOOL)
            ((uint8_t *)array->host)[i] = check_random(random) % 4 != 0;
        else if (dtype == CLATTN_DTYPE_I8)
            ((int8_t *)array->host)[i] = (int8_t)(check_random(random) >> 8);
        else if (dtype != CLATTN_DTYPE_I4)
            put(array->host, dtype, i, excludes, random);
        else if (i % 2 == 0)
            ((uint8_t *)array->host)[i / 2] = (uint8_t)(check_random(random) >> 8);
    }
}

void check_put_integer(void *data, clattn_dtype dtype, int64_t at, int64_t value)
{
    if (dtype == CLATTN_DTYPE_I64)
        ((int64_t *)data)[at] = value;
    else
        ((int32_t *)data)[at] = (int32_t)value;
}

void check_array_count(struct check_array *array, clattn_dtype dtype, int64_t step, int64_t first, int64_t below)
{
    for (int64_t i = 0; i < (int64_t)array->elements; i++)
        check_put_integer(array->host, dtype, i, (step * i + first) % below);
}

clattn_status check_array_upload(clattn_context *context, struct check_array *array)
{
    cl_int code;
    array->buffer = context->device.cl.clCreateBuffer(context->device.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                                      array->bytes, array->host, &code);
    if (!array->buffer)
        return report_opencl(&context->device.report, "clCreateBuffer", code);
    *array->place.binding = clattn_binding_buffer(array->buffer, 0);
    return CLATTN_SUCCESS;
}

clattn_status check_array_read(clattn_context *context, struct check_array *array)
{
    clattn_status status = CLATTN_SUCCESS;
    TRY_CL(&context->device.report, "a self-check's clEnqueueReadBuffer",
           context->device.cl.clEnqueueReadBuffer(context->warm_queue, array->buffer, CL_TRUE, 0, array->bytes,
                                                  array->host, 0, NULL, NULL));
fail:
    return status;
}

void check_array_clear(clattn_context *context, struct check_array *array)
{
    free(array->host);
    free(array->before);
    if (array->buffer)
        context->device.cl.clReleaseMemObject(array->buffer);
    memset(array, 0, sizeof *array);
}

clattn_status check_begin(clattn_context *context)
{
    report_hold();
    mtx_lock(&context->warm_lock);
    return context_warm_objects(context);
}

clattn_status check_arrays_make(clattn_context *context, const struct check_place *places, size_t count,
                                struct check_array *arrays)
{
    clattn_status status = CLATTN_SUCCESS;
    uint32_t random = CHECK_SEED;
    for (size_t i = 0; i < count; i++) {
        arrays[i].place = places[i];
        if (layout_is_none(places[i].layout))
            continue;
        TRY(check_array_room(context, places[i].layout, &arrays[i]));
        if (places[i].contents != CHECK_ZEROS)
            check_array_fill(&arrays[i], places[i].layout->dtype, places[i].contents == CHECK_EXCLUDES, &random);
    }
fail:
    return status;
}

clattn_status check_arrays_upload(clattn_context *context, struct check_array *arrays, size_t count)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (arrays[i].host)
            TRY(check_array_upload(context, &arrays[i]));
fail:
    return status;
}

clattn_status check_arrays_read(clattn_context *context, struct check_array *arrays, size_t count)
{
    clattn_status status = CLATTN_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (arrays[i].buffer)
            TRY(check_array_read(context, &arrays[i]));
fail:
    return status;
}

clattn_status check_end(const clattn_plan *plan, struct check_array *arrays, size_t count, clattn_status status)
{
    clattn_context *context = plan->context;
    if (status == CLATTN_SUCCESS)
        status = plan_forget_arrays(plan);
    mtx_unlock(&context->warm_lock);
    report_deliver();
    for (size_t i = 0; i < count; i++)
        check_array_clear(context, &arrays[i]);
    return status;
}

clattn_status check_describe(const clattn_plan *plan, const void *desc, void *small)
{
    const char *reason;
    clattn_status status = plan->type->read(desc, small, &reason);
    return status == CLATTN_SUCCESS
               ? CLATTN_SUCCESS
               : report_error(&plan->context->device.report, CLATTN_ERROR_INTERNAL, "self-check: %s", reason);
}

clattn_status check_enqueue(const clattn_plan *plan, const void *small, size_t workspace, const void *args)
{
    const struct enqueue_call call = {.problem = small, .workspace = workspace, .queue = plan->context->warm_queue};
    return plan->type->enqueue(plan, &call, args);
}

/* Copies what the outputs hold before the run. */
static clattn_status keep_outputs(clattn_context *context, struct check_array *outputs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!outputs[i].host)
            continue;
        outputs[i].before = malloc(outputs[i].bytes);
        if (!outputs[i].before)
            return report_error(&context->device.report, CLATTN_ERROR_OUT_OF_MEMORY, "no memory for a self-check");
        memcpy(outputs[i].before, outputs[i].host, outputs[i].bytes);
    }
    return CLATTN_SUCCESS;
}

clattn_status check_run(const clattn_plan *plan, const struct check_course *course, const void *desc, void *small,
                        const void *args)
{
    clattn_status status;
    clattn_context *context = plan->context;
    struct check check = {.plan = plan, .problem = small, .report = &context->device.report};
    struct check_array *outputs = check.arrays + course->output;
    check.kernel = plan->kernel_count ? plan->kernels[plan->kernel_count - 1].name : plan->type->name;
    TRY(check_begin(context));
    TRY(check_describe(plan, desc, small));
    TRY(check_arrays_make(context, course->places, course->count, check.arrays));
    if (course->fill)
        course->fill(&check);
    TRY(keep_outputs(context, outputs, course->count - course->output));
    TRY(check_arrays_upload(context, check.arrays, course->count));
    TRY(check_enqueue(plan, small, course->workspace, args));
    TRY(check_arrays_read(context, outputs, course->count - course->output));
    status = course->judge(&check);
fail:
    return check_end(plan, check.arrays, course->count, status);
}

/* Whether a result agrees with the exact one: both NaN, the same infinity, or within `slack`. */
static bool agrees(double value, double exact, double slack)
{
    if (isnan(exact) || isinf(exact))
        return isnan(exact) ? isnan(value) : value == exact;
    return fabs(value - exact) <= slack;
}

double check_slack(double exact, double plain, double magnitude, double state_unit, double unit)
{
    double naive = isfinite(plain) && isfinite(exact) && state_unit >= FLT_EPSILON ? fabs(plain - exact) : 0;
    return 16 * naive + 256 * state_unit * magnitude + unit * fabs(exact) + 1e-30 + (unit > FLT_EPSILON ? 0x1p-20 : 0);
}

clattn_status check_element(struct report *report, const char *kernel, const char *what, const int64_t index[4],
                            double value, double exact, double slack)
{
    if (agrees(value, exact, slack))
        return CLATTN_SUCCESS;
    return report_error(report, CLATTN_ERROR_MISCOMPILED,
                        "%s disagrees with the reference on this device: %s[%lld, %lld, %lld, %lld] is %.9g, not %.9g",
                        kernel, what, (long long)index[0], (long long)index[1], (long long)index[2],
                        (long long)index[3], value, exact);
}
