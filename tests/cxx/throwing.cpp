// With CLATTN_HPP_ENABLE_EXCEPTIONS failures are thrown, with status and message.
#define CLATTN_HPP_ENABLE_EXCEPTIONS
#include <clattn/clattn.hpp>

#include <cstring>
#include <future>

#include "check.hpp"

namespace
{

// Returns the status that `call` throws, SUCCESS if it throws nothing, and the message in `message`.
template <typename Call> clattn_status thrown_by(Call call, std::string &message)
{
    try {
        call();
    } catch (const clattn::error &error) {
        message = error.what();
        return error.status();
    }
    message.clear();
    return CLATTN_SUCCESS;
}

void failures_are_thrown()
{
    std::string message;
    clattn::context context;
    clattn::context_params params;
    params.device = "no platform:no device";
    CHECK(thrown_by([&] { context.create(params); }, message) == CLATTN_ERROR_NO_DEVICE);
    CHECK(message.find("no platform:no device") != std::string::npos && message == context.message());
    CHECK(!context);
    context.create();

    clattn::plan plan;
    clattn::attention_desc desc;
    CHECK(thrown_by([&] { plan.create(context, desc); }, message) == CLATTN_ERROR_INVALID_LAYOUT);
    CHECK(!message.empty() && message == context.message() && !plan);
    const char *reason = nullptr;
    CHECK(context.supports(desc, &reason) == CLATTN_ERROR_INVALID_LAYOUT && reason); // an answer, not an error

    describe(desc);
    plan.create(context, desc);
    CHECK(thrown_by([&] { plan.enqueue(nullptr, clattn::attention_args()); }, message) ==
          CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(!message.empty() && message == context.message());
    std::string before = message;
    context.reset(); // the plan keeps what the message needs
    CHECK(thrown_by([&] { plan.enqueue(nullptr, clattn::attention_args()); }, message) ==
          CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(message == before);
    clattn::plan moved = std::move(plan);
    CHECK(thrown_by([&] { moved.enqueue(nullptr, clattn::attention_args()); }, message) ==
          CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(message == before);
    CHECK(thrown_by([&] { plan.enqueue(nullptr, clattn::attention_args()); }, message) ==
          CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(!message.empty() && message != before); // of the empty plan
    clattn::error silent(CLATTN_ERROR_BUSY, "");
    CHECK(!std::strcmp(silent.what(), clattn_status_string(CLATTN_ERROR_BUSY)));
}

void what_succeeds_throws_nothing()
{
    clattn::context context;
    context.create();
    buffers arrays(context.opencl_context());
    clattn::attention_desc desc;
    clattn::attention_args args;
    describe(desc);
    arrays.bind(args);
    CHECK(context.run(nullptr, desc, args) == CLATTN_SUCCESS);
    CHECK(arrays.host.is_right(arrays.read(context.queue())));
}

// The first job's callback waits, so the second job is neither made nor begun meanwhile.
void a_busy_job_is_no_error()
{
    clattn::context context;
    context.create();
    clattn::attention_desc desc;
    describe(desc);
    std::promise<void> gate;
    std::shared_future<void> opened = gate.get_future().share();
    clattn::plan_options options;
    options.background.callback = [](void *user, clattn_job *) {
        static_cast<std::shared_future<void> *>(user)->wait();
    };
    options.background.user = &opened;
    clattn::job first, second;
    first.create(context, desc, options);
    second.create(context, desc);
    clattn::plan plan;
    CHECK(second.result(plan) == CLATTN_ERROR_BUSY && !plan);
    second.cancel();
    gate.set_value();
    std::string message;
    CHECK(thrown_by([&] { second.wait(plan); }, message) == CLATTN_ERROR_CANCELLED);
    CHECK(!message.empty() && !plan);
    CHECK(first.wait(plan) == CLATTN_SUCCESS && plan);

    desc.query.extent[3] = 3; // the keys have 4
    CHECK(thrown_by([&] { first.create(context, desc); }, message) == CLATTN_ERROR_INVALID_LAYOUT);
    CHECK(message == context.message() && !first);
    describe(desc);
    options = clattn::plan_options();
    options.solver = "none of that name";
    clattn_status status = thrown_by(
        [&] {
            first.create(context, desc, options);
            first.wait(plan);
        },
        message);
    CHECK(status == CLATTN_ERROR_UNSUPPORTED || status == CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(message.find(options.solver) != std::string::npos);
}

} // namespace

std::vector<test> throwing_tests()
{
    return {{"failures_are_thrown", failures_are_thrown},
            {"what_succeeds_throws_nothing", what_succeeds_throws_nothing},
            {"a_busy_job_is_no_error", a_busy_job_is_no_error}};
}
