/* libFuzzer target for the shape of a SwinIR model, read off its tensors, and for tiles of a picture.
 *
 * The input is four numbers of 16 bits (height and width of a picture, edge of a tile, overlap), and tensors as
 * fuzz_weights.h explains.  Whatever the bytes: a status, or a model whose sizes fit each other and tiles that cover the
 * picture. */
#define _GNU_SOURCE
#include "fuzz_file.h"
#include "fuzz_weights.h"

#include "restore/swinir.h"
#include "restore/tiling.h"

void clattn_stack_desc_init(clattn_stack_desc *desc)
{
    *desc = (clattn_stack_desc){.size = sizeof *desc};
}

void clattn_transformer_desc_init(clattn_transformer_desc *desc)
{
    *desc = (clattn_transformer_desc){.size = sizeof *desc};
}

/* What the weights' values would need is never reached. */
clattn_status clattn_transformer_create(clattn_context *context, const clattn_transformer_desc *desc,
                                        const clattn_weight_source *source, clattn_transformer **transformer)
{
    (void)context, (void)desc, (void)source, (void)transformer;
    return CLATTN_ERROR_INTERNAL;
}

int32_t clattn_transformer_has_read(const clattn_transformer *transformer, const char *name)
{
    (void)transformer, (void)name;
    return 1;
}

void clattn_transformer_release(clattn_transformer **transformer)
{
    *transformer = NULL;
}

static void check_model(const swinir *model)
{
    const clattn_restoration *r = &swinir_last(model)->restoration;
    REQUIRE(model->stages >= 1 && model->stages <= CLATTN_MAX_STAGES);
    REQUIRE(model->channels == 1 || model->channels == 3);
    REQUIRE(model->window >= 1 && model->factor >= 1 && model->factor <= 8 && r->factor == model->factor);
    REQUIRE(r->kind != CLATTN_RESTORATION_KIND_NONE && (r->features == 0 || r->kind % 2 == 1));
    for (size_t s = 0; s < model->stages; s++) {
        const clattn_stack_desc *d = &model->stage[s];
        REQUIRE(d->layers >= 1 && d->heads >= 1 && d->d_model % d->heads == 0 && d->d_ff >= 1);
        REQUIRE(d->windows.rows == model->window && d->windows.columns == model->window);
        REQUIRE(d->next == (s + 1 < model->stages ? d + 1 : NULL));
    }
}

static void check_tiles(size_t window, const uint16_t numbers[4])
{
    tiling t = tiling_of((size_t)numbers[0] + 1, (size_t)numbers[1] + 1, window, (size_t)numbers[3] + 1);
    if (!tiling_set(&t, (size_t)numbers[2] + 1))
        return;
    for (int axis = 0; axis < 2; axis++) {
        const size_t last = t.count[axis] - 1;
        REQUIRE(tiling_begin(&t, axis, 0) == 0 && tiling_begin(&t, axis, last) + t.tile[axis] == t.filled[axis]);
        for (size_t i = 1; i <= last && i < 1000; i++) {
            const size_t common = tiling_common(&t, axis, i);
            REQUIRE(tiling_begin(&t, axis, i) % window == 0 && common >= t.overlap && common < t.tile[axis]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint16_t numbers[4];
    swinir model;
    if (size < sizeof numbers)
        return 0;
    memcpy(numbers, data, sizeof numbers);
    fuzz_write_weights((const char *)data + sizeof numbers, size - sizeof numbers);
    const clattn_status status = swinir_open(fuzz_path("model.safetensors"), &model);
    REQUIRE(status == CLATTN_SUCCESS || status == CLATTN_ERROR_FORMAT || status == CLATTN_ERROR_UNSUPPORTED ||
            status == CLATTN_ERROR_OVERFLOW);
    REQUIRE((status == CLATTN_SUCCESS) == (model.error.message[0] == '\0'));
    if (status == CLATTN_SUCCESS) {
        check_model(&model);
        check_tiles(model.window, numbers);
    }
    swinir_close(&model);
    return 0;
}
