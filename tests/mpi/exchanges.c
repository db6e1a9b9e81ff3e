/* The ranks of test_mpi.py: exchanges KIND [NUMBER...], run by mpirun.
 *
 *   random SEED ROUNDS   exchanges that all ranks draw alike, several at a time, in rings and between pairs; all bytes are compared
 *   length SENT EXPECTED [SENT EXPECTED...]
 *                        the last rank sends that many bytes to rank 0, which expects others; each time with a new group
 *   silent BYTES         the last rank takes part in one exchange and in no other
 *   alone BYTES          the same of all ranks but rank 0
 *   killed BYTES         the last rank ends itself after one exchange
 *   refusals             what the calls refuse
 *
 * Each rank prints lines, each in one call, so that they are not mixed: "rank R: " and what a failure's message says, or how much was
 * exchanged.  The exit status is 1 if a result is not what the kind is about. */
#include <clattn/mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_AT_A_TIME = 6, MOST_RANKS = 64, GUARD = 32, TIMEOUT_MS = 2000 };
static const size_t most_bytes = (size_t)1 << 20;

static clattn_group group;

/* Ends all ranks. */
static void stop(const char *what)
{
    printf("rank %d: wrong: %s\n", (int)group.rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        stop("no memory");
    return memory;
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* What the byte at `i` of a message is. */
static unsigned char byte_of(uint32_t message, int rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ message * 40503u ^ ((uint32_t)rank + 1) * 2246822519u;
    x ^= x >> 15;
    x *= 2246822519u;
    return (unsigned char)(x >> 24);
}

/* Few messages have no bytes, many have few, and some go beyond what MPI sends at once. */
static size_t draw_bytes(uint32_t *state)
{
    const uint32_t kind = draw(state) % 4, bytes = draw(state);
    return kind == 0 ? bytes % 3 : kind == 1 ? bytes % 200 : kind == 2 ? bytes % 20000 : bytes % (most_bytes + 1);
}

/* One exchange of all ranks, or of two: whom each sends to, whom it receives from, and how much each sends. */
struct plan {
    bool takes_part[MOST_RANKS];
    int to[MOST_RANKS], from[MOST_RANKS];
    size_t bytes[MOST_RANKS];
};

static void draw_plan(uint32_t *state, int ranks, struct plan *plan)
{
    const uint32_t kind = draw(state) % 3;
    const int a = (int)(draw(state) % (uint32_t)ranks), b = (int)(draw(state) % (uint32_t)ranks);
    for (int r = 0; r < ranks; r++) {
        plan->takes_part[r] = kind != 0 || r == a || r == b;
        plan->to[r] = kind == 0 ? (r == a ? b : a) : kind == 1 ? (r + a) % ranks : r;
        plan->bytes[r] = draw_bytes(state);
    }
    for (int r = ranks - 1; kind == 2 && r > 0; r--) { /* any order */
        const int other = (int)(draw(state) % (uint32_t)(r + 1)), kept = plan->to[r];
        plan->to[r] = plan->to[other];
        plan->to[other] = kept;
    }
    for (int r = 0; r < ranks; r++)
        if (plan->takes_part[r])
            plan->from[plan->to[r]] = r;
}

/* An exchange of this rank. */
struct running {
    clattn_group_exchange exchange;
    void *request;
    uint32_t message;
};

static void begin(struct running *one, const struct plan *plan, uint32_t message)
{
    const int rank = (int)group.rank;
    char text[CLATTN_GROUP_MESSAGE];
    const size_t sent = plan->bytes[rank], received = plan->bytes[plan->from[rank]];
    unsigned char *send = allocate(sent), *receive = allocate(received + GUARD);
    for (size_t i = 0; i < sent; i++)
        send[i] = byte_of(message, rank, i);
    memset(receive, 0xa5, received + GUARD);
    one->exchange = (clattn_group_exchange){.send = send,
                                            .send_bytes = sent,
                                            .to = plan->to[rank],
                                            .from = plan->from[rank],
                                            .receive = receive,
                                            .receive_bytes = received};
    one->message = message;
    if (group.exchange(group.user, &one->exchange, &one->request, text) != CLATTN_SUCCESS)
        stop(text);
}

static size_t end(struct running *one)
{
    char text[CLATTN_GROUP_MESSAGE];
    if (group.wait(group.user, one->request, text) != CLATTN_SUCCESS)
        stop(text);
    const clattn_group_exchange *exchange = &one->exchange;
    const unsigned char *receive = exchange->receive;
    for (size_t i = 0; i < exchange->receive_bytes; i++)
        if (receive[i] != byte_of(one->message, exchange->from, i))
            stop("a byte is not what was sent");
    for (size_t i = 0; i < GUARD; i++)
        if (receive[exchange->receive_bytes + i] != 0xa5)
            stop("bytes were written behind what was expected");
    free((void *)(uintptr_t)exchange->send);
    free(exchange->receive);
    return exchange->receive_bytes;
}

static void run_random(uint32_t seed, long rounds)
{
    const int rank = (int)group.rank, ranks = (int)group.ranks;
    uint32_t state = seed, own = seed + (uint32_t)rank, message = 0;
    size_t count = 0, bytes = 0;
    /* The application receives whatever comes on its communicator: nothing of the group's may. */
    int word = -1, sent = rank;
    MPI_Request any;
    MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any);
    for (long round = 0; round < rounds; round++) {
        struct running running[MOST_AT_A_TIME];
        int started = 0;
        const int at_a_time = 1 + (int)(draw(&state) % MOST_AT_A_TIME);
        for (int i = 0; i < at_a_time; i++, message++) {
            struct plan plan;
            draw_plan(&state, ranks, &plan);
            if (plan.takes_part[rank])
                begin(&running[started++], &plan, message);
        }
        count += (size_t)started;
        while (started > 0) { /* waited for in any order */
            const int i = (int)(draw(&own) % (uint32_t)started);
            bytes += end(&running[i]);
            running[i] = running[--started];
        }
    }
    MPI_Send(&sent, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
    MPI_Wait(&any, MPI_STATUS_IGNORE);
    if (word != (rank + ranks - 1) % ranks)
        stop("the application has received a message of the group's");
    printf("rank %d: %zu exchanges, %zu bytes\n", rank, count, bytes);
}

/* Exchanges those bytes and returns the status; the message goes to `text`. */
static clattn_status exchange(int to, size_t sent, int from, size_t received, char text[CLATTN_GROUP_MESSAGE])
{
    /* They are not freed: after a failure MPI may still use them. */
    clattn_group_exchange both = {.send = memset(allocate(sent), 1, sent),
                                  .send_bytes = sent,
                                  .to = to,
                                  .from = from,
                                  .receive = allocate(received),
                                  .receive_bytes = received};
    void *request = NULL;
    text[0] = 0;
    clattn_status status = group.exchange(group.user, &both, &request, text);
    if (status == CLATTN_SUCCESS)
        status = group.wait(group.user, request, text);
    return status;
}

static void expect(clattn_status status, clattn_status expected, const char *text)
{
    if (status != expected)
        stop(status == CLATTN_SUCCESS ? "what should have failed did not" : text);
}

static void create_group(uint32_t timeout_ms)
{
    clattn_group_mpi_release(&group);
    if (clattn_group_mpi_create(MPI_COMM_WORLD, timeout_ms, &group) != CLATTN_SUCCESS)
        stop("there is no group");
}

static void run_length(size_t sent, size_t expected)
{
    const int rank = (int)group.rank, last = (int)group.ranks - 1;
    char text[CLATTN_GROUP_MESSAGE], again[CLATTN_GROUP_MESSAGE];
    if (rank == 0) {
        expect(exchange(0, last == 0 ? sent : 0, last, expected, text), CLATTN_ERROR_GROUP, "another status");
        expect(exchange(0, 8, 0, 8, again), CLATTN_ERROR_GROUP, "another status");
        if (strcmp(text, again) != 0)
            stop("a group that has failed has another message");
        printf("rank 0: %s\n", text);
    } else if (rank == last) {
        /* MPI may wait for rank 0 to take it. */
        if (exchange(0, sent, rank, 0, text) != CLATTN_SUCCESS &&
            strcmp(text, "rank 0 did not answer within 2000 ms") != 0)
            stop(text);
    }
}

/* Fails by the time-out, and says whom it has waited for. */
static void wait_in_vain(int to, int from, size_t bytes)
{
    char text[CLATTN_GROUP_MESSAGE];
    const double began = MPI_Wtime();
    expect(exchange(to, bytes, from, bytes, text), CLATTN_ERROR_GROUP, "another status");
    const double seconds = MPI_Wtime() - began;
    if (seconds < 1e-3 * TIMEOUT_MS || seconds > 5e-3 * TIMEOUT_MS)
        stop("it did not fail at its time-out");
    printf("rank %d: %s\n", (int)group.rank, text);
}

/* All ranks take part in one exchange.  In the next one the last rank does not, or only rank 0 does. */
static void run_without(const char *kind, size_t bytes)
{
    const int rank = (int)group.rank, ranks = (int)group.ranks, last = ranks - 1;
    const bool is_alone = strcmp(kind, "alone") == 0;
    char text[CLATTN_GROUP_MESSAGE];
    expect(exchange((rank + 1) % ranks, bytes, (rank + last) % ranks, bytes, text), CLATTN_SUCCESS, text);
    if (is_alone ? rank == 0 : rank != last)
        wait_in_vain(is_alone ? 1 : last, last, bytes);
    else if (strcmp(kind, "killed") == 0)
        raise(SIGKILL);
    else
        sleep(2 * TIMEOUT_MS / 1000);
}

static void run_refusals(void)
{
    clattn_group other;
    void *request;
    char text[CLATTN_GROUP_MESSAGE];
    if (clattn_group_mpi_create(MPI_COMM_NULL, 0, &other) != CLATTN_ERROR_INVALID_ARGUMENT || other.user != NULL ||
        other.size != sizeof other)
        stop("no communicator is taken");
    clattn_group_mpi_release(&other);
    clattn_group_mpi_release(NULL);
    if (clattn_group_mpi_create(MPI_COMM_WORLD, 0, NULL) != CLATTN_ERROR_INVALID_ARGUMENT)
        stop("no group is taken");
    for (int i = 0; i < 2; i++) {
        const int32_t wrong = i == 0 ? -1 : group.ranks;
        clattn_group_exchange to = {.to = wrong}, from = {.from = wrong};
        if (group.exchange(group.user, &to, &request, text) != CLATTN_ERROR_INVALID_ARGUMENT ||
            group.exchange(group.user, &from, &request, text) != CLATTN_ERROR_INVALID_ARGUMENT)
            stop("a rank that is not there is taken");
    }
    printf("rank %d: %s\n", (int)group.rank, text);
    /* Nothing has failed: two groups of one communicator, and what was started and is not waited for is released. */
    if (clattn_group_mpi_create(MPI_COMM_WORLD, 0, &other) != CLATTN_SUCCESS)
        stop("there is no second group");
    char received[4] = "";
    clattn_group_exchange unmatched = {
        .to = other.rank, .from = other.rank, .receive = received, .receive_bytes = sizeof received};
    if (other.exchange(other.user, &unmatched, &request, text) != CLATTN_SUCCESS)
        stop(text);
    expect(exchange(group.rank, 8, group.rank, 8, text), CLATTN_SUCCESS, text);
    clattn_group_mpi_release(&other);
    if (other.user != NULL || other.size != sizeof other)
        stop("a released group has not become zeros");
    clattn_group_mpi_release(&other);
}

/* Ranks numbered from behind: the group has the communicator's numbers. */
static void run_reversed(void)
{
    const clattn_group kept = group;
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -(int)group.rank, &reversed);
    if (clattn_group_mpi_create(reversed, 0, &group) != CLATTN_SUCCESS)
        stop("there is no group");
    MPI_Comm_free(&reversed);
    if (group.rank != kept.ranks - 1 - kept.rank || group.ranks != kept.ranks)
        stop("the group has other numbers than the communicator");
    char text[CLATTN_GROUP_MESSAGE];
    unsigned char send[3] = {(unsigned char)kept.rank, 1, 2}, receive[3];
    clattn_group_exchange ring = {.send = send,
                                  .send_bytes = sizeof send,
                                  .to = (group.rank + 1) % group.ranks,
                                  .from = (group.rank + group.ranks - 1) % group.ranks,
                                  .receive = receive,
                                  .receive_bytes = sizeof receive};
    void *request;
    if (group.exchange(group.user, &ring, &request, text) != CLATTN_SUCCESS ||
        group.wait(group.user, request, text) != CLATTN_SUCCESS)
        stop(text);
    if (receive[0] != kept.ranks - 1 - ring.from)
        stop("another rank has sent it");
    clattn_group_mpi_release(&group);
    group = kept;
}

int main(int argc, char **argv)
{
    clattn_group early;
    const char *kind = argc > 1 ? argv[1] : "";
    const size_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0,
                 second = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    const bool is_early = clattn_group_mpi_create(MPI_COMM_WORLD, 0, &early) == CLATTN_SUCCESS;
    MPI_Init(&argc, &argv);
    if (is_early || clattn_group_mpi_create(MPI_COMM_WORLD, TIMEOUT_MS, &group) != CLATTN_SUCCESS)
        stop("the group is made before MPI is initialised, or not after");
    const bool loses_a_rank = strcmp(kind, "alone") == 0 || strcmp(kind, "silent") == 0 || strcmp(kind, "killed") == 0;
    if (loses_a_rank) {
        run_without(kind, number);
    } else if (strcmp(kind, "random") == 0) {
        create_group(0); /* the other time-out is for failures */
        run_random((uint32_t)number, (long)second);
        run_reversed();
    } else if (strcmp(kind, "length") == 0) {
        for (int i = 2; i + 1 < argc; i += 2) {
            create_group(TIMEOUT_MS);
            run_length(strtoull(argv[i], NULL, 10), strtoull(argv[i + 1], NULL, 10));
        }
    } else if (strcmp(kind, "refusals") == 0) {
        run_refusals();
    } else {
        stop("an unknown kind");
    }
    fflush(stdout);
    clattn_group_mpi_release(&group);
    if (loses_a_rank)
        _exit(0); /* MPI_Finalize waits for all ranks */
    MPI_Finalize();
    return 0;
}
