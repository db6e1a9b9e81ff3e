// Without exceptions and RTTI: every object and call of the wrapper, ownership, and the statuses of failures.
#include <clattn/clattn.hpp>

#include <cmath>
#include <cstring>

#include "check.hpp"

namespace
{

struct fixture {
    fixture()
    {
        CHECK(context.create() == CLATTN_SUCCESS && context);
        describe(desc);
    }
    clattn::context context;
    clattn::attention_desc desc;
    clattn::attention_args args;
};

struct attending : fixture {
    attending() : arrays(context.opencl_context())
    {
        arrays.bind(args);
    }
    bool is_right()
    {
        return arrays.host.is_right(arrays.read(context.queue()));
    }
    buffers arrays;
};

void attention_is_right()
{
    attending of;
    const char *reason = "not written";
    CHECK(of.context.supports(of.desc, &reason) == CLATTN_SUCCESS && !reason);
    CHECK(of.context.prewarm(of.desc) == CLATTN_SUCCESS);
    clattn::program_statistics before, after;
    CHECK(of.context.program_statistics(before) == CLATTN_SUCCESS);
    CHECK(of.context.run(nullptr, of.desc, of.args) == CLATTN_SUCCESS);
    CHECK(of.is_right());
    CHECK(of.context.program_statistics(after) == CLATTN_SUCCESS && after.built == before.built);

    clattn::plan plan;
    cl_int code;
    cl_event gate = clCreateUserEvent(of.context.opencl_context(), &code), events[3] = {};
    CHECK(code == CL_SUCCESS && plan.create(of.context, of.desc) == CLATTN_SUCCESS);
    CHECK(plan.enqueue(of.context.queue(), of.args, gate, &events[0]) == CLATTN_SUCCESS && events[0]);
    cl_int execution = CL_COMPLETE;
    clGetEventInfo(events[0], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof execution, &execution, nullptr);
    CHECK(execution != CL_COMPLETE); // it waits for the gate
    CHECK(clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS);
    std::vector<cl_event> both = {gate, events[0]};
    CHECK(plan.enqueue(of.context.queue(), of.args, both, &events[1]) == CLATTN_SUCCESS && events[1]);
    CHECK(plan.enqueue(nullptr, of.args, {2, both.data()}, &events[2]) == CLATTN_SUCCESS && events[2]);
    CHECK(clWaitForEvents(3, events) == CL_SUCCESS && of.is_right());
    for (cl_event event : {gate, events[0], events[1], events[2]})
        clReleaseEvent(event);

    CHECK(std::strlen(plan.solver()) > 0 && std::strstr(plan.explain(), plan.solver()) && plan.launch_count() > 0);
    CHECK(plan.workspace_size() == clattn_plan_workspace_size(plan.get()));
}

// What a description or arguments of each type call is the C function of that operator: the message names it.
template <typename Desc, typename Args, typename CDesc, typename CArgs>
void check_operator(const fixture &of, clattn_status (*supports)(clattn_context *, const CDesc *, const char **),
                    clattn_status (*enqueue)(clattn_plan *, cl_command_queue, const CArgs *, cl_uint, const cl_event *,
                                             cl_event *))
{
    static_assert(sizeof(Desc) == sizeof(CDesc) && sizeof(Args) == sizeof(CArgs),
                  "structs without members of their own");
    Desc desc;
    Args args;
    CDesc plain = CLATTN_INIT(CDesc);
    CArgs plain_args = CLATTN_INIT(CArgs);
    CHECK(!std::memcmp(static_cast<CDesc *>(&desc), &plain, sizeof plain) &&
          !std::memcmp(static_cast<CArgs *>(&args), &plain_args, sizeof plain_args));
    const char *reason = nullptr, *expected = nullptr;
    clattn::plan plan;
    clattn_status status = supports(of.context.get(), &plain, &expected);
    CHECK(status != CLATTN_SUCCESS && of.context.supports(desc, &reason) == status && reason == expected);
    CHECK(plan.create(of.context, desc) == status && !plan && of.context.message().find(expected) != std::string::npos);
    CHECK(of.context.prewarm(desc) == status && of.context.run(nullptr, desc, args) == status);
    CHECK(plan.create(of.context, of.desc) == CLATTN_SUCCESS);
    status = enqueue(plan.get(), nullptr, &plain_args, 0, nullptr, nullptr); // of attention or of another operator
    std::string message = of.context.message();
    CHECK(plan.enqueue(nullptr, args) == status && status != CLATTN_SUCCESS && of.context.message() == message);
}

void every_operator_is_called_by_its_structs()
{
    fixture of;
#define CHECK_OPERATOR(name) \
    check_operator<clattn::name##_desc, clattn::name##_args>(of, clattn_##name##_supports, clattn_##name##_enqueue)
    CHECK_OPERATOR(activation);
    CHECK_OPERATOR(attention);
    CHECK_OPERATOR(conv2d);
    CHECK_OPERATOR(cross_entropy);
    CHECK_OPERATOR(dropout);
    CHECK_OPERATOR(embedding);
    CHECK_OPERATOR(feed_forward);
    CHECK_OPERATOR(image);
    CHECK_OPERATOR(kv_append);
    CHECK_OPERATOR(matmul);
    CHECK_OPERATOR(adam);
    CHECK_OPERATOR(square_sum);
    CHECK_OPERATOR(merge);
    CHECK_OPERATOR(mha);
    CHECK_OPERATOR(neighbourhood);
    CHECK_OPERATOR(norm);
    CHECK_OPERATOR(pool);
    CHECK_OPERATOR(resize);
    CHECK_OPERATOR(rope);
    CHECK_OPERATOR(softmax);
}

cl_uint references(cl_context context)
{
    cl_uint count = 0;
    CHECK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, nullptr) == CL_SUCCESS);
    return count;
}

