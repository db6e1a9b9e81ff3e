#include "tool/embed/sentence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/try.h"
#include "tool/cli/os_tool.h"
#include "io/common.h"
#include "tool/run/model_config.h"

#define MOST_TOKENS 65536 /* the largest max_position_embeddings and max_seq_length */

static bool is_there(const sentence_model *model, const char *name)
{
    model_path path;
    return model_path_in(model->folder, name, &path) && os_look_at(path.text) == OS_PATH_FILE;
}

/* ---- config.json ---- */

static clattn_status read_shape(model_config *c, clattn_stack_desc *stack)
{
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    const json_t *epsilon = json_object_get(c->root, "layer_norm_eps");
    const json_t *positions = json_object_get(c->root, "position_embedding_type");
    clattn_status status;
    const struct {
        const char *name;
        size_t most, *size;
    } sizes[] = {{"num_hidden_layers", 1024, &stack->layers},
                 {"hidden_size", 65536, &stack->d_model},
                 {"num_attention_heads", 65536, &stack->heads},
                 {"intermediate_size", (size_t)1 << 20, &stack->d_ff},
                 {"vocab_size", (size_t)1 << 24, &stack->vocabulary},
                 {"max_position_embeddings", MOST_TOKENS, &stack->position_count},
                 {"type_vocab_size", 65536, &stack->segments}};
    if (type == NULL || strcmp(type, "bert") != 0)
        return model_config_wrong(c, "model_type", "\"bert\"");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        TRY(model_config_size(c, sizes[i].name, sizes[i].most, sizes[i].size));
    if (stack->d_model % stack->heads != 0)
        return io_fail(&c->error, CLATTN_ERROR_FORMAT, c->path.text,
                       "hidden_size is %zu, expected a multiple of num_attention_heads, %zu", stack->d_model,
                       stack->heads);
    if (stack->position_count < 2)
        return model_config_wrong(c, "max_position_embeddings", "2 or more");
    if (!json_is_number(epsilon) || !(json_number_value(epsilon) >= 0.0 && json_number_value(epsilon) <= 1.0))
        return model_config_wrong(c, "layer_norm_eps", "a number from 0 to 1");
    if (positions != NULL && (!json_is_string(positions) || strcmp(json_string_value(positions), "absolute") != 0))
        return model_config_wrong(c, "position_embedding_type", "\"absolute\"");
    stack->epsilon = (float)json_number_value(epsilon);
    stack->explicit_epsilon = 1;
    stack->norm = CLATTN_NORM_KIND_LAYER;
    stack->norm_place = CLATTN_NORM_PLACE_POST;
    stack->input = CLATTN_STACK_INPUT_TOKENS;
    stack->positions = CLATTN_POSITIONS_TABLE;
    stack->input_norm = 1;
    TRY(model_config_activation(c, "hidden_act", stack));
fail:
    return status;
}

static clattn_status read_limit(model_config *c, size_t most, size_t *limit)
{
    char expected[64];
    clattn_status status = model_config_size(c, "max_seq_length", MOST_TOKENS, limit);
    if (status == CLATTN_SUCCESS && (*limit < 2 || *limit > most)) {
        snprintf(expected, sizeof expected, "2 to the model's %zu positions", most);
        status = model_config_wrong(c, "max_seq_length", expected);
    }
    return status;
}

