/* What ranks have beside their own arrays grows with their parts: twice as many ranks of one sequence have about as much together, and a
 * sequence of twice the length about twice as much.
 *
 * Holds: docs/scale.md, a rank's memory in the table of modes. */
#include <stdatomic.h>
#include <string.h>

#include "support/core/inject.h"
#include "support/group/parts.h"
#include "support/suite.h"

enum { HEADS = 8, SIZE = 16, LENGTH = 256 };

static atomic_size_t held; /* bytes of all buffers that the library has made */

static cl_mem CL_API_CALL create(cl_context opencl, cl_mem_flags flags, size_t bytes, void *data, cl_int *code)
{
    cl_mem buffer = clCreateBuffer(opencl, flags, bytes, data, code);
    inject_count(INJECT_MEMORY, buffer != NULL);
    held += buffer ? bytes : 0;
    return buffer;
}

static void *get_proc(void *user, const char *name)
{
    __typeof__(clCreateBuffer) *const own = create;
    void *pointer = inject_get_proc(user, name);
    if (!strcmp(name, "clCreateBuffer"))
        memcpy(&pointer, &own, sizeof pointer);
    return pointer;
}

typedef struct memory_case {
    clattn_group_mode mode;
    clattn_group_order order;
    bool backward;
} memory_case;

/* Bytes that all ranks take to attend once. */
static size_t taken(const memory_case *c, int ranks, size_t length)
{
    static group_part parts[GROUP_MOST_RANKS];
    static struct backward_job gradients;
    const attention_case test = {"plain", ALL, .dim = {1, HEADS, HEADS, length, length, SIZE, SIZE}};
    const group_way way = {ranks, c->mode, c->order, 0};
    clattn_attention_desc desc;
    test_job whole = {0};
    if (c->backward)
        backward_prepare(&gradients, &test);
    else
        desc = attention_prepare(&whole, &test, 7);
    for (int i = 0; i < ranks; i++)
        if (c->backward)
            group_part_make_backward(&parts[i], &gradients, &way, i);
        else
            group_part_make(&parts[i], &whole, &desc, &way, i);
    held = 0;
    assert_int_equal(group_parts_run(parts, device_context(), &way, 1), CLATTN_SUCCESS);
    const size_t bytes = held;
    for (int i = 0; i < ranks; i++)
        group_part_release(&parts[i]);
    if (c->backward)
        backward_release(&gradients);
    else
        job_release(&whole);
    device_release(); /* and what it leases */
    return bytes;
}

static void grows_with_parts(const void *which, const char *unused)
{
    (void)unused;
    const size_t two = taken(which, 2, LENGTH), four = taken(which, 4, LENGTH), longer = taken(which, 4, 2 * LENGTH);
    print_message("# %zu bytes of 2 ranks, %zu of 4, %zu of twice the length\n", two, four, longer);
    /* What is leased for a call depends on which ranks call at the same time.  Everything on each rank would be twice as much of four,
     * and the square of a length four times as much. */
    assert_true(2 * four < 3 * two);
    assert_true(longer < 3 * four);
}

int main(int argc, char **argv)
{
    static memory_case cases[12];
    static const char *const modes[] = {"ring", "gather", "heads"};
    device_use_functions(get_proc);
    for (int i = 0; i < 12; i++) {
        cases[i] = (memory_case){(clattn_group_mode)(i / 4), (clattn_group_order)(i & 1), i & 2};
        suite_add_case(grows_with_parts, &cases[i], "", "group memory: %s, %s, %s", modes[i / 4],
                       i & 1 ? "zigzag" : "straight", i & 2 ? "backward" : "forward");
    }
    return suite_run("group_memory", argc, argv);
}
