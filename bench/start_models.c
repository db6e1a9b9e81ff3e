/* Makes three small models with weights of zero, and runs each once, for bench/start.py: what a first start costs is their
 * programs.  A Transformer as PyTorch's nn.Transformer has it, a decoder like GPT-2, an encoder like a vision Transformer's. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <clattn/clattn.h>

enum { D_MODEL = 64, D_FF = 256, HEADS = 4, LAYERS = 2, VOCABULARY = 100, POSITIONS = 64, LENGTH = 32 };

static clattn_context *context;
static float zeros[D_FF * D_MODEL + VOCABULARY * D_MODEL];

static void check(clattn_status status)
{
    char message[512];
    if (status == CLATTN_SUCCESS)
        return;
    clattn_context_message(context, message, sizeof message);
    fprintf(stderr, "start_models: %s: %s\n", clattn_status_string(status), message);
    exit(1);
}

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* The shape that weights.h gives a tensor of that name. */
static clattn_status find_weight(void *user, const char *name, clattn_host_tensor *tensor, clattn_io_error *error)
{
    const bool table = strstr(name, "tokens.") || !strncmp(name, "output.", 7);
    const bool matrix = ends_in(name, ".weight") && !strstr(name, "norm.");
    (void)user, (void)error;
    *tensor = (clattn_host_tensor){.dtype = CLATTN_DTYPE_F32, .rank = matrix ? 2 : 1, .data = zeros};
    tensor->extent[0] = table                             ? VOCABULARY
                        : strstr(name, "positions.")      ? POSITIONS
                        : strstr(name, "feed_forward.in") ? D_FF
                                                          : D_MODEL;
    tensor->extent[1] = ends_in(name, "feed_forward.out.weight") ? D_FF : D_MODEL;
    tensor->bytes = sizeof(float) * tensor->extent[0] * (matrix ? tensor->extent[1] : 1);
    return CLATTN_SUCCESS;
}

static clattn_stack_desc stack_of(clattn_norm_place place, clattn_activation activation)
{
    clattn_stack_desc stack = CLATTN_STACK_DESC_INIT;
    stack.layers = LAYERS;
    stack.d_model = D_MODEL;
    stack.heads = HEADS;
    stack.d_ff = D_FF;
    stack.activation = activation;
    stack.norm_place = place;
    stack.final_norm = 1;
    stack.vocabulary = VOCABULARY;
    return stack;
}

static clattn_transformer *make_model(const clattn_stack_desc *encoder, const clattn_stack_desc *decoder,
                                      clattn_model_output output)
{
    clattn_transformer_desc desc = CLATTN_TRANSFORMER_DESC_INIT;
    clattn_weight_source source = CLATTN_WEIGHT_SOURCE_INIT;
    clattn_transformer *model;
    desc.encoder = encoder;
    desc.decoder = decoder;
    desc.output = output;
    source.lookup = find_weight;
    check(clattn_transformer_create(context, &desc, &source, &model));
    return model;
}

static clattn_binding new_buffer(size_t elements)
{
    cl_mem buffer = clCreateBuffer(clattn_context_opencl_context(context), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                   elements * sizeof(float), zeros, NULL);
    return clattn_binding_buffer(buffer, 0);
}

static void run_encoder(clattn_transformer *model, clattn_pooling pooling, clattn_binding input, clattn_binding output)
{
    clattn_encoder_desc desc = CLATTN_ENCODER_DESC_INIT;
    clattn_encoder_args args = CLATTN_ENCODER_ARGS_INIT;
    clattn_plan *plan;
    desc.batch = 1;
    desc.length = LENGTH;
    desc.pooling = pooling;
    check(clattn_encoder_plan_create(model, &desc, NULL, &plan));
    args.input = input;
    if (pooling)
        args.pooled = output;
    else
        args.output = output;
    check(clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL));
    clattn_plan_release(&plan);
}

