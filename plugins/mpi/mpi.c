/* Groups of an MPI communicator's ranks.
 *
 * All messages have one tag, and MPI delivers those of one rank in the order in which they were sent: so the exchanges between two
 * ranks are matched in the order in which each of them starts them.
 *
 * A message is received (MPI_Imrecv) once it is known how long it is (MPI_Improbe), and not before it is there (MPI_Irecv): Open MPI
 * 4.1.4 writes behind the buffer if a rank of the same machine, or the rank itself, sends more than what fits (seen with 2,000,000
 * bytes for 3), and what was not begun to be received need not be taken back after a time-out. */
#include "clattn/mpi.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_TIMEOUT_MS 60000

/* The most bytes of one message, whose count is an int; tests make it small. */
#ifndef MESSAGE_BYTES
#define MESSAGE_BYTES ((size_t)1 << 30)
#endif

enum { TAG = 0 };
static const double abandon_seconds = 0.1; /* how long exchanges are given to end by themselves after a failure */

/* One half of an exchange: its bytes in pieces, each of them a message. */
struct half {
    MPI_Request *pieces;
    size_t count, begun, done; /* those that MPI knows of, and those that have ended: the first ones */
    int rank;                  /* whom they are exchanged with */
};

/* An exchange that has been started. */
struct request {
    struct request *next;
    clattn_group_exchange exchange;
    struct half receive, send;
    MPI_Request pieces[]; /* what is received, then what is sent */
};

struct mpi {
    MPI_Comm communicator; /* the group's own */
    int32_t rank, ranks;
    uint32_t timeout_ms;
    struct request *requests; /* those that have not been waited for, in the order in which they were started */
    bool initialised;         /* MPI, by clattn_group_mpi_world */
    bool failed;
    char failure[CLATTN_GROUP_MESSAGE]; /* why */
};

/* The last piece is shorter than the others, if need be of no bytes, so that who receives sees where an exchange ends. */
static size_t piece_count(size_t bytes)
{
    return bytes ? bytes / MESSAGE_BYTES + 1 : 0;
}

static int piece_bytes(size_t bytes, size_t piece)
{
    const size_t left = bytes - piece * MESSAGE_BYTES;
    return (int)(left < MESSAGE_BYTES ? left : MESSAGE_BYTES);
}

enum { SPINS = 200, YIELDS = 100000, STEP_NS = 1000, MOST_NS = 200000 };

/* Spins at first, then lets others run (for tens of milliseconds if there are none), then sleeps, longer each time. */
static void pause_before(unsigned round)
{
    if (round < SPINS)
        return;
    if (round < SPINS + YIELDS) {
        sched_yield();
        return;
    }
    const unsigned step = round - SPINS - YIELDS;
    const struct timespec rest = {.tv_nsec = step < MOST_NS / STEP_NS ? (long)(step + 1) * STEP_NS : MOST_NS};
    nanosleep(&rest, NULL);
}

