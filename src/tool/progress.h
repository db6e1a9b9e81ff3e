/* A progress bar on stderr, for work of more than about two seconds, and only where stderr is a terminal. */
#ifndef CLATTN_TOOL_PROGRESS_H
#define CLATTN_TOOL_PROGRESS_H

/* Starts measuring.  `label` must live until progress_end.  Pairs of begin and end may be nested: the
 * outermost has the bar, and what happens in the others is not shown. */
void progress_begin(const char *label);

/* Tells how much is done, 0 … 1.  Cheap: draws at most ten times a second. */
void progress_show(double fraction);

/* Removes the bar from the terminal, so that something else can be written; it comes back with the next
 * progress_show. */
void progress_hide(void);

/* Ends what progress_begin began, and removes the bar. */
void progress_end(void);

#endif
