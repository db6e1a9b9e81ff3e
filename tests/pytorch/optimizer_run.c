/* optimizer_run FOLDER [name=value ...]: steps of Adam and AdamW by the library, for optimizer.py.
 *
 * FOLDER has, for n = 0, 1, ... up to the number of arrays that are trained together, these .npy files:
 *
 *   parameter<n>    (size) float32
 *   gradient<n>     (steps, size) float32, float16 or bfloat16 as uint16
 *
 * after<n>.npy is made of the parameters after each step, (steps, size) float32.
 *
 *   arrays=N rate=X decay=X beta1=X beta2=X epsilon=X scale=X clip=X decoupled=1 */
#include "pytorch/run.h"

#define ARRAYS 8

struct trained {
    size_t size, steps;
    clattn_dtype dtype;
    clattn_plan *plan, *squares;
    clattn_adam_args step;
    clattn_square_sum_args sum;
    float *after;
};

static double real(const char *name)
{
    return strtod(option(name, "0"), NULL);
}

static struct trained prepare(int n, cl_mem squares)
{
    char name[32];
    struct trained t = {.step = CLATTN_ADAM_ARGS_INIT, .sum = CLATTN_SQUARE_SUM_ARGS_INIT};
    clattn_adam_desc desc = CLATTN_ADAM_DESC_INIT;
    clattn_square_sum_desc sum = CLATTN_SQUARE_SUM_DESC_INIT;
    const size_t one = 1;
    snprintf(name, sizeof name, "gradient%d", n);
    const clattn_host_tensor gradient = array_of(name);
    snprintf(name, sizeof name, "parameter%d", n);
    const clattn_host_tensor parameter = array_of(name);
    if (!gradient.dtype || !parameter.dtype)
        complain(name, "it or its gradient is missing");
    t.steps = gradient.extent[0];
    t.size = gradient.extent[1];
    t.dtype = gradient.dtype;
    t.after = room(t.steps * t.size, sizeof(float));
    desc.parameter = desc.first_moment = desc.second_moment = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &t.size);
    desc.gradient = sum.x = clattn_layout_contiguous(t.dtype, 1, &t.size);
    desc.squares = sum.result = clattn_layout_contiguous(CLATTN_DTYPE_F32, 1, &one);
    void *nothing = room(t.size, sizeof(float));
    t.step.parameter = clattn_binding_buffer(buffer(parameter.bytes, parameter.data), 0);
    t.step.gradient = t.sum.x = clattn_binding_buffer(buffer(gradient.bytes, gradient.data), 0);
    t.step.first_moment = clattn_binding_buffer(buffer(parameter.bytes, nothing), 0);
    t.step.second_moment = clattn_binding_buffer(buffer(parameter.bytes, nothing), 0);
    t.step.squares = t.sum.result = clattn_binding_buffer(squares, 0);
    free(nothing);
    t.step.learning_rate = real("rate");
    t.step.weight_decay = real("decay");
    t.step.explicit_betas = t.step.explicit_epsilon = 1;
    t.step.beta1 = real("beta1");
    t.step.beta2 = real("beta2");
    t.step.epsilon = real("epsilon");
    t.step.gradient_scale = real("scale");
    t.step.clip_norm = real("clip");
    t.step.decoupled = (int32_t)number("decoupled", 0);
    t.sum.accumulate = n > 0;
    CHECK(clattn_adam_plan_create(context, &desc, NULL, &t.plan));
    CHECK(clattn_square_sum_plan_create(context, &sum, NULL, &t.squares));
    return t;
}

/* Step s of all arrays, clipped by the norm of all of them. */
static void step(struct trained *trained, size_t arrays, size_t s)
{
    for (size_t n = 0; n < arrays; n++) {
        struct trained *t = &trained[n];
        t->sum.x.offset = t->step.gradient.offset = (int64_t)(s * t->size);
        CHECK(clattn_square_sum_enqueue(t->squares, NULL, &t->sum, 0, NULL, NULL));
    }
    for (size_t n = 0; n < arrays; n++) {
        struct trained *t = &trained[n];
        t->step.step = (int64_t)s + 1;
        CHECK(clattn_adam_enqueue(t->plan, NULL, &t->step, 0, NULL, NULL));
        read_buffer(t->step.parameter.buffer, t->size * sizeof(float), t->after + s * t->size);
    }
}

int main(int argc, char **argv)
{
    struct trained trained[ARRAYS];
    begin_run(argc, argv);
    const size_t arrays = number("arrays", 1);
    cl_mem squares = buffer(sizeof(float), NULL);
    if (arrays < 1 || arrays > ARRAYS)
        complain("arrays", "1 to 8");
    for (size_t n = 0; n < arrays; n++)
        trained[n] = prepare((int)n, squares);
    for (size_t s = 0; s < trained[0].steps; s++)
        step(trained, arrays, s);
    for (size_t n = 0; n < arrays; n++) {
        char name[32];
        snprintf(name, sizeof name, "after%zu.npy", n);
        write_floats(name, 2, (const size_t[]){trained[n].steps, trained[n].size}, trained[n].after);
        clattn_plan_release(&trained[n].plan);
        clattn_plan_release(&trained[n].squares);
    }
    clattn_context_release(&context);
    return 0;
}
