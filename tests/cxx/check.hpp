// The harness of the C++ tests, in TAP: cmocka's leaves a test by longjmp, past destructors.
#ifndef TESTS_CXX_CHECK_HPP
#define TESTS_CXX_CHECK_HPP

#include <vector>

#include <clattn/clattn.h>

// Fails the test that runs, with the condition's text; the test goes on.
#define CHECK(condition) check(condition, __FILE__, __LINE__, #condition)
void check(bool holds, const char *file, int line, const char *condition);

struct test {
    const char *name;
    void (*run)();
};

// Each file's tests.
std::vector<test> returning_tests();
std::vector<test> throwing_tests();
std::vector<test> opencl_tests();
std::vector<test> io_tests();
std::vector<test> pictures_tests();

// A small attention in host memory: (batch, heads, length, size) arrays, and the output by its definition.
struct problem {
    enum { HEADS = 2, QUERIES = 3, KEYS = 5, SIZE = 4 };
    problem();
    bool is_right(const std::vector<float> &output) const;
    std::vector<float> query, key, value, expected;
};

// The layouts of the problem's arrays.
void describe(clattn_attention_desc &desc);

// The problem's arrays in buffers of `context`, bound by `args`.
struct buffers {
    explicit buffers(cl_context context);
    ~buffers();
    buffers(const buffers &) = delete;
    buffers &operator=(const buffers &) = delete;
    void bind(clattn_attention_args &args) const;
    std::vector<float> read(cl_command_queue queue); // the output, which is overwritten by NaN
    problem host;
    cl_mem query, key, value, output;
};

#endif