/* Gives what has begun time until `end`; then MPI is left alone with it. */
static void abandon(struct request *request, double end)
{
    struct half *const halves[] = {&request->receive, &request->send};
    for (int h = 0; h < 2; h++) {
        struct half *half = halves[h];
        for (unsigned round = 0; half->done < half->begun; round++) {
            MPI_Request *piece = &half->pieces[half->done];
            int done = 0;
            /* One that fails has ended, too. */
            if (MPI_Test(piece, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done && MPI_Wtime() < end) {
                pause_before(round);
                continue;
            }
            if (*piece != MPI_REQUEST_NULL)
                MPI_Request_free(piece);
            half->done++;
        }
    }
}

/* Keeps the first failure's message and abandons all exchanges, for the group is given nothing more; their requests stay for whoever
 * waits for them nevertheless. */
static clattn_status fail(struct mpi *self, const char *message)
{
    self->failed = true;
    memcpy(self->failure, message, sizeof self->failure);
    const double end = MPI_Wtime() + abandon_seconds;
    for (struct request *request = self->requests; request; request = request->next)
        abandon(request, end);
    return CLATTN_ERROR_GROUP;
}

static clattn_status refuse(const struct mpi *self, char message[CLATTN_GROUP_MESSAGE])
{
    memcpy(message, self->failure, sizeof self->failure);
    return CLATTN_ERROR_GROUP;
}

/* The message of a call of MPI that has failed. */
static void describe(int code, const char *what, int rank, char message[CLATTN_GROUP_MESSAGE])
{
    char text[MPI_MAX_ERROR_STRING + 1] = "an error that it does not know";
    int length = 0;
    MPI_Error_string(code, text, &length);
    if (snprintf(message, CLATTN_GROUP_MESSAGE, "%s rank %d failed: %s", what, rank, text) >= CLATTN_GROUP_MESSAGE)
        strcpy(message + CLATTN_GROUP_MESSAGE - 4, "...");
}

static clattn_status start(void *user, const clattn_group_exchange *exchange, void **result,
                           char message[CLATTN_GROUP_MESSAGE])
{
    struct mpi *self = user;
    if (self->failed)
        return refuse(self, message);
    if (exchange->to < 0 || exchange->to >= self->ranks || exchange->from < 0 || exchange->from >= self->ranks) {
        snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d exchanges with ranks %d and %d of %d", (int)self->rank,
                 (int)exchange->to, (int)exchange->from, (int)self->ranks);
        return CLATTN_ERROR_INVALID_ARGUMENT;
    }
    const size_t receives = piece_count(exchange->receive_bytes), sends = piece_count(exchange->send_bytes);
    struct request *request = malloc(sizeof *request + (receives + sends) * sizeof *request->pieces);
    if (!request) {
        snprintf(message, CLATTN_GROUP_MESSAGE, "no memory for an exchange");
        return CLATTN_ERROR_OUT_OF_MEMORY;
    }
    *request = (struct request){.exchange = *exchange,
                                .receive = {.pieces = request->pieces, .count = receives, .rank = exchange->from},
                                .send = {.pieces = request->pieces + receives, .count = sends, .rank = exchange->to}};
    for (struct half *half = &request->send; half->begun < sends; half->begun++) {
        const int code = MPI_Isend((const char *)exchange->send + half->begun * MESSAGE_BYTES,
                                   piece_bytes(exchange->send_bytes, half->begun), MPI_BYTE, half->rank, TAG,
                                   self->communicator, &half->pieces[half->begun]);
        if (code != MPI_SUCCESS) {
            describe(code, "sending to", half->rank, message);
            fail(self, message);
            abandon(request, MPI_Wtime());
            free(request);
            return CLATTN_ERROR_GROUP;
        }
    }
    struct request **last = &self->requests;
    while (*last)
        last = &(*last)->next;
    *last = request;
    *result = request;
    return CLATTN_SUCCESS;
}

/* Begins to receive the exchange's pieces that are there; false if one of them is not what was expected. */
static bool begin_to_receive(const struct mpi *self, struct request *request, char message[CLATTN_GROUP_MESSAGE])
{
    struct half *half = &request->receive;
    const size_t expected = request->exchange.receive_bytes;
    while (half->begun < half->count) {
        MPI_Message found;
        MPI_Status status;
        const size_t before = half->begun * MESSAGE_BYTES;
        int is_there = 0, bytes = 0;
        int code = MPI_Improbe(half->rank, TAG, self->communicator, &is_there, &found, &status);
        if (code == MPI_SUCCESS && !is_there)
            return true;
        if (code == MPI_SUCCESS)
            code = MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (code == MPI_SUCCESS && bytes != piece_bytes(expected, half->begun)) {
            snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d sent %zu bytes%s, expected %zu", half->rank,
                     before + (size_t)bytes, (size_t)bytes == MESSAGE_BYTES ? " or more" : "", expected);
            return false;
        }
        if (code == MPI_SUCCESS)
            code = MPI_Imrecv((char *)request->exchange.receive + before, bytes, MPI_BYTE, &found,
                              &half->pieces[half->begun]);
        if (code != MPI_SUCCESS) {
            describe(code, "receiving from", half->rank, message);
            return false;
        }
        half->begun++;
    }
    return true;
}

/* Begins to receive what is there for all exchanges, for the ranks that have sent it may wait for that; of each rank in the order in
 * which they were started. */
static bool begin_all(const struct mpi *self, char message[CLATTN_GROUP_MESSAGE])
{
    for (struct request *request = self->requests; request; request = request->next) {
        const struct request *earlier = self->requests;
        while (earlier != request &&
               (earlier->receive.rank != request->receive.rank || earlier->receive.begun == earlier->receive.count))
            earlier = earlier->next;
        if (earlier == request && !begin_to_receive(self, request, message))
            return false;
    }
    return true;
}

/* Counts the pieces that have ended; false if one of them has failed. */
static bool look_at(struct half *half, const char *what, char message[CLATTN_GROUP_MESSAGE])
{
    while (half->done < half->begun) {
        int has_ended = 0;
        const int code = MPI_Test(&half->pieces[half->done], &has_ended, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            describe(code, what, half->rank, message);
            return false;
        }
        if (!has_ended)
            return true;
        half->done++;
    }
    return true;
}

static void describe_timeout(const struct mpi *self, const struct request *request, char message[CLATTN_GROUP_MESSAGE])
{
    const struct half *receive = &request->receive, *send = &request->send;
    const bool receives = receive->done < receive->count, sends = send->done < send->count;
    if (receives && sends && receive->rank != send->rank)
        snprintf(message, CLATTN_GROUP_MESSAGE, "ranks %d and %d did not answer within %u ms", receive->rank,
                 send->rank, (unsigned)self->timeout_ms);
    else
        snprintf(message, CLATTN_GROUP_MESSAGE, "rank %d did not answer within %u ms",
                 receives ? receive->rank : send->rank, (unsigned)self->timeout_ms);
}

