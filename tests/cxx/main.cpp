#include "check.hpp"

#include <cmath>
#include <cstdio>
#include <limits>

static bool failed;

void check(bool holds, const char *file, int line, const char *condition)
{
    if (!holds) {
        std::printf("# %s:%d: error: %s\n", file, line, condition);
        failed = true;
    }
}

static std::vector<float> wave(size_t count, double step)
{
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++)
        values[i] = static_cast<float>(std::sin(static_cast<double>(i + 1) * step));
    return values;
}

problem::problem()
    : query(wave(HEADS * QUERIES * SIZE, 0.7)), key(wave(HEADS * KEYS * SIZE, 1.3)),
      value(wave(HEADS * KEYS * SIZE, 2.9)), expected(HEADS * QUERIES * SIZE)
{
    for (size_t row = 0; row < HEADS * QUERIES; row++) {
        size_t first = row / QUERIES * KEYS;
        double sum = 0, output[SIZE] = {};
        for (size_t j = first; j < first + KEYS; j++) {
            double score = 0;
            for (size_t d = 0; d < SIZE; d++)
                score += static_cast<double>(query[row * SIZE + d]) * static_cast<double>(key[j * SIZE + d]);
            double weight = std::exp(score / std::sqrt(static_cast<double>(SIZE)));
            sum += weight;
            for (size_t d = 0; d < SIZE; d++)
                output[d] += weight * static_cast<double>(value[j * SIZE + d]);
        }
        for (size_t d = 0; d < SIZE; d++)
            expected[row * SIZE + d] = static_cast<float>(output[d] / sum);
    }
}

bool problem::is_right(const std::vector<float> &output) const
{
    for (size_t i = 0; i < expected.size(); i++)
        if (!(std::fabs(output[i] - expected[i]) < 1e-5f))
            return false;
    return output.size() == expected.size();
}

void describe(clattn_attention_desc &desc)
{
    desc.query = desc.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, problem::HEADS, problem::QUERIES, problem::SIZE);
    desc.key = desc.value = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, problem::HEADS, problem::KEYS, problem::SIZE);
}

static cl_mem filled(cl_context context, std::vector<float> &values)
{
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, values.size() * sizeof values[0],
                                   values.data(), &code);
    CHECK(code == CL_SUCCESS);
    return buffer;
}

buffers::buffers(cl_context context)
    : query(filled(context, host.query)), key(filled(context, host.key)), value(filled(context, host.value)),
      output(filled(context, host.expected))
{
}

buffers::~buffers()
{
    for (cl_mem buffer : {query, key, value, output})
        clReleaseMemObject(buffer);
}

void buffers::bind(clattn_attention_args &args) const
{
    args.query = clattn_binding_buffer(query, 0);
    args.key = clattn_binding_buffer(key, 0);
    args.value = clattn_binding_buffer(value, 0);
    args.output = clattn_binding_buffer(output, 0);
}

std::vector<float> buffers::read(cl_command_queue queue)
{
    std::vector<float> values(host.expected.size()), poison(values.size(), std::numeric_limits<float>::quiet_NaN());
    size_t bytes = values.size() * sizeof values[0];
    CHECK(clEnqueueReadBuffer(queue, output, CL_TRUE, 0, bytes, values.data(), 0, nullptr, nullptr) == CL_SUCCESS);
    CHECK(clEnqueueWriteBuffer(queue, output, CL_TRUE, 0, bytes, poison.data(), 0, nullptr, nullptr) == CL_SUCCESS);
    return values;
}

int main()
{
    std::vector<test> tests = returning_tests();
    for (const std::vector<test> &more : {
             throwing_tests(),
#ifdef HAVE_OPENCL_HPP
             opencl_tests(),
#endif
#ifdef HAVE_IO
             io_tests(),
#endif
#ifdef HAVE_PICTURES
             pictures_tests(),
#endif
         })
        tests.insert(tests.end(), more.begin(), more.end());
    std::printf("1..%d\n", static_cast<int>(tests.size()));
    int failures = 0;
    for (size_t i = 0; i < tests.size(); i++) {
        failed = false;
        tests[i].run();
        failures += failed;
        std::printf("%s %d - %s\n", failed ? "not ok" : "ok", static_cast<int>(i + 1), tests[i].name);
        std::fflush(stdout);
    }
    return failures != 0;
}