static clattn_status read_pooling(model_config *c, int32_t *pooling)
{
    static const char *const others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};
    bool mean = json_is_true(json_object_get(c->root, "pooling_mode_mean_tokens"));
    bool first = json_is_true(json_object_get(c->root, "pooling_mode_cls_token"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (json_is_true(json_object_get(c->root, others[i])))
            return io_fail(&c->error, CLATTN_ERROR_UNSUPPORTED, c->path.text,
                           "%s is true, expected pooling_mode_mean_tokens or pooling_mode_cls_token", others[i]);
    *pooling = mean ? CLATTN_POOLING_MEAN : CLATTN_POOLING_FIRST;
    return mean != first ? CLATTN_SUCCESS
                         : io_fail(&c->error, CLATTN_ERROR_FORMAT, c->path.text,
                                   "%s of pooling_mode_mean_tokens and "
                                   "pooling_mode_cls_token true, expected one",
                                   mean ? "both are" : "neither is");
}

/* ---- the files ---- */

static int read_configs(sentence_model *model)
{
    model_config c;
    int status;
    TOOL_TRY(model_config_open(model->folder, "config.json", false, &c));
    TOOL_TRY(model_config_close(&c, read_shape(&c, &model->stack)));
    model->most_tokens = model->stack.position_count;
    TOOL_TRY(model_config_open(model->folder, "sentence_bert_config.json", true, &c));
    if (c.root != NULL)
        TOOL_TRY(model_config_close(&c, read_limit(&c, model->stack.position_count, &model->most_tokens)));
    TOOL_TRY(model_config_open(model->folder, "1_Pooling/config.json", true, &c));
    if (c.root != NULL)
        TOOL_TRY(model_config_close(&c, read_pooling(&c, &model->pooling)));
fail:
    return status;
}

static int read_tokenizer(void *user)
{
    sentence_vocabulary *v = user;
    v->status = v->json ? wordpiece_open_json(v->path.text, &v->tokenizer, &v->error)
                        : wordpiece_open_vocab(v->path.text, &v->tokenizer, &v->error);
    return 0;
}

static int open_tokenizer(sentence_model *model)
{
    sentence_vocabulary *v = &model->vocabulary;
    v->json = is_there(model, "tokenizer.json");
    if (!v->json && !is_there(model, "vocab.txt"))
        return complain(TOOL_BAD_INPUT, "%s: has neither tokenizer.json nor vocab.txt", model->folder);
    model_path_in(model->folder, v->json ? "tokenizer.json" : "vocab.txt", &v->path);
    v->read_apart = thrd_create(&v->thread, read_tokenizer, v) == thrd_success;
    if (!v->read_apart)
        read_tokenizer(v);
    return TOOL_DONE;
}

static void join_tokenizer(sentence_vocabulary *v)
{
    if (v->read_apart)
        thrd_join(v->thread, NULL);
    v->read_apart = false;
}

int sentence_tokenizer(sentence_model *model)
{
    sentence_vocabulary *v = &model->vocabulary;
    join_tokenizer(v);
    if (v->status != CLATTN_SUCCESS)
        return model_file_fail(v->status, &v->error);
    if (wordpiece_size(v->tokenizer) > model->stack.vocabulary)
        return complain(TOOL_BAD_INPUT,
                        "%s: has tokens up to number %zu, expected fewer than config.json's vocab_size, %zu",
                        v->path.text, wordpiece_size(v->tokenizer) - 1, model->stack.vocabulary);
    model->tokenizer = v->tokenizer;
    return TOOL_DONE;
}

static int open_weights(sentence_model *model)
{
    clattn_io_error error;
    model_path path;
    model_path_in(model->folder, "model.safetensors", &path);
    clattn_status status = clattn_safetensors_create(path.text, &model->file, &error);
    return status == CLATTN_SUCCESS ? TOOL_DONE : model_file_fail(status, &error);
}

int sentence_open(const char *folder, size_t most_tokens, sentence_model *model)
{
    *model = (sentence_model){.folder = folder, .pooling = CLATTN_POOLING_MEAN};
    clattn_stack_desc_init(&model->stack);
    if (os_look_at(folder) != OS_PATH_FOLDER)
        return complain(TOOL_BAD_INPUT, "%s: is no folder, expected one with config.json and model.safetensors",
                        folder);
    int status;
    TOOL_TRY(read_configs(model));
    if (most_tokens > model->stack.position_count)
        TOOL_TRY(complain(TOOL_BAD_INPUT, "--max-tokens %zu is not valid, expected at most the model's %zu positions",
                          most_tokens, model->stack.position_count));
    if (most_tokens != 0)
        model->most_tokens = most_tokens;
    TOOL_TRY(open_tokenizer(model));
    TOOL_TRY(open_weights(model));
fail:
    return status;
}

int sentence_load(sentence_model *model, tool_pool *pool)
{
    static const char first[] = "embeddings.word_embeddings.weight";
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_host_tensor plain = {0}, prefixed = {0};
    model_path path;
    int status = sentence_tokenizer(model);
    if (status != TOOL_DONE)
        return status;
    desc.encoder = &model->stack;
    desc.dtype = model->dtype;
    source.lookup = clattn_safetensors_lookup;
    source.user = model->file;
    source.format = CLATTN_NAME_FORMAT_BERT;
    /* In a model that was trained for masked words the encoder is a part whose names begin with "bert.". */
    char name[64];
    snprintf(name, sizeof name, "bert.%s", first);
    clattn_safetensors_find(model->file, first, &plain, NULL);
    clattn_safetensors_find(model->file, name, &prefixed, NULL);
    if (plain.dtype == CLATTN_DTYPE_NONE && prefixed.dtype != CLATTN_DTYPE_NONE)
        source.prefix = "bert.";
    model->pool = pool;
    model_path_in(model->folder, "model.safetensors", &path);
    for (size_t i = 0; i < pool->count && status == TOOL_DONE; i++) {
        sentence_device *on = &model->on[i];
        on->device = &pool->member[i].device;
        status = device_check(
            on->device, clattn_transformer_create(on->device->context, &desc, &source, &on->transformer), path.text);
    }
    return status;
}

const char *sentence_solver(const sentence_model *model)
{
    for (size_t i = 0; i < POOL_MOST; i++)
        for (size_t bucket = 0; bucket < SENTENCE_BUCKETS; bucket++)
            if (model->on[i].plans[bucket] != NULL)
                return clattn_plan_solver(model->on[i].plans[bucket]);
    return "";
}

void sentence_close(sentence_model *model)
{
    for (size_t i = 0; i < POOL_MOST; i++) {
        for (size_t bucket = 0; bucket < SENTENCE_BUCKETS; bucket++)
            clattn_plan_release(&model->on[i].plans[bucket]);
        clattn_transformer_release(&model->on[i].transformer);
    }
    clattn_safetensors_release(&model->file);
    join_tokenizer(&model->vocabulary);
    wordpiece_close(&model->vocabulary.tokenizer);
    *model = (sentence_model){0};
}
