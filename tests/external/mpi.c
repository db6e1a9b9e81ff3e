/* An application whose ranks attend to one sequence, and that knows libclattn-mpi by pkg-config or CMake alone.  Each rank exits with 0
 * if its rows are right. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>

#include <clattn/clattn.h>
#include <clattn/mpi.h>

enum { HEADS = 2, ROWS = 8, SIZE = 4, COUNT = HEADS * ROWS * SIZE };

/* Element `d` of a row of the whole sequence, which is query, key and value. */
static double element(int head, int row, int d)
{
    return sin(head * 3.1 + row * 0.7 + d * 1.9);
}

static double expected(int head, int row, int d)
{
    double sum = 0, out = 0;
    for (int key = 0; key <= row; key++) { /* causal */
        double score = 0;
        for (int i = 0; i < SIZE; i++)
            score += element(head, row, i) * element(head, key, i) / sqrt(SIZE);
        sum += exp(score);
        out += exp(score) * element(head, key, d);
    }
    return out / sum;
}

/* Row `i / SIZE` of the rank's part of a head, counted in the whole sequence. */
static int row_of(int rank, int i)
{
    return rank * ROWS + i / SIZE % ROWS;
}

static clattn_status attend(const clattn_group *group, clattn_context *context, float *x, float *y)
{
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem input = clCreateBuffer(opencl, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, COUNT * sizeof *x, x, NULL);
    cl_mem output = clCreateBuffer(opencl, CL_MEM_READ_WRITE, COUNT * sizeof *y, NULL, NULL);
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_attention_desc part = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    clattn_group_attention *attention = NULL;
    part.query = part.key = part.value = part.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, ROWS, SIZE);
    part.causal = 1;
    desc.attention = &part;
    args.query = args.key = args.value = clattn_binding_buffer(input, 0);
    args.output = clattn_binding_buffer(output, 0);
    clattn_status status = clattn_group_attention_create(context, group, &desc, &attention);
    if (status == CLATTN_SUCCESS)
        status = clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL);
    if (status == CLATTN_SUCCESS && clEnqueueReadBuffer(clattn_context_queue(context), output, CL_TRUE, 0,
                                                        COUNT * sizeof *y, y, 0, NULL, NULL) != CL_SUCCESS)
        status = CLATTN_ERROR_OPENCL;
    clattn_group_attention_release(&attention);
    clReleaseMemObject(input);
    clReleaseMemObject(output);
    return status;
}

int main(int argc, char **argv)
{
    float x[COUNT], y[COUNT];
    clattn_context *context = NULL;
    clattn_group group;
    int wrong = 0;
    MPI_Init(&argc, &argv);
    clattn_status status = clattn_group_mpi_create(MPI_COMM_WORLD, 0, &group);
    if (status == CLATTN_SUCCESS)
        status = clattn_context_create(NULL, &context);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)element(i / (ROWS * SIZE), row_of(group.rank, i), i % SIZE);
    if (status == CLATTN_SUCCESS)
        status = attend(&group, context, x, y);
    for (int i = 0; i < COUNT && status == CLATTN_SUCCESS; i++)
        wrong += !(fabs(y[i] - expected(i / (ROWS * SIZE), row_of(group.rank, i), i % SIZE)) <= 2e-6);
    printf("rank %d of %d: %s, %d wrong values\n", group.rank, group.ranks, clattn_status_string(status), wrong);
    if (status != CLATTN_SUCCESS || wrong)
        MPI_Abort(MPI_COMM_WORLD, 1);
    clattn_context_release(&context);
    clattn_group_mpi_release(&group);
    MPI_Finalize();
    return 0;
}