static clattn_status finish(void *user, void *given, char message[CLATTN_GROUP_MESSAGE])
{
    struct mpi *self = user;
    struct request *request = given;
    const double end = MPI_Wtime() + self->timeout_ms * 1e-3;
    clattn_status status = self->failed ? refuse(self, message) : CLATTN_SUCCESS;
    for (unsigned round = 0; status == CLATTN_SUCCESS; round++) {
        const bool late = MPI_Wtime() >= end; /* before it looks: a rank that was away itself looks once more */
        if (!begin_all(self, message) || !look_at(&request->receive, "receiving from", message) ||
            !look_at(&request->send, "sending to", message)) {
            status = fail(self, message);
        } else if (request->receive.done == request->receive.count && request->send.done == request->send.count) {
            break;
        } else if (late) {
            describe_timeout(self, request, message);
            status = fail(self, message);
        } else {
            /* MPI may move a message only while it is called: no sleep once one is coming. */
            if (request->receive.done < request->receive.begun && round > SPINS)
                round = SPINS;
            pause_before(round);
        }
    }
    struct request **link = &self->requests;
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    free(request);
    return status;
}

clattn_status clattn_group_mpi_create(MPI_Comm communicator, uint32_t timeout_ms, clattn_group *group)
{
    const clattn_group none = CLATTN_GROUP_INIT;
    int initialised = 0, finalised = 0, between = 0, rank = 0, ranks = 0;
    if (!group)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    *group = none;
    if (MPI_Initialized(&initialised) != MPI_SUCCESS || !initialised || MPI_Finalized(&finalised) != MPI_SUCCESS ||
        finalised || communicator == MPI_COMM_NULL)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    if (MPI_Comm_test_inter(communicator, &between) != MPI_SUCCESS || between)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    MPI_Comm own;
    if (MPI_Comm_dup(communicator, &own) != MPI_SUCCESS) /* first: the other ranks wait for this one in it */
        return CLATTN_ERROR_GROUP;
    clattn_status status = CLATTN_ERROR_GROUP;
    struct mpi *self = NULL;
    if (MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN) != MPI_SUCCESS || MPI_Comm_rank(own, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(own, &ranks) != MPI_SUCCESS)
        goto failed;
    status = CLATTN_ERROR_OUT_OF_MEMORY;
    self = calloc(1, sizeof *self);
    if (!self)
        goto failed;
    self->communicator = own;
    self->rank = rank;
    self->ranks = ranks;
    self->timeout_ms = timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS;
    group->rank = rank;
    group->ranks = ranks;
    group->user = self;
    group->exchange = start;
    group->wait = finish;
    return CLATTN_SUCCESS;
failed:
    MPI_Comm_free(&own);
    return status;
}

void clattn_group_mpi_release(clattn_group *group)
{
    if (!group || !group->user)
        return;
    const clattn_group none = CLATTN_GROUP_INIT;
    struct mpi *self = group->user;
    int finalised = 1;
    MPI_Finalized(&finalised);
    while (self->requests) {
        struct request *request = self->requests;
        self->requests = request->next;
        if (!finalised)
            abandon(request, MPI_Wtime());
        free(request);
    }
    /* Freeing a communicator may wait for all ranks; after a failure that is left to MPI_Finalize. */
    if (!finalised && !self->failed)
        MPI_Comm_free(&self->communicator);
    free(self);
    *group = none;
}

clattn_status clattn_group_mpi_world(uint32_t timeout_ms, clattn_group *group)
{
    int before = 0, provided = 0;
    if (!group)
        return CLATTN_ERROR_INVALID_ARGUMENT;
    const clattn_group none = CLATTN_GROUP_INIT;
    *group = none;
    if (MPI_Initialized(&before) != MPI_SUCCESS)
        return CLATTN_ERROR_GROUP;
    if (!before && (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
                    provided < MPI_THREAD_SERIALIZED))
        return CLATTN_ERROR_GROUP;
    const clattn_status status = clattn_group_mpi_create(MPI_COMM_WORLD, timeout_ms, group);
    if (status == CLATTN_SUCCESS)
        ((struct mpi *)group->user)->initialised = !before;
    return status;
}

void clattn_group_mpi_world_release(clattn_group *group)
{
    if (!group || !group->user)
        return;
    const struct mpi *self = group->user;
    const bool finalise = self->initialised && !self->failed;
    clattn_group_mpi_release(group);
    if (finalise)
        MPI_Finalize();
}

void clattn_group_mpi_abort(const clattn_group *group, int32_t status)
{
    if (group && group->exchange == start)
        MPI_Abort(((const struct mpi *)group->user)->communicator, status);
}
