/** @file
 * Controls: short launches, progress and a cancel button for calls that take long, as programs with a window need them.
 *
 * The struct of arguments of every enqueue, of an operator or a model, and clattn_generate_desc have a member `control`:
 *
 *     clattn_control_params params = CLATTN_CONTROL_PARAMS_INIT;
 *     params.max_launch_ms = 10;                             the screen that the GPU also draws stays alive
 *     params.cancellable = 1;
 *     clattn_control_create(&params, &control);
 *     ...
 *     args.control = control;                                on a thread of its own:
 *     status = clattn_encoder_enqueue(plan, NULL, &args, 0, NULL, NULL);
 *     ...
 *     show(clattn_control_progress(control));                on the window's thread
 *     if (button_was_pressed)
 *         clattn_control_cancel(control);
 *
 * Without `cancellable` a call does not block, as ever. With it the call flushes its queue, keeps no more than two launches
 * enqueued, and returns when the last one has ended. A kernel that is launched in one piece can be neither watched nor
 * cancelled, so set `max_launch_ms`, too. A call that finds its control cancelled enqueues no more, waits for what it has
 * enqueued and returns CLATTN_ERROR_CANCELLED. It gives no event then, nothing of it runs any more, and:
 *
 * - its outputs hold anything, and so do inputs that it was to overwrite in place;
 * - a decoder's state is as before clattn_decoder_enqueue, which may be repeated; after clattn_decoder_begin or
 *   clattn_generate it needs a clattn_decoder_begin.
 *
 * What the call waits for must come without the calling thread: its wait list has no user event that only this thread sets, and
 * no event of another queue that this thread has not flushed.
 *
 * One call at a time uses a control; a call of another thread is refused with INVALID_ARGUMENT. After a fork the child makes
 * controls of its own.
 */
#ifndef CLATTN_CONTROL_H
#define CLATTN_CONTROL_H

#include <stdint.h>

#include "status.h"

CLATTN_BEGIN_DECLS

/** Watches calls, one at a time. */
typedef struct clattn_control clattn_control;

/** How a control watches. Set it up with CLATTN_CONTROL_PARAMS_INIT. */
typedef struct clattn_control_params {
    size_t size; /**< sizeof(clattn_control_params) */

    /** Kernels that would run longer than about this many milliseconds are launched in pieces, by an estimate from the
     * device's capabilities that errs on the short side. 0 (default): each in one piece.
     *
     * A work-group is never cut. CLBlast's kernels, and the copies and fills of models, are launched as they are. */
    uint32_t max_launch_ms;
    int32_t cancellable; /**< 1: calls wait for their launches, can be cancelled, and tell their progress */
} clattn_control_params;

/** Initialises a clattn_control_params: its size, and zeros. */
#define CLATTN_CONTROL_PARAMS_INIT CLATTN_INIT(clattn_control_params)

/** Sets *params as CLATTN_CONTROL_PARAMS_INIT does (@ref calls_init). */
CLATTN_API void clattn_control_params_init(clattn_control_params *params);

/** Makes a control. It belongs to no context, and may serve any.
 *
 * The caller releases *control with clattn_control_release when no call uses it any more.
 *
 * @return INVALID_ARGUMENT, INVALID_STRUCT or OUT_OF_MEMORY. */
CLATTN_API clattn_status clattn_control_create(const clattn_control_params *params, clattn_control **control);

/** Cancels the call that uses `control`, and all later ones until clattn_control_reset; accepts NULL.
 *
 * Any thread may call it at any time, signal handlers included. Does not wait. */
CLATTN_API void clattn_control_cancel(clattn_control *control);

/** Lets calls run again after clattn_control_cancel, and sets the progress to 0 and clattn_control_expect to 1 unless a call is
 * using `control`; accepts NULL.
 *
 * Call it before a chain of calls, not within, or a cancel that came meanwhile is forgotten. */
CLATTN_API void clattn_control_reset(clattn_control *control);

/** Says that the progress of the next `calls` calls counts together, as of one call of so many equal parts; accepts NULL.
 *
 * Call it before the first call of a chain of operators; 0 counts as 1. The progress stays as it is until that call begins.
 * Another chain of as many calls may follow without it. A chain that ends early needs it, or clattn_control_reset, before the
 * next. The control stays cancelled if it is. Does nothing while a call uses `control`. */
CLATTN_API void clattn_control_expect(clattn_control *control, size_t calls);

/** Tells whether `control` is cancelled: 1, or 0; 0 for NULL. Any thread may call it. */
CLATTN_API int32_t clattn_control_is_cancelled(const clattn_control *control);

/** Tells how much of the call that uses `control`, or of the latest that did, the device has done: 0 ... 1.
 *
 * Any thread may call it. The result never falls during a call or a chain (clattn_control_expect).
 * A model's steps count alike, and so do the tokens of clattn_generate up to its max_tokens, so equal parts need not take
 * equal times. 1 if all have returned with SUCCESS; 0 for NULL and without `cancellable`. */
CLATTN_API double clattn_control_progress(const clattn_control *control);

/** Releases the control and sets *control to NULL; accepts NULL and a pointer to NULL. */
CLATTN_API void clattn_control_release(clattn_control **control);

CLATTN_END_DECLS

#endif