// Handles move, are given away and are released once: the adopted context's reference count tells.
void handles_have_one_owner()
{
    clattn::context first, second;
    CHECK(!first && !first.get() && first.create() == CLATTN_SUCCESS);
    cl_context opencl = first.opencl_context();
    cl_uint before = references(opencl);
    CHECK(second.create(opencl, first.opencl_device(), nullptr) == CLATTN_SUCCESS && references(opencl) > before);
    clattn_context *handle = second.get();
    clattn::context moved = std::move(second);
    CHECK(!second && moved.get() == handle && references(opencl) > before);
    second = std::move(moved);
    CHECK(!moved && second.get() == handle);
    clattn::context &same = second;
    second = std::move(same);
    CHECK(second.get() == handle && references(opencl) > before);
    CHECK(second.release() == handle && !second && references(opencl) > before);
    moved.reset(handle);
    CHECK(moved.get() == handle);
    moved.reset();
    CHECK(!moved && references(opencl) == before);
    {
        clattn::context third;
        CHECK(third.create(opencl, first.opencl_device(), first.queue()) == CLATTN_SUCCESS);
        CHECK(third.queue() == first.queue() && references(opencl) > before);
        second = std::move(third);
    }
    CHECK(second && references(opencl) > before);
    CHECK(second.create() == CLATTN_SUCCESS); // releases what it held
    CHECK(references(opencl) == before);
    {
        clattn::context scoped(second.release());
        CHECK(scoped.create(opencl, first.opencl_device(), nullptr) == CLATTN_SUCCESS && references(opencl) > before);
    }
    CHECK(references(opencl) == before);
    static_assert(!std::is_copy_constructible<clattn::plan>::value && !std::is_copy_assignable<clattn::plan>::value &&
                      std::is_nothrow_move_constructible<clattn::plan>::value &&
                      std::is_nothrow_move_assignable<clattn::plan>::value &&
                      !std::is_convertible<clattn::plan, bool>::value,
                  "owners move and are not copied");
}

void failures_are_statuses()
{
    clattn::context context;
    clattn::context_params params;
    params.device = "no platform:no device";
    CHECK(context.create(params) == CLATTN_ERROR_NO_DEVICE && !context);
    CHECK(context.message().find(params.device) != std::string::npos);
    clattn::attention_desc desc;
    clattn::attention_args args;
    clattn::plan plan;
    describe(desc);
    CHECK(plan.create(context, desc) == CLATTN_ERROR_INVALID_ARGUMENT && !plan); // the context is empty
    CHECK(plan.enqueue(nullptr, args) == CLATTN_ERROR_INVALID_ARGUMENT && plan.launch_count() == 0);

    attending of;
    CHECK(plan.create(of.context, of.desc) == CLATTN_SUCCESS && plan);
    of.args.value = clattn_binding();
    cl_event event = nullptr;
    CHECK(plan.enqueue(nullptr, of.args, {}, &event) == CLATTN_ERROR_INVALID_ARGUMENT && !event);
    CHECK(of.context.message().find("value") != std::string::npos);
    of.desc.key.extent[3] = 3;                                                       // queries have 4
    CHECK(plan.create(of.context, of.desc) == CLATTN_ERROR_INVALID_LAYOUT && !plan); // the former plan is released
    const char *reason = nullptr;
    CHECK(of.context.supports(of.desc, &reason) == CLATTN_ERROR_INVALID_LAYOUT && reason);
    CHECK(of.context.wisdom_import("nonsense") == CLATTN_ERROR_FORMAT);
    clattn::plan_parameter parameter;
    CHECK(plan.parameter_info(0, parameter) == CLATTN_ERROR_INVALID_ARGUMENT);
}

