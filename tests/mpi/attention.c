/* A group's attention on MPI's ranks: each makes its part of the same whole, and rank 0 compares what all have made with the reference.
 * test_mpi.py starts it by mpirun. */
#include <clattn/mpi.h>
#include <stdlib.h>

#include "support/group/drawn.h"
#include "support/suite.h"

#define WHOLE .dim = {2, 8, 4, 48, 96, 8, 8}

static const attention_case cases[] = {
    {"causal, grouped heads", ALL, WHOLE, .causal = true, AT(BOTTOM_RIGHT, 0)},
    {"a window, sinks", ALL, WHOLE, .sinks = true, WINDOW(30, 4)},
};

static clattn_group group;

static size_t bytes_of(const test_array *array)
{
    return array->memory->count * array->memory->element_size;
}

/* Sends the bytes of a rank's output to rank 0, where `to` has as many. */
static void send_output(const test_array *from, const test_array *to, int rank)
{
    const bool sends = group.rank == rank, receives = group.rank == 0;
    const size_t sent = sends ? bytes_of(from) : 0, received = receives ? bytes_of(to) : 0;
    unsigned char *out = malloc(sent + 1), *in = malloc(received + 1);
    char message[CLATTN_GROUP_MESSAGE] = "";
    void *request = NULL;
    assert_non_null(out);
    assert_non_null(in);
    if (sends)
        read_buffer(clattn_context_queue(device_context()), from->memory->buffer, sent, out);
    const clattn_group_exchange exchange = {
        .send = out, .send_bytes = sent, .to = 0, .from = rank, .receive = in, .receive_bytes = received};
    if (sends || receives) {
        assert_int_equal(group.exchange(group.user, &exchange, &request, message), CLATTN_SUCCESS);
        if (group.wait(group.user, request, message) != CLATTN_SUCCESS)
            fail_msg("%s", message);
    }
    if (receives)
        write_buffer(clattn_context_queue(device_context()), to->memory->buffer, 0, received, in);
    free(out);
    free(in);
}

/* Runs the rank's part; rank 0 then has the whole. */
static void run_part(group_part parts[], int ranks, const group_way *way, test_job *whole)
{
    group_part *own = &parts[group.rank];
    group_part_run(own, device_context(), NULL, &group, way, 2);
    if (own->status != CLATTN_SUCCESS)
        fail_msg("%s", own->message);
    for (int rank = 0; rank < ranks; rank++)
        for (int n = 0; n < JOB_OUTPUTS; n++)
            if (own->job.output[n].memory)
                send_output(&own->job.output[n], &parts[rank].job.output[n], rank);
    for (int rank = 0; rank < ranks; rank++) {
        if (group.rank == 0)
            group_part_give(&parts[rank], whole, way);
        group_part_release(&parts[rank]);
    }
}

static void check(const void *which, const char *unused)
{
    static group_part parts[GROUP_MOST_RANKS];
    static struct backward_job gradients;
    const attention_case *test = which;
    const int ranks = (int)group.ranks;
    (void)unused;
    assert_in_range(ranks, 1, GROUP_MOST_RANKS);
    for (int n = 0; n < 6; n++) {
        const group_way way = {ranks, (clattn_group_mode)(n / 2), (clattn_group_order)(n % 2), 0};
        if (!group_can(test, &way))
            continue;
        test_job whole = {0};
        const clattn_attention_desc desc = attention_prepare(&whole, test, 7);
        for (int i = 0; i < ranks; i++)
            group_part_make(&parts[i], &whole, &desc, &way, i);
        run_part(parts, ranks, &way, &whole);
        if (group.rank == 0)
            attention_judge(&whole, test);
        job_release(&whole);
        backward_prepare(&gradients, test);
        for (int i = 0; i < ranks; i++)
            group_part_make_backward(&parts[i], &gradients, &way, i);
        run_part(parts, ranks, &way, &gradients.job);
        gradients.by_sums = way.mode == CLATTN_GROUP_MODE_RING;
        if (group.rank == 0)
            backward_judge(&gradients);
        backward_release(&gradients);
    }
}

/* ---- what is drawn ---- */

/* Of the draws that the threads of test_group_drawn make, too, those of as many ranks as there are.  With MPI_DRAWS in the environment there
 * are 1,200 to choose from, of which 345 have two ranks. */
static group_draw draws[4 * DRAWS_OF_FAMILIES];

static void check_draw(const void *which, const char *unused)
{
    static drawn w;
    const group_draw *d = which;
    (void)unused;
    drawn_prepare(&w, d, (uint64_t)(d - draws));
    drawn_make_parts(&w);
    run_part(w.parts, d->way.ranks, &d->way, drawn_whole(&w));
    if (group.rank == 0)
        drawn_judge(&w);
    drawn_release(&w);
}

int main(int argc, char **argv)
{
    const size_t count = getenv("MPI_DRAWS") ? COUNT_OF(draws) : by_level(10, 20, DRAWS_OF_FAMILIES, DRAWS_OF_FAMILIES);
    MPI_Init(&argc, &argv);
    int failed = clattn_group_mpi_create(MPI_COMM_WORLD, 30000, &group) != CLATTN_SUCCESS;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        suite_add_case(check, &cases[i], "", "group attention by MPI: %s", cases[i].rule);
    for (size_t i = 0; !failed && i < count; i++) {
        group_draw_make(&draws[i], i);
        if (draws[i].way.ranks == group.ranks)
            suite_add_case(check_draw, &draws[i], "", "draw %zu: %s", i, draws[i].text);
    }
    failed = failed || suite_run("mpi_attention", argc, argv);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    clattn_group_mpi_release(&group);
    MPI_Finalize();
    return 0;
}
