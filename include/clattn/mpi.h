/** @file
 * libclattn-mpi: a group (group.h) of the ranks of an MPI communicator.
 *
 * It is a library of its own, so that libclattn needs no MPI. It is built where MPI's headers are, and calls the MPI that it was
 * built with: an application uses the same one.
 *
 *     MPI_Init(&argc, &argv);
 *     clattn_group group;
 *     clattn_group_mpi_create(MPI_COMM_WORLD, 0, &group);
 *     ...                                                    clattn_group_attention_create and so on
 *     clattn_group_mpi_release(&group);
 *     MPI_Finalize();
 *
 * These rules hold for the whole header:
 *
 * - MPI is initialised before and finalised after. If a group is used by another thread than the one that initialised MPI, MPI was
 *   asked for MPI_THREAD_SERIALIZED; if two threads are in MPI at a time, for MPI_THREAD_MULTIPLE.
 * - A wait asks MPI until the exchange has ended: at first without a pause, later, unless bytes are coming, every 0.2 milliseconds.
 *   Bytes move while both ranks wait, for whichever exchange; before that, only what MPI sends at once (a few kilobytes).
 * - What a rank sends must be as long as what the other one expects. If it is longer or shorter, the one that receives fails, and its
 *   message has both lengths. If one of them has no bytes at all, nothing is sent, and the other one fails by its time-out.
 * - After a failure the group refuses all that it is given, with the same message. MPI cannot take back what is being sent or has been
 *   received in part: it may read and write the memory of exchanges that had not ended, as long as its functions are called. So an
 *   application that has failed ends all ranks by MPI_Abort.
 */
#ifndef CLATTN_MPI_H
#define CLATTN_MPI_H

#include <mpi.h>
#include <stdint.h>

#include "export.h"
#include "group.h"
#include "status.h"

CLATTN_BEGIN_DECLS

/** Makes a group of a communicator's ranks, with the communicator's numbers. All its ranks call it, and wait for each other.
 *
 * The communicator is duplicated, so that the group's messages do not mix with the application's, and stays the application's; it
 * connects the ranks of one group, not those of two (no intercommunicator). A wait fails after `timeout_ms` milliseconds, or little
 * more, if a rank does not answer; 0: after 60,000. An application releases the group (clattn_group_mpi_release). Called by one thread
 * at a time.
 *
 * @return INVALID_ARGUMENT (also if MPI is not initialised), OUT_OF_MEMORY, or GROUP if MPI fails; then *group is zeros, but for its
 * size. Errors of the given communicator go to its own handler first, which ends the program unless the application has set another. */
CLATTN_API clattn_status clattn_group_mpi_create(MPI_Comm communicator, uint32_t timeout_ms, clattn_group *group);

/** Releases what clattn_group_mpi_create made, when nothing uses the group any more, and makes *group zeros, but for its size.
 *
 * All ranks call it, before MPI_Finalize; it may wait for them. After a failure it waits for nobody. NULL is ignored, and so is a group
 * that was released or not made. Called by one thread at a time. */
CLATTN_API void clattn_group_mpi_release(clattn_group *group);

/** Makes a group of all ranks that were started together (MPI_COMM_WORLD), and initialises MPI before (MPI_THREAD_SERIALIZED) unless that
 * has been done. It is for programs that are built without MPI and load this library when they run, as the command does.
 *
 * @return what clattn_group_mpi_create returns, and GROUP if MPI cannot be initialised, or has fewer threads. */
CLATTN_API clattn_status clattn_group_mpi_world(uint32_t timeout_ms, clattn_group *group);

/** Releases what clattn_group_mpi_world made, as clattn_group_mpi_release does, and finalises MPI if that had initialised it. After a
 * failure it does not finalise MPI, which would wait for ranks that do not answer: the application ends all ranks
 * (clattn_group_mpi_abort). */
CLATTN_API void clattn_group_mpi_world_release(clattn_group *group);

/** Ends all ranks of the group (MPI_Abort); their programs' exit status is `status`. It does nothing if the group was not made here. */
CLATTN_API void clattn_group_mpi_abort(const clattn_group *group, int32_t status);

CLATTN_END_DECLS

#endif
