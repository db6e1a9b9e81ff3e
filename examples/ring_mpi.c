/* Causal attention to a sequence that lies in parts on mpirun's ranks: each passes keys and values on, until it has seen all.  All scores
 * are 0 and rank r's values are r, so that an output is the mean of the values up to its row. */
#include <math.h>
#include <stdio.h>

#include <clattn/clattn.h>
#include <clattn/mpi.h>

enum { HEADS = 2, ROWS = 64, SIZE = 32, NUMBERS = HEADS * ROWS * SIZE }; /* of a rank's part */

int main(int argc, char **argv)
{
    static float zeros[NUMBERS], values[NUMBERS], output[NUMBERS];
    clattn_context *context;
    clattn_group group;
    clattn_group_attention *attention = NULL;
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    clattn_attention_desc part = CLATTN_ATTENTION_DESC_INIT;
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    float before = 0, apart = 0;
    MPI_Init(&argc, &argv);
    if (clattn_context_create(NULL, &context) || clattn_group_mpi_create(MPI_COMM_WORLD, 0, &group))
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < NUMBERS; i++)
        values[i] = (float)group.rank;
    cl_context opencl = clattn_context_opencl_context(context);
    cl_mem key = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, NULL);
    cl_mem value = clCreateBuffer(opencl, CL_MEM_COPY_HOST_PTR, sizeof values, values, NULL);
    cl_mem result = clCreateBuffer(opencl, CL_MEM_READ_WRITE, sizeof output, NULL, NULL);
    part.query = part.key = part.value = part.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, ROWS, SIZE);
    part.causal = 1; /* in the whole sequence */
    desc.attention = &part;
    args.query = args.key = clattn_binding_buffer(key, 0);
    args.value = clattn_binding_buffer(value, 0);
    args.output = clattn_binding_buffer(result, 0);
    if (clattn_group_attention_create(context, &group, &desc, &attention) ||
        clattn_group_attention_run(attention, NULL, &args, 0, NULL, NULL))
        MPI_Abort(MPI_COMM_WORLD, 2);
    clEnqueueReadBuffer(clattn_context_queue(context), result, CL_TRUE, 0, sizeof output, output, 0, NULL, NULL);
    for (int rank = 0; rank < group.rank; rank++)
        before += (float)(rank * ROWS);
    for (int i = 0; i < NUMBERS; i++) {
        const int row = i / SIZE % ROWS + 1;
        const float mean = (before + (float)(group.rank * row)) / (float)(group.rank * ROWS + row);
        apart = fmaxf(apart, fabsf(output[i] - mean));
    }
    printf("rank %d: outputs differ from the means by at most %.1e\n", (int)group.rank, (double)apart);
    clReleaseMemObject(key);
    clReleaseMemObject(value);
    clReleaseMemObject(result);
    clattn_group_attention_release(&attention);
    clattn_group_mpi_release(&group);
    clattn_context_release(&context);
    MPI_Finalize();
    return !(apart < 1e-5F);
}
