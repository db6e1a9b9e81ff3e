/* What a model, its trainer and a plan of steps say they take of the device's memory is what the library takes at most.
 *
 * Holds: clattn_transformer_weight_bytes, clattn_trainer_bytes and clattn_plan_workspace_size, whose sum `clattn train` reports as
 * device_bytes. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "support/device.h"
#include "support/nn/training_case.h"
#include "support/suite.h"

/* ---- the bytes of the buffers that the library has made and not released, and the most of them ---- */

static atomic_size_t held, most;

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void *from, cl_int *code)
{
    const cl_mem buffer = clCreateBuffer(context, flags, bytes, from, code);
    if (buffer)
        held += bytes;
    if (held > most)
        most = held;
    return buffer;
}

static cl_int CL_API_CALL release_memory(cl_mem memory)
{
    size_t bytes = 0;
    cl_uint references = 0;
    cl_mem whole = NULL;
    clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    clGetMemObjectInfo(memory, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL);
    clGetMemObjectInfo(memory, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(cl_mem), &whole, NULL);
    if (references == 1 && !whole)
        held -= bytes;
    return clReleaseMemObject(memory);
}

static void *get_proc(void *user, const char *name)
{
    __typeof__(&clCreateBuffer) create = create_buffer;
    __typeof__(&clReleaseMemObject) release = release_memory;
    void *function = dlsym(RTLD_DEFAULT, name);
    (void)user;
    if (!strcmp(name, "clCreateBuffer"))
        memcpy(&function, &create, sizeof function);
    if (!strcmp(name, "clReleaseMemObject"))
        memcpy(&function, &release, sizeof function);
    return function;
}

/* ---- the test ---- */

/* A step of a whole batch and one of a part of it, which needs gradients once more. */
static void peak(void **state)
{
    clattn_update_args update = CLATTN_UPDATE_ARGS_INIT;
    training_world w;
    clattn_plan *plan = NULL;
    (void)state;
    update.step = 1;
    update.learning_rate = 0.01;
    training_open(&w, &training_cases[0]);
    assert_status(device_context(), clattn_training_plan_create(w.trainer, &w.desc, NULL, &plan), CLATTN_SUCCESS);
    const size_t workspace = clattn_plan_workspace_size(plan), model = clattn_transformer_weight_bytes(w.model);
    clattn_plan_release(&plan);
    for (int accumulates = 0; accumulates < 2; accumulates++) {
        most = held;
        training_step(&w, 0, accumulates, 0);
        assert_status(device_context(), clattn_trainer_update(w.trainer, NULL, &update, 0, NULL, NULL), CLATTN_SUCCESS);
        assert_cl(clFinish(clattn_context_queue(device_context())));
        const size_t said = model + clattn_trainer_bytes(w.trainer) + workspace;
        print_message("# %zu bytes, said to be %zu, of which the model has %zu, the workspace %zu\n", (size_t)most,
                      said, model, workspace);
        assert_in_range(most, said, said + said / 100);
    }
    training_close(&w);
}

int main(int argc, char **argv)
{
    device_use_functions(get_proc);
    suite_add(peak, "what a step of training takes of the device's memory");
    return suite_run("training memory", argc, argv);
}
