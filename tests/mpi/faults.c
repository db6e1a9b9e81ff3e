/* The ranks of test_mpi.py's Faults and of test_network.py: faults MODE KIND [PHASE [NUMBER]], run by mpirun.
 *
 * All ranks attend by MODE, ring, gather or heads, forward and, but for gather, backward: once without a fault, to have what results
 * are expected and all kernels compiled, and then with what KIND says.
 *
 *   killed     the last rank ends itself
 *   slow       the last rank takes a quarter of the time-out for its exchanges with the others; all have the same bits as before
 *   truncated  the last rank sends less than it should, and more than nothing
 *   different  the last rank has another description: PHASE is what differs, mode, causal or rows
 *   steady     all ranks go on running, for as many seconds as PHASE says, or until they fail
 *
 * PHASE is create, before (between creating and running), forward or backward; the fault is at exchange NUMBER of it, counted from 0.
 *
 * Each rank prints lines, each in one call: "rank R: " and the message of its failure, or "the same" or "running".  The exit status is 1
 * if a result is not what the kind is about. */
#include <clattn/clattn.h>
#include <clattn/mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADS = 12, ROWS = 64, SIZE = 16, NUMBERS = HEADS * ROWS * SIZE }; /* of a rank */
enum { STEADY_MS = 5000, TIMEOUT_MS = 2000, SLOW_MS = 500, SHORTER = 8 };
enum array { QUERY, KEY, VALUE, D_OUTPUT, OUTPUT, D_QUERY, D_KEY, D_VALUE, LSE, ARRAYS };

static const char *kind, *phase, *wanted_phase;
static long countdown; /* exchanges until the fault */
static bool is_faulty; /* this rank has it */
static clattn_group inner;
static clattn_context *context;
static cl_command_queue queue;
static cl_mem array[ARRAYS];

static void say(const char *text)
{
    printf("rank %d: %s\n", (int)inner.rank, text);
    fflush(stdout);
}