void jobs_make_plans()
{
    attending of;
    clattn::job job;
    clattn::plan plan;
    CHECK(job.create(of.context, of.desc) == CLATTN_SUCCESS && job);
    clattn::job moved = std::move(job);
    CHECK(moved.wait(plan) == CLATTN_SUCCESS && plan && moved.message().empty());
    CHECK(plan.enqueue(nullptr, of.args) == CLATTN_SUCCESS && of.is_right());
    plan.reset();
    CHECK(moved.result(plan) == CLATTN_SUCCESS && plan);
    clattn::plan_options options;
    options.solver = "none of that name";
    clattn_status status = job.create(of.context, of.desc, options);
    if (status == CLATTN_SUCCESS)
        status = job.wait(plan);
    else
        plan.reset();
    CHECK(status != CLATTN_SUCCESS && !plan);
    CHECK((job ? job.message() : of.context.message()).find(options.solver) != std::string::npos);
    job.cancel();
}

void controls_watch()
{
    attending of;
    clattn::control control;
    clattn::control_params params;
    clattn::plan plan;
    params.cancellable = 2;
    CHECK(control.create(params) == CLATTN_ERROR_INVALID_ARGUMENT && !control);
    CHECK(control.progress() == 0 && !control.is_cancelled());
    params.cancellable = 1;
    CHECK(control.create(params) == CLATTN_SUCCESS && control);
    CHECK(plan.create(of.context, of.desc) == CLATTN_SUCCESS);
    of.args.control = control.get();
    control.cancel();
    CHECK(control.is_cancelled() && plan.enqueue(nullptr, of.args) == CLATTN_ERROR_CANCELLED);
    control.rearm();
    CHECK(plan.enqueue(nullptr, of.args) == CLATTN_SUCCESS && of.is_right() && control.progress() == 1);
}

