// first.c in C++: what was made is released when its owner goes.  `CL/opencl.hpp` has owners of OpenCL's objects, which
// clattn takes; a program without it hands over C handles.
#define CL_HPP_TARGET_OPENCL_VERSION 120
#define CL_HPP_MINIMUM_OPENCL_VERSION 120
#include <CL/opencl.hpp>

#define CLATTN_HPP_ENABLE_EXCEPTIONS // without it, each call's status has to be looked at
#include <clattn/clattn.hpp>

#include <iostream>
#include <vector>

static std::vector<float> keys = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
static std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static std::vector<float> queries = {0, 60, 0, 0, 0, 0, 60, 0}; // like the second and the third key

static bool attend()
{
    clattn::context context;
    context.create(); // the best device here; create(cl_context, cl_device, cl_queue) adopts an application's own
    cl::Context opencl(context.opencl_context(), true);
    cl::CommandQueue queue(context.queue(), true);
    cl::Buffer query(opencl, queries.begin(), queries.end(), true);
    cl::Buffer key(opencl, keys.begin(), keys.end(), true);
    cl::Buffer value(opencl, values.begin(), values.end(), true);
    cl::Buffer output(opencl, CL_MEM_READ_WRITE, queries.size() * sizeof(float));

    clattn::attention_desc desc; // what: (batch, heads, length, size) of each array
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 2, 4);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, 1, 3, 4);
    clattn::plan plan;
    plan.create(context, desc); // compiles

    clattn::attention_args args; // where: a buffer for each, refused if it is NULL
    args.query = clattn::binding_buffer(query);
    args.key = clattn::binding_buffer(key);
    args.value = clattn::binding_buffer(value);
    args.output = clattn::binding_buffer(output);
    cl::Event done;
    plan.enqueue(queue, args, nullptr, &done); // does not block

    std::vector<float> found(queries.size());
    std::vector<cl::Event> waited = {done};
    cl_int code =
        queue.enqueueReadBuffer(output, CL_TRUE, 0, found.size() * sizeof(float), found.data(), &waited, nullptr);
    for (std::size_t i = 0; i < found.size(); i++)
        std::cout << (i % 4 ? " " : i ? "\nfound " : "found ") << found[i];
    std::cout << '\n';
    return code == CL_SUCCESS && found[0] == 5 && found[7] == 12;
}

int main()
{
    try {
        return attend() ? 0 : 1;
    } catch (const clattn::error &error) {
        std::cerr << clattn_status_string(error.status()) << ": " << error.what() << '\n';
        return 1;
    }
}
