/* Progress on stderr, for work of more than about two seconds, and only where stderr is a terminal.
 *
 * How much is done may be unknown for all of the time: one attention is one kernel, and a plan is one call.
 * So a thread draws (there is none where stderr is no terminal): at first the seconds alone, then, as soon as
 * a part is known to be done, a bar. */
#ifndef CLATTN_TOOL_CLI_PROGRESS_H
#define CLATTN_TOOL_CLI_PROGRESS_H

/* Starts measuring.  `label` must live until progress_end.  Pairs of begin and end may be nested: the
 * outermost has the bar, and what happens in the others is not shown. */
void progress_begin(const char *label);

/* The same for work that ends after so many seconds, done or not: the bar shows whichever is more. */
void progress_begin_within(const char *label, double seconds);

/* Tells how much is done, 0 … 1.  Cheap. */
void progress_show(double fraction);

/* Removes the bar from the terminal, so that something else can be written; it comes back some tenths of a
 * second later. */
void progress_hide(void);

/* Ends what progress_begin began, and removes the bar. */
void progress_end(void);

#endif