/* Ends all ranks. */
static void stop(const char *what)
{
    printf("rank %d: wrong: %s\n", (int)inner.rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void require(bool holds, const char *what)
{
    if (!holds)
        stop(what);
}

/* ---- the fault ---- */

static bool is_due(void)
{
    return is_faulty && strcmp(phase, wanted_phase) == 0 && countdown-- == 0;
}

static clattn_status exchange(void *user, const clattn_group_exchange *given, void **request,
                              char message[CLATTN_GROUP_MESSAGE])
{
    clattn_group_exchange own = *given;
    const bool due = is_due();
    if (due && strcmp(kind, "killed") == 0)
        raise(SIGKILL);
    if (due && strcmp(kind, "truncated") == 0)
        own.send_bytes -= SHORTER;
    if (is_faulty && strcmp(kind, "slow") == 0) /* what is exchanged with all others may wait for as many of these */
        usleep(1000 * SLOW_MS / (unsigned)(inner.ranks - 1));
    return inner.exchange(user, &own, request, message);
}

static clattn_group with_fault(void)
{
    clattn_group group = inner;
    group.exchange = exchange;
    return group;
}

/* ---- attention ---- */

typedef struct share {
    clattn_group_attention *forward, *backward; /* no backward by gather */
} share;

static clattn_attention_desc describe(bool backward, size_t rows, bool causal)
{
    clattn_attention_desc d = CLATTN_ATTENTION_DESC_INIT;
    d.query = d.key = d.value = d.output = clattn_layout_bhsd(CLATTN_DTYPE_F32, 1, HEADS, rows, SIZE);
    d.outputs.lse = clattn_layout_contiguous(CLATTN_DTYPE_F32, 3, (const size_t[3]){1, HEADS, rows});
    d.causal = causal;
    if (backward) {
        d.direction = CLATTN_DIRECTION_BACKWARD;
        d.gradients.output = d.gradients.query = d.gradients.key = d.gradients.value = d.query;
    }
    return d;
}

static clattn_status create(const clattn_group *group, clattn_group_mode mode, bool backward, size_t rows, bool causal,
                            clattn_group_attention **attention)
{
    clattn_group_attention_desc desc = CLATTN_GROUP_ATTENTION_DESC_INIT;
    const clattn_attention_desc own = describe(backward, rows, causal);
    desc.mode = mode;
    desc.attention = &own;
    return clattn_group_attention_create(context, group, &desc, attention);
}

static clattn_status create_both(const clattn_group *group, clattn_group_mode mode, share *s)
{
    clattn_status status = create(group, mode, false, ROWS, true, &s->forward);
    if (status == CLATTN_SUCCESS && mode != CLATTN_GROUP_MODE_GATHER)
        status = create(group, mode, true, ROWS, true, &s->backward);
    return status;
}

static clattn_status run(clattn_group_attention *attention, bool backward)
{
    clattn_attention_args args = CLATTN_ATTENTION_ARGS_INIT;
    cl_event done;
    args.query = clattn_binding_buffer(array[QUERY], 0);
    args.key = clattn_binding_buffer(array[KEY], 0);
    args.value = clattn_binding_buffer(array[VALUE], 0);
    args.output = clattn_binding_buffer(array[OUTPUT], 0);
    args.outputs.lse = clattn_binding_buffer(array[LSE], 0);
    if (backward) {
        args.gradients.output = clattn_binding_buffer(array[D_OUTPUT], 0);
        args.gradients.query = clattn_binding_buffer(array[D_QUERY], 0);
        args.gradients.key = clattn_binding_buffer(array[D_KEY], 0);
        args.gradients.value = clattn_binding_buffer(array[D_VALUE], 0);
    }
    const clattn_status status = clattn_group_attention_run(attention, queue, &args, 0, NULL, &done);
    if (status == CLATTN_SUCCESS) {
        clWaitForEvents(1, &done);
        clReleaseEvent(done);
    }
    return status;
}

static clattn_status run_both(const share *s)
{
    phase = "forward";
    clattn_status status = run(s->forward, false);
    phase = "backward";
    if (status == CLATTN_SUCCESS && s->backward)
        status = run(s->backward, true);
    return status;
}

static void make_arrays(void)
{
    static float numbers[NUMBERS];
    cl_int code = CL_SUCCESS;
    cl_context opencl = clattn_context_opencl_context(context);
    for (int i = 0; i < ARRAYS; i++) {
        for (int n = 0; n < NUMBERS; n++)
            numbers[n] = (float)(((n + i + 1) * 7919 + inner.rank * 104729) % 1009) / 505 - 1;
        array[i] = clCreateBuffer(opencl, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof numbers, numbers, &code);
        require(code == CL_SUCCESS, "no memory");
    }
}

/* Reads the results, and clears them. */
static void take_results(const share *s, float results[4][NUMBERS])
{
    static const float zeros[NUMBERS];
    for (int i = 0; i < 4; i++) {
        memset(results[i], 0, sizeof results[i]);
        if (i == 0 || s->backward)
            require(clEnqueueReadBuffer(queue, array[OUTPUT + i], CL_TRUE, 0, sizeof zeros, results[i], 0, NULL,
                                        NULL) == CL_SUCCESS,
                    "no results");
        require(clEnqueueWriteBuffer(queue, array[OUTPUT + i], CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL) ==
                    CL_SUCCESS,
                "results are not cleared");
    }
}

static void release(share *s)
{
    clattn_group_attention_release(&s->forward);
    clattn_group_attention_release(&s->backward);
}

/* ---- kinds ---- */

static void fail_with_message(void)
{
    char message[512], prefix[32];
    clattn_context_message(context, message, sizeof message);
    const int own = snprintf(prefix, sizeof prefix, "rank %d: ", (int)inner.rank);
    say(strncmp(message, prefix, (size_t)own) == 0 ? message + own : message);
}

/* Goes through all phases, until something fails, which has to be within the time-out. */
static void run_phases(clattn_group_mode mode, float expected[4][NUMBERS])
{
    static float results[4][NUMBERS];
    const clattn_group group = with_fault();
    share s = {NULL, NULL};
    double began = MPI_Wtime();
    phase = "create";
    clattn_status status = create_both(&group, mode, &s);
    phase = "before";
    if (status == CLATTN_SUCCESS && is_due())
        raise(SIGKILL);
    if (status == CLATTN_SUCCESS) {
        began = MPI_Wtime();
        status = run_both(&s);
    }
    if (status == CLATTN_SUCCESS) {
        take_results(&s, results);
        require(strcmp(kind, "slow") == 0, "what should have failed did not");
        require(memcmp(results, expected, sizeof results) == 0, "another result");
        say("the same");
    } else {
        require(status == CLATTN_ERROR_GROUP, "another status");
        require(MPI_Wtime() - began < 5e-3 * TIMEOUT_MS, "it did not fail at its time-out");
        fail_with_message();
    }
    release(&s);
}

static void run_different(clattn_group_mode mode)
{
    clattn_group_attention *attention = NULL;
    const bool differs = inner.rank == inner.ranks - 1;
    const clattn_group_mode other = mode == CLATTN_GROUP_MODE_HEADS ? CLATTN_GROUP_MODE_RING : CLATTN_GROUP_MODE_HEADS;
    const clattn_status status = create(&inner, differs && strcmp(wanted_phase, "mode") == 0 ? other : mode, false,
                                        differs && strcmp(wanted_phase, "rows") == 0 ? ROWS / 2 : ROWS,
                                        !(differs && strcmp(wanted_phase, "causal") == 0), &attention);
    require(status == CLATTN_ERROR_INVALID_ARGUMENT || status == CLATTN_ERROR_GROUP, "another status");
    fail_with_message();
}

static void run_steadily(const share *s, float expected[4][NUMBERS])
{
    static float results[4][NUMBERS];
    const double end = MPI_Wtime() + atof(wanted_phase);
    for (bool first = true; MPI_Wtime() < end; first = false) {
        const clattn_status status = run_both(s);
        if (status != CLATTN_SUCCESS) {
            require(status == CLATTN_ERROR_GROUP, "another status");
            fail_with_message();
            return;
        }
        take_results(s, results);
        require(memcmp(results, expected, sizeof results) == 0, "another result");
        if (first)
            say("running");
    }
    stop("nothing has failed");
}

int main(int argc, char **argv)
{
    static float expected[4][NUMBERS];
    static const char *const modes[] = {"ring", "gather", "heads"};
    clattn_group lenient;
    share s = {NULL, NULL};
    int mode = 0;
    MPI_Init(&argc, &argv);
    kind = argc > 2 ? argv[2] : "";
    wanted_phase = argc > 3 ? argv[3] : "";
    countdown = argc > 4 ? atol(argv[4]) : 0;
    while (mode < 3 && strcmp(modes[mode], argc > 1 ? argv[1] : "") != 0)
        mode++;
    /* The first time-out is for compilers. */
    require(clattn_group_mpi_create(MPI_COMM_WORLD, 0, &lenient) == CLATTN_SUCCESS &&
                clattn_group_mpi_create(MPI_COMM_WORLD, strcmp(kind, "steady") == 0 ? STEADY_MS : TIMEOUT_MS, &inner) ==
                    CLATTN_SUCCESS,
            "there is no group");
    require(mode < 3, "an unknown mode");
    require(clattn_context_create(NULL, &context) == CLATTN_SUCCESS, "no context");
    queue = clattn_context_queue(context);
    make_arrays();
    phase = "";
    require(create_both(&lenient, (clattn_group_mode)mode, &s) == CLATTN_SUCCESS && run_both(&s) == CLATTN_SUCCESS,
            "the first call fails");
    take_results(&s, expected);
    is_faulty = inner.rank == inner.ranks - 1;
    const bool is_steady = strcmp(kind, "steady") == 0, is_different = strcmp(kind, "different") == 0;
    if (is_steady) {
        release(&s);
        require(create_both(&inner, (clattn_group_mode)mode, &s) == CLATTN_SUCCESS, "there is no share");
        run_steadily(&s, expected);
    } else if (is_different) {
        run_different((clattn_group_mode)mode);
    } else {
        run_phases((clattn_group_mode)mode, expected);
    }
    if (!is_different && strcmp(kind, "slow") != 0)
        _exit(0); /* the others may be gone, and MPI_Finalize waits for them */
    release(&s);
    for (int i = 0; i < ARRAYS; i++)
        clReleaseMemObject(array[i]);
    clattn_context_release(&context);
    clattn_group_mpi_release(&inner);
    clattn_group_mpi_release(&lenient);
    MPI_Finalize();
    return 0;
}