void a_group_of_one_attends()
{
    attending of;
    clattn::group_local local;
    clattn::group group;
    clattn::group_attention attention;
    clattn::group_attention_desc desc;
    CHECK(local.create(0) == CLATTN_ERROR_INVALID_ARGUMENT && !local);
    CHECK(local.create(1) == CLATTN_SUCCESS);
    CHECK(local.rank(1, group) == CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(local.rank(0, group) == CLATTN_SUCCESS);
    CHECK(attention.create(of.context, group, desc) == CLATTN_ERROR_INVALID_ARGUMENT && !attention);
    desc.attention = &of.desc;
    CHECK(attention.create(of.context, group, desc) == CLATTN_SUCCESS && attention);
    CHECK(attention.run(nullptr, of.args) == CLATTN_SUCCESS && of.is_right());
}

void wisdom_travels()
{
    fixture of;
    clattn::plan plan;
    std::string text;
    size_t records = 0;
    CHECK(of.context.wisdom_clear() == CLATTN_SUCCESS && of.context.wisdom_export(text) == CLATTN_SUCCESS);
    size_t empty = text.size();
    CHECK(plan.create(of.context, of.desc) == CLATTN_SUCCESS && plan.wisdom_key());
    for (size_t i = 0; i < plan.parameter_count(); i++) {
        clattn::plan_parameter parameter;
        CHECK(plan.parameter_info(i, parameter) == CLATTN_SUCCESS && parameter.name && parameter.allowed_count > 0);
    }
    CHECK(plan.wisdom_learn(0, 1000) == CLATTN_SUCCESS && of.context.wisdom_export(text) == CLATTN_SUCCESS);
    CHECK(text.size() > empty && text.find(plan.wisdom_key()) != std::string::npos);
    CHECK(plan.wisdom_forget() == CLATTN_SUCCESS);
    CHECK(of.context.wisdom_import(text, &records) == CLATTN_SUCCESS && records == 1);
    std::string again;
    CHECK(of.context.wisdom_export(again) == CLATTN_SUCCESS && again == text);
}

void devices_are_listed()
{
    fixture of;
    clattn::devices devices;
    clattn::device_info info, chosen;
    CHECK(devices.count() == 0 && devices.create() == CLATTN_SUCCESS && devices.count() > 0);
    CHECK(of.context.device_info(chosen) == CLATTN_SUCCESS && chosen.compute_units > 0);
    bool listed = false;
    for (size_t i = 0; i < devices.count(); i++) {
        CHECK(devices.info(i, info) == CLATTN_SUCCESS);
        listed = listed || !std::strcmp(info.name, chosen.name);
    }
    CHECK(listed && devices.info(devices.count(), info) == CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(devices.skipped_count() == clattn_devices_skipped_count(devices.get()) &&
          !devices.skipped(devices.skipped_count()));
    const char *reason = nullptr;
    CHECK(of.context.cache_dir(&reason) || reason);
    CHECK(of.context.save_programs() == CLATTN_SUCCESS);
}

// Every matrix is the unit matrix, every scale 1, every bias 0.
clattn_status unit_weights(void *, const char *name, clattn_host_tensor *tensor, clattn_io_error *)
{
    enum { SIZE = 8 };
    static float unit[SIZE * SIZE], ones[SIZE], zeros[SIZE];
    for (int i = 0; i < SIZE; i++)
        unit[i * SIZE + i] = ones[i] = 1;
    const char *kind = std::strrchr(name, '.');
    bool bias = !std::strcmp(kind, ".bias"), vector = bias || std::strstr(name, "norm.");
    *tensor = clattn_host_tensor();
    tensor->dtype = CLATTN_DTYPE_F32;
    tensor->rank = vector ? 1 : 2;
    tensor->extent[0] = tensor->extent[1] = SIZE;
    tensor->bytes = sizeof(float) * SIZE * (vector ? 1 : SIZE);
    tensor->data = bias ? zeros : vector ? ones : unit;
    return CLATTN_SUCCESS;
}

void models_run()
{
    enum { SIZE = 8, LENGTH = 3 };
    fixture of;
    clattn::stack_desc stack;
    stack.layers = 1;
    stack.d_model = stack.d_ff = stack.vocabulary = SIZE;
    stack.heads = 2;
    stack.activation = CLATTN_ACTIVATION_RELU;
    stack.input = CLATTN_STACK_INPUT_TOKENS;
    clattn::stack_desc causal = stack;
    causal.causal = 1;
    clattn::transformer_desc desc;
    desc.encoder = &stack;
    desc.decoder = &causal;
    desc.output = CLATTN_MODEL_OUTPUT_TIED;
    clattn::weight_source source;
    source.lookup = unit_weights;
    clattn::transformer model;
    CHECK(model.create(of.context, desc, source) == CLATTN_SUCCESS && model.parameters() > 0 &&
          model.weight_bytes() > 0 && !model.has_read("nothing"));

    // Parts of it, of a grid's only row and column.
    clattn::group_local local;
    clattn::group group, line, column;
    clattn::group_grid grid;
    clattn::transformer part;
    CHECK(local.create(1) == CLATTN_SUCCESS &&local.rank(0, group) == CLATTN_SUCCESS);
    CHECK(grid.create(group, 2) == CLATTN_ERROR_INVALID_ARGUMENT && !grid);
    CHECK(grid.row(line) == CLATTN_ERROR_INVALID_ARGUMENT && grid.column(column) == CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(grid.create(group, 1) == CLATTN_SUCCESS && grid.row(line) == CLATTN_SUCCESS &&
          grid.column(column) == CLATTN_SUCCESS && line.ranks == 1 && column.ranks == 1);
    CHECK(part.create(of.context, line, clattn::transformer_desc(), source) == CLATTN_ERROR_INVALID_ARGUMENT && !part);
    CHECK(part.create(of.context, line, desc, source) == CLATTN_SUCCESS &&
          part.weight_bytes() == model.weight_bytes() && part.parameters() == model.parameters());
    part.reset();

    // The trainer, whose model has an encoder that its decoder does not read.
    clattn::trainer trainer;
    clattn::training_desc shape;
    clattn::parameter parameter;
    CHECK(trainer.create(model) == CLATTN_ERROR_UNSUPPORTED && !trainer.get() && trainer.bytes() == 0);
    causal.cross = 1;
    clattn::transformer pair;
    CHECK(pair.create(of.context, desc, source) == CLATTN_SUCCESS && trainer.create(pair) == CLATTN_SUCCESS);
    CHECK(trainer.parameter_count() > 0 && trainer.bytes() >= 3 * pair.weight_bytes() / 2);
    CHECK(trainer.get_parameter(0, parameter) == CLATTN_SUCCESS &&
          parameter.name == std::string("encoder.tokens.weight"));
    shape.batch = 1;
    shape.source_length = shape.target_length = LENGTH;
    clattn::plan training;
    CHECK(training.create(trainer, shape) == CLATTN_SUCCESS);
    CHECK(training.enqueue(nullptr, clattn::training_args()) == CLATTN_ERROR_INVALID_ARGUMENT); // nothing is bound
    clattn::update_args update;
    update.step = 1;
    CHECK(trainer.update(nullptr, update) == CLATTN_SUCCESS && trainer.squares().buffer);

    // The encoder: three tokens become three vectors, each normed by LayerNorm.
    clattn::encoder_desc sizes;
    clattn::encoder_args args;
    sizes.batch = 1;
    sizes.length = LENGTH;
    clattn::plan plan;
    CHECK(plan.create(model, sizes) == CLATTN_SUCCESS);
    int32_t tokens[LENGTH] = {5, 0, 3};
    float found[LENGTH * SIZE] = {};
    cl_mem input = clCreateBuffer(of.context.opencl_context(), CL_MEM_COPY_HOST_PTR, sizeof tokens, tokens, nullptr);
    cl_mem output = clCreateBuffer(of.context.opencl_context(), CL_MEM_READ_WRITE, sizeof found, nullptr, nullptr);
    args.input = clattn::binding_buffer(input);
    args.output = clattn::binding_buffer(output);
    CHECK(plan.enqueue(nullptr, args) == CLATTN_SUCCESS);
    CHECK(clEnqueueReadBuffer(of.context.queue(), output, CL_TRUE, 0, sizeof found, found, 0, nullptr, nullptr) ==
          CL_SUCCESS);
    for (int row = 0; row < LENGTH; row++) {
        double sum = 0, squares = 0;
        for (int d = 0; d < SIZE; d++) {
            sum += static_cast<double>(found[row * SIZE + d]);
            squares += static_cast<double>(found[row * SIZE + d]) * static_cast<double>(found[row * SIZE + d]);
        }
        CHECK(std::fabs(sum) < 1e-4 && std::fabs(squares / static_cast<double>(SIZE) - 1) < 1e-2);
    }
    CHECK(plan.enqueue(nullptr, of.args) == CLATTN_ERROR_INVALID_ARGUMENT); // attention's arguments

    // The decoder: step by step, and by generation.
    clattn::decoder_desc limits;
    limits.items = 1;
    limits.length = 2;
    limits.cache_length = SIZE;
    limits.logits = CLATTN_LOGITS_LAST;
    clattn::decoder_state state;
    clattn::decoder_begin_args beginning;
    clattn::decoder_args step;
    beginning.items = 1;
    step.input = args.input;
    step.length = 2;
    CHECK(plan.create(model, limits) == CLATTN_SUCCESS && state.create(plan) == CLATTN_SUCCESS && state.bytes() > 0);
    CHECK(state.enqueue(nullptr, step) == CLATTN_ERROR_INVALID_ARGUMENT); // before the beginning
    CHECK(state.begin(nullptr, beginning) == CLATTN_SUCCESS);
    cl_event done = nullptr;
    CHECK(state.enqueue(nullptr, step, nullptr, &done) == CLATTN_SUCCESS && done && state.length(0) == 2);
    const size_t parents[1] = {0};
    CHECK(state.reorder(nullptr, 1, parents, done) == CLATTN_SUCCESS);
    CHECK(state.truncate(1) == CLATTN_SUCCESS && state.length(0) == 1);
    CHECK(state.truncate(2) == CLATTN_SUCCESS && state.length(0) == 1);
    clReleaseEvent(done);

    clattn::generate_desc generation;
    clattn::generated results;
    int32_t generated[4] = {-1, -1, -1, -1};
    size_t length = 0;
    const size_t prompt_length = LENGTH;
    generation.max_tokens = 4;
    results.tokens = generated;
    results.lengths = &length;
    CHECK(state.generate(nullptr, generation, tokens, &prompt_length, results) == CLATTN_SUCCESS && length == 4);
    for (int32_t token : generated)
        CHECK(token >= 0 && token < SIZE);
    CHECK(plan.enqueue(nullptr, args) == CLATTN_ERROR_INVALID_ARGUMENT); // the encoder's arguments
    clReleaseMemObject(input);
    clReleaseMemObject(output);

    clattn::transformer_desc preset;
    clattn::stack_desc encoder, decoder;
    CHECK(clattn::transformer_preset(CLATTN_PRESET_BERT_BASE, preset, encoder, decoder) == CLATTN_SUCCESS);
    CHECK(preset.encoder == &encoder && !preset.decoder && encoder.layers == 12);

    clattn::stack_desc stages[CLATTN_VISION_STAGES];
    clattn_name_format format;
    CHECK(clattn::vision_preset(CLATTN_VISION_SWIN_TINY, preset, stages, &format) == CLATTN_SUCCESS);
    CHECK(preset.encoder == stages && stages[0].next == &stages[1] && format == CLATTN_NAME_FORMAT_SWIN);
    CHECK(clattn::vision_preset(static_cast<clattn_vision>(99), preset, stages) == CLATTN_ERROR_INVALID_ARGUMENT);
}

// An object of somebody's that holds a C handle and has opencl.hpp's call operator.
template <typename Handle> struct holder {
    const Handle &operator()() const
    {
        return held;
    }
    Handle held;
};

void handles_and_events_convert()
{
    attending of;
    holder<cl_command_queue> queue = {of.context.queue()};
    holder<cl_mem> memory = {of.arrays.query};
    CHECK(clattn::handle<cl_command_queue>(queue) == queue.held && !clattn::handle<cl_command_queue>());
    clattn_binding binding = clattn::binding_buffer(memory, 3);
    CHECK(binding.buffer == memory.held && binding.offset == 3 && binding.kind == CLATTN_BINDING_KIND_BUFFER);
    CHECK(clattn::binding_image(memory.held).kind == CLATTN_BINDING_KIND_IMAGE);
    static_assert(!std::is_convertible<holder<cl_mem>, clattn::handle<cl_command_queue>>::value &&
                      !std::is_convertible<int, clattn::wait_list>::value &&
                      !std::is_convertible<std::vector<int>, clattn::wait_list>::value,
                  "a handle of another type is refused by the compiler");
    cl_event event = nullptr;
    std::vector<holder<cl_event>> held;
    CHECK(clattn::wait_list(held).count() == 0 && !clattn::wait_list(held).events());
    CHECK(clattn::wait_list().count() == 0 && clattn::wait_list(nullptr).count() == 0);
    CHECK(of.context.run(queue, of.desc, of.args, held, &event) == CLATTN_SUCCESS && event);
    held.assign(2, {event});
    CHECK(clattn::wait_list(held).count() == 2 && clattn::wait_list(held).events() == &held[0].held);
    const cl_event two[2] = {held[0].held, held[1].held};
    CHECK(clattn::wait_list(two).count() == 2 && clattn::wait_list(two).events() == two);
    CHECK(of.context.run(queue, of.desc, of.args, held) == CLATTN_SUCCESS && of.is_right());
    clReleaseEvent(event);

    clattn_layout layout = clattn::layout_contiguous(CLATTN_DTYPE_F16, {2, 3, 5});
    CHECK(layout.rank == 3 && layout.extent[2] == 5 && layout.stride[0] == 15 && layout.stride[2] == 1);
    CHECK(clattn::layout_contiguous(CLATTN_DTYPE_F16, {1, 1, 1, 1, 1, 1}).dtype == CLATTN_DTYPE_NONE);
}

} // namespace

std::vector<test> returning_tests()
{
    return {{"attention_is_right", attention_is_right},
            {"every_operator_is_called_by_its_structs", every_operator_is_called_by_its_structs},
            {"handles_have_one_owner", handles_have_one_owner},
            {"failures_are_statuses", failures_are_statuses},
            {"jobs_make_plans", jobs_make_plans},
            {"controls_watch", controls_watch},
            {"a_group_of_one_attends", a_group_of_one_attends},
            {"wisdom_travels", wisdom_travels},
            {"devices_are_listed", devices_are_listed},
            {"models_run", models_run},
            {"handles_and_events_convert", handles_and_events_convert}};
}
