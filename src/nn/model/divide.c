/* Models of a group: what each rank has, and what ranks agree about before they load it. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "base/size.h"
#include "base/strbuf.h"
#include "base/try.h"
#include "clattn/version.h"
#include "nn/model/model.h"

/* ---- what a rank has ---- */

static clattn_status divide(const clattn_transformer *model, const char *where, const char *what, size_t whole,
                            struct split *split)
{
    const struct ranks *ranks = model->ranks;
    *split = (struct split){0, whole, whole};
    if (!ranks)
        return CLATTN_SUCCESS;
    split->first = ranks_first(ranks, whole, (size_t)ranks->group.rank);
    split->count = ranks_first(ranks, whole, (size_t)ranks->group.rank + 1) - split->first;
    if (whole < (size_t)ranks->group.ranks)
        return report_error(&model->context->device.report, CLATTN_ERROR_INVALID_LAYOUT,
                            "transformer: %s: %zu %s for %d ranks", where, whole, what, (int)ranks->group.ranks);
    return CLATTN_SUCCESS;
}

static clattn_status divide_stack(const clattn_transformer *model, const char *where, struct stack *stack)
{
    clattn_status status;
    clattn_stack_desc *d = &stack->desc;
    const size_t queries = d->heads / d->kv_heads;
    TRY(divide(model, where, "heads of keys", d->kv_heads, &stack->kv_heads));
    TRY(divide(model, where, "hidden numbers (d_ff)", d->d_ff, &stack->hidden));
    if (d->vocabulary)
        TRY(divide(model, where, "tokens of the vocabulary", d->vocabulary, &stack->vocabulary));
    d->kv_heads = stack->kv_heads.count;
    d->heads = queries * d->kv_heads;
    d->d_ff = stack->hidden.count;
    stack->inner = d->heads * d->head_size;
    stack->inner_kv = d->kv_heads * d->head_size;
fail:
    return status;
}

clattn_status model_divide(clattn_transformer *model)
{
    clattn_status status = CLATTN_SUCCESS;
    for (struct stack *stage = &model->encoder; model->has_encoder && stage; stage = stage->next)
        TRY(divide_stack(model, "encoder", stage));
    if (model->has_decoder)
        TRY(divide_stack(model, "decoder", &model->decoder));
    if (model->output)
        status = divide(model, "output", "logits", model->output_size, &model->output_rows);
fail:
    return status;
}

/* ---- what ranks agree about ---- */

/* Adds the sizes of a stack that people speak of, and a digest of all that it says. */
static void describe_stack(struct strbuf *text, const char *name, const clattn_stack_desc *given)
{
    clattn_stack_desc desc;
    struct sha256 hash;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&hash);
    for (size_t stage = 0; given && stage < CLATTN_MAX_STAGES; stage++, given = desc.next) {
        if (struct_read(&desc, sizeof desc, sizeof desc, given) != CLATTN_SUCCESS)
            return;
        const clattn_stack_desc *d = &desc;
        strbuf_printf(text, "%s: layers=%zu d_model=%zu heads=%zu kv_heads=%zu head_size=%zu d_ff=%zu\n", name,
                      d->layers, d->d_model, d->heads, d->kv_heads, d->head_size, d->d_ff);
        strbuf_printf(text, "%s: activation=%d gated=%d norm=%d norm_place=%d without_bias=%u vocabulary=%zu\n", name,
                      (int)d->activation, (int)d->gated, (int)d->norm, (int)d->norm_place, (unsigned)d->without_bias,
                      d->vocabulary);
        sha256_update(&hash, d, offsetof(clattn_stack_desc, next)); /* which has no padding */
    }
    sha256_final(&hash, digest);
    strbuf_printf(text, "%s: digest of all=%02x%02x%02x%02x\n", name, digest[0], digest[1], digest[2], digest[3]);
}

/* Writes the text or, if it is too long, its beginning and a digest of all. */
static void shorten(const struct strbuf *text, char own[RANKS_AGREED])
{
    enum { DIGEST = 64 }; /* bytes, more than the last line has */
    struct sha256 hash;
    uint8_t digest[SHA256_BYTES];
    snprintf(own, RANKS_AGREED, "%s", text->text);
    if (text->length < RANKS_AGREED)
        return;
    sha256_init(&hash);
    sha256_update(&hash, text->text, text->length);
    sha256_final(&hash, digest);
    snprintf(own + RANKS_AGREED - DIGEST, DIGEST, "\nmore, with the digest of all=%02x%02x%02x%02x\n", digest[0],
             digest[1], digest[2], digest[3]);
}

static clattn_status agree(struct ranks *ranks, const clattn_transformer_desc *given)
{
    clattn_transformer_desc desc = {0};
    struct strbuf text = {0};
    char own[RANKS_AGREED] = "";
    const clattn_status status = struct_read(&desc, sizeof desc, sizeof desc, given);
    strbuf_printf(&text, "version=%s\nranks=%d\n", clattn_version_string(), (int)ranks->group.ranks);
    if (status != CLATTN_SUCCESS)
        strbuf_printf(&text, "a description that it refuses: %s\n", clattn_status_string(status));
    strbuf_printf(&text, "dtype=%s weights of %s\noutput=%d of %zu, bias=%d\n", clattn_dtype_name(desc.dtype),
                  clattn_dtype_name(desc.weight_dtype), (int)desc.output, desc.output_size, (int)desc.output_bias);
    describe_stack(&text, "encoder", desc.encoder);
    describe_stack(&text, "decoder", desc.decoder);
    if (!text.failed)
        shorten(&text, own);
    strbuf_clear(&text);
    return ranks_agree(ranks, own, status != CLATTN_SUCCESS);
}

clattn_status clattn_group_transformer_create(clattn_context *context, const clattn_group *group,
                                              const clattn_transformer_desc *desc, const clattn_weight_source *source,
                                              clattn_transformer **result)
{
    clattn_status status;
    struct ranks ranks;
    clattn_transformer *model = NULL;
    if (result)
        *result = NULL;
    TRY(context_check(context));
    if (!result)
        return report_error(&context->device.report, CLATTN_ERROR_INVALID_ARGUMENT, "transformer is NULL");
    TRY(ranks_read(&ranks, &context->device.report, group));
    status = agree(&ranks, desc);
    if (ranks.failed)
        goto fail;
    if (status == CLATTN_SUCCESS)
        status = model_create(context, &ranks, desc, source, &model);
    status = ranks_all_ready(&ranks, status, "model");
    if (status == CLATTN_SUCCESS)
        *result = model;
    else
        clattn_transformer_release(&model);
fail:
    return status;
}