/* Reads a prompt of five tokens and generates three. */
static void run_decoder(clattn_transformer *model, const clattn_binding *memory)
{
    clattn_decoder_desc desc = CLATTN_DECODER_DESC_INIT;
    clattn_decoder_begin_args begin = CLATTN_DECODER_BEGIN_ARGS_INIT;
    clattn_generate_desc generate = CLATTN_GENERATE_DESC_INIT;
    clattn_generated generated = CLATTN_GENERATED_INIT;
    clattn_decoder_state *state;
    clattn_plan *plan;
    const int32_t prompt[5] = {1, 2, 3, 4, 5};
    int32_t tokens[3];
    size_t prompt_length = 5, length;
    desc.items = 1;
    desc.length = LENGTH;
    desc.cache_length = POSITIONS;
    desc.memory_length = memory ? LENGTH : 0;
    desc.logits = CLATTN_LOGITS_LAST;
    check(clattn_decoder_plan_create(model, &desc, NULL, &plan));
    check(clattn_decoder_state_create(plan, &state));
    begin.items = 1;
    if (memory) {
        begin.memory = *memory;
        begin.memory_length = LENGTH;
    }
    check(clattn_decoder_begin(state, NULL, &begin, 0, NULL, NULL));
    generate.max_tokens = 3;
    generated.tokens = tokens;
    generated.lengths = &length;
    check(clattn_generate(state, NULL, &generate, prompt, &prompt_length, &generated));
    clattn_decoder_state_release(&state);
    clattn_plan_release(&plan);
}

int main(void)
{
    check(clattn_context_create(NULL, &context));
    clattn_stack_desc encoder = stack_of(CLATTN_NORM_PLACE_POST, CLATTN_ACTIVATION_RELU), decoder = encoder;
    clattn_stack_desc gpt = stack_of(CLATTN_NORM_PLACE_PRE, CLATTN_ACTIVATION_GELU_TANH);
    clattn_stack_desc vit = stack_of(CLATTN_NORM_PLACE_PRE, CLATTN_ACTIVATION_GELU);
    const clattn_binding memory = new_buffer(LENGTH * D_MODEL), vectors = new_buffer(LENGTH * D_MODEL);
    const clattn_binding tokens = new_buffer(LENGTH), pooled = new_buffer(D_MODEL);
    decoder.causal = decoder.cross = gpt.causal = 1;
    vit.vocabulary = 0;
    encoder.input = decoder.input = gpt.input = CLATTN_STACK_INPUT_TOKENS;
    encoder.positions = decoder.positions = CLATTN_POSITIONS_SINUSOIDS;
    gpt.positions = CLATTN_POSITIONS_TABLE;
    gpt.position_count = POSITIONS;
    clattn_transformer *models[3] = {make_model(&encoder, &decoder, CLATTN_MODEL_OUTPUT_OWN),
                                     make_model(NULL, &gpt, CLATTN_MODEL_OUTPUT_TIED),
                                     make_model(&vit, NULL, CLATTN_MODEL_OUTPUT_NONE)};
    run_encoder(models[0], CLATTN_POOLING_NONE, tokens, memory);
    run_decoder(models[0], &memory);
    run_decoder(models[1], NULL);
    run_encoder(models[2], CLATTN_POOLING_FIRST, vectors, pooled);
    clFinish(clattn_context_queue(context));
    clattn_program_statistics statistics = {.size = sizeof statistics};
    check(clattn_context_program_statistics(context, &statistics));
    printf("programs built %zu, loaded %zu\n", (size_t)statistics.built, (size_t)statistics.loaded);
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        clattn_transformer_release(&models[i]);
    clReleaseMemObject(memory.buffer);
    clReleaseMemObject(vectors.buffer);
    clReleaseMemObject(tokens.buffer);
    clReleaseMemObject(pooled.buffer);
    clattn_context_release(&context);
    return 0;
}
