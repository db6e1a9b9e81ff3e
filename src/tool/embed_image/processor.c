/* preprocessor_config.json of Hugging Face's transformers: what is done to pictures. */
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "io/common.h"
#include "tool/embed_image/vision.h"

#define MOST_PIXELS 8192

/* Three numbers, one for each channel. */
static clattn_status read_channels(model_config *c, const char *name, double least, float channels[3])
{
    const json_t *value = model_config_value(c, name);
    if (value == NULL)
        return CLATTN_SUCCESS;
    for (size_t i = 0; i < 3; i++) {
        const json_t *each = json_array_get(value, i);
        const double number = json_number_value(each);
        if (json_array_size(value) != 3 || !json_is_number(each) || !(number >= least && number <= 1e6))
            return model_config_wrong(c, name, least > 0 ? "three numbers above 0" : "three numbers");
        channels[i] = (float)number;
    }
    return CLATTN_SUCCESS;
}

/* An object's height and width. */
static clattn_status read_height_and_width(model_config *c, const json_t *object, size_t size[2])
{
    const json_t *outer = c->at;
    clattn_status status;
    c->at = object;
    TRY(model_config_size(c, "height", MOST_PIXELS, &size[0]));
    TRY(model_config_size(c, "width", MOST_PIXELS, &size[1]));
fail:
    c->at = outer;
    return status;
}

/* "size": an object, or, in older files, one number: the shortest edge's, or for models that do not crop both. */
static clattn_status read_resized(fit_rule *rule, model_config *c, bool crops)
{
    const json_t *value = model_config_value(c, "size"), *outer = c->at;
    clattn_status status;
    if (value == NULL)
        return CLATTN_SUCCESS;
    if (!json_is_object(value)) {
        TRY(model_config_size(c, "size", MOST_PIXELS, &rule->resized[0]));
        rule->resized[1] = rule->resized[0];
        rule->shortest = crops;
        return CLATTN_SUCCESS;
    }
    rule->shortest = json_object_get(value, "shortest_edge") != NULL;
    if (!rule->shortest)
        return read_height_and_width(c, value, rule->resized);
    if (json_object_get(value, "longest_edge") != NULL)
        return io_fail(&c->error, CLATTN_ERROR_UNSUPPORTED, c->path.text,
                       "size has a longest_edge, expected a shortest_edge alone, or height and width");
    c->at = value;
    status = model_config_size(c, "shortest_edge", MOST_PIXELS, &rule->resized[0]);
fail:
    c->at = outer;
    return status;
}

static clattn_status read_cut(fit_rule *rule, model_config *c)
{
    const json_t *value = model_config_value(c, "crop_size");
    if (json_is_object(value))
        return read_height_and_width(c, value, rule->size);
    clattn_status status = model_config_optional_size(c, "crop_size", MOST_PIXELS, &rule->size[0]);
    if (status == CLATTN_SUCCESS && value != NULL)
        rule->size[1] = rule->size[0];
    return status;
}

static clattn_status read_sizes(fit_rule *rule, model_config *c)
{
    bool resizes = true, crops = rule->shortest;
    size_t mode = rule->mode == CLATTN_RESIZE_MODE_BILINEAR ? 2 : 3;
    clattn_status status;
    TRY(model_config_flag(c, "do_resize", &resizes));
    if (!resizes)
        return model_config_wrong(c, "do_resize", "true");
    TRY(model_config_flag(c, "do_center_crop", &crops));
    TRY(read_resized(rule, c, crops));
    if (crops) {
        TRY(read_cut(rule, c));
    } else if (rule->shortest) {
        return model_config_wrong(c, "do_center_crop", "true, because size has a shortest_edge");
    } else {
        memcpy(rule->size, rule->resized, sizeof rule->size);
    }
    TRY(model_config_optional_size(c, "resample", 5, &mode));
    if (mode != 2 && mode != 3)
        return model_config_wrong(c, "resample", "2 (bilinear) or 3 (bicubic)");
    rule->mode = mode == 2 ? CLATTN_RESIZE_MODE_BILINEAR : CLATTN_RESIZE_MODE_BICUBIC;
fail:
    return status;
}

clattn_status vision_read_processor(vision_model *model, model_config *c)
{
    fit_rule *rule = &model->rule;
    bool rescales = true, normalises = true;
    clattn_status status;
    if (c->at == NULL)
        return CLATTN_SUCCESS;
    TRY(read_sizes(rule, c));
    TRY(model_config_flag(c, "do_rescale", &rescales));
    TRY(model_config_flag(c, "do_normalize", &normalises));
    TRY(model_config_number(c, "rescale_factor", 0.0, 1e6, &rule->scale));
    TRY(read_channels(c, "image_mean", -1e6, rule->mean));
    TRY(read_channels(c, "image_std", 1e-9, rule->deviation));
    if (!rescales)
        rule->scale = 1;
    for (int i = 0; i < 3 && !normalises; i++) {
        rule->mean[i] = 0;
        rule->deviation[i] = 1;
    }
fail:
    return status;
}
