// Objects of Khronos' CL/opencl.hpp are taken wherever C handles are, whichever header comes first.
#define CL_HPP_TARGET_OPENCL_VERSION 120
#define CL_HPP_MINIMUM_OPENCL_VERSION 120
#ifdef OPENCL_HPP_LAST
#define CL_TARGET_OPENCL_VERSION 120
#include <clattn/clattn.hpp>
#include <CL/opencl.hpp>
#else
#include <CL/opencl.hpp>
#include <clattn/clattn.hpp>
#endif

#include "check.hpp"

namespace
{

struct application {
    application()
    {
        clattn::context chooser;
        CHECK(chooser.create() == CLATTN_SUCCESS);
        device = cl::Device(chooser.opencl_device(), true);
        context = cl::Context(device);
        queue = cl::CommandQueue(context, device);
        CHECK(clattn_adopting.create(context, device, queue) == CLATTN_SUCCESS);
    }
    cl::Buffer buffer(std::vector<float> &values) const
    {
        return cl::Buffer(context, values.begin(), values.end(), false);
    }
    cl::Device device;
    cl::Context context;
    cl::CommandQueue queue;
    clattn::context clattn_adopting;
};

void objects_of_opencl_hpp_are_taken()
{
    application app;
    problem host;
    const clattn::context &context = app.clattn_adopting;
    CHECK(context.opencl_context() == app.context() && context.queue() == app.queue());
    cl::Buffer query = app.buffer(host.query), key = app.buffer(host.key), value = app.buffer(host.value);
    cl::Buffer output(app.context, CL_MEM_READ_WRITE, host.expected.size() * sizeof(float));
    clattn::attention_desc desc;
    clattn::attention_args args;
    describe(desc);
    args.query = clattn::binding_buffer(query);
    args.key = clattn::binding_buffer(key);
    args.value = clattn::binding_buffer(value);
    args.output = clattn::binding_buffer(output);

    std::vector<float> found(host.expected.size());
    cl::UserEvent gate(app.context);
    std::vector<cl::Event> waited = {gate};
    cl::Event first, done;
    clattn::plan plan;
    CHECK(plan.create(context, desc) == CLATTN_SUCCESS);
    CHECK(plan.enqueue(app.queue, args, waited, &first) == CLATTN_SUCCESS);
    CHECK(first.getInfo<CL_EVENT_COMMAND_EXECUTION_STATUS>() != CL_COMPLETE);
    CHECK(gate.setStatus(CL_COMPLETE) == CL_SUCCESS);
    CHECK(context.run(app.queue, desc, args, first, &done) == CLATTN_SUCCESS);
    CHECK(done.wait() == CL_SUCCESS);
    CHECK(cl::copy(app.queue, output, found.begin(), found.end()) == CL_SUCCESS);
    CHECK(host.is_right(found));
}

// What a cl::Event held is released when it gets another event, and nothing is released twice.
void events_are_owned_by_their_objects()
{
    application app;
    buffers arrays(app.context());
    clattn::attention_desc desc;
    clattn::attention_args args;
    describe(desc);
    arrays.bind(args);
    cl::UserEvent former(app.context);
    cl::Event event = former;
    CHECK(former.getInfo<CL_EVENT_REFERENCE_COUNT>() == 2);
    CHECK(app.clattn_adopting.run(app.queue, desc, args, nullptr, &event) == CLATTN_SUCCESS);
    CHECK(former.getInfo<CL_EVENT_REFERENCE_COUNT>() == 1);
    CHECK(event() != former() && event.wait() == CL_SUCCESS);
    cl_event kept = event();
    CHECK(app.clattn_adopting.run(app.queue, desc, clattn::attention_args(), {}, &event) ==
          CLATTN_ERROR_INVALID_ARGUMENT);
    CHECK(event() == kept);
    former.setStatus(CL_COMPLETE);
    CHECK(arrays.host.is_right(arrays.read(app.queue())));
}

void images_are_bound()
{
    application app;
    if (!app.device.getInfo<CL_DEVICE_IMAGE_SUPPORT>())
        return;
    float pixel[4] = {0.25f, 0.5f, 0.75f, 1}, found[4] = {};
    cl::Image2D image(app.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, cl::ImageFormat(CL_RGBA, CL_FLOAT), 1, 1, 0,
                      pixel);
    cl::Buffer array(app.context, CL_MEM_READ_WRITE, sizeof found);
    clattn::image_desc desc;
    clattn::image_args args;
    desc.array = clattn::layout_contiguous(CLATTN_DTYPE_F32, {1, 1, 4});
    args.image = clattn::binding_image(image);
    args.array = clattn::binding_buffer(array);
    CHECK(app.clattn_adopting.run(app.queue, desc, args) == CLATTN_SUCCESS);
    CHECK(app.queue.enqueueReadBuffer(array, CL_TRUE, 0, sizeof found, found) == CL_SUCCESS);
    for (int i = 0; i < 4; i++)
        CHECK(found[i] == pixel[i]);
}

} // namespace

std::vector<test> opencl_tests()
{
    return {{"objects_of_opencl_hpp_are_taken", objects_of_opencl_hpp_are_taken},
            {"events_are_owned_by_their_objects", events_are_owned_by_their_objects},
            {"images_are_bound", images_are_bound}};
}
