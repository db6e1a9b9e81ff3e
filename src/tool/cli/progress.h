/* Progress on stderr, for work of more than about two seconds, if stderr is a terminal.
 *
 * The fraction done may be unknown all the time: one attention is one kernel, and a plan is one call.  A thread
 * (only if stderr is a terminal) therefore draws: at first only the seconds, then a bar as soon as a part is known
 * to be done. */
#ifndef CLATTN_TOOL_CLI_PROGRESS_H
#define CLATTN_TOOL_CLI_PROGRESS_H

/* Starts measuring.  `label` must live until progress_end.  Pairs of begin and end may be nested: only the outermost
 * has a bar. */
void progress_begin(const char *label);

/* Does progress_begin for work that ends after so many seconds, done or not: the bar shows the larger fraction. */
void progress_begin_within(const char *label, double seconds);

/* Sets the fraction that is done, 0 … 1.  Cheap. */
void progress_show(double fraction);

/* Sets a short text that follows the bar from now on, until progress_end. */
void progress_note(const char *text);

/* Removes the bar from the terminal, so that other text can be written; the bar returns some tenths of a second
 * later. */
void progress_hide(void);

/* Ends the measurement that progress_begin started, and removes the bar. */
void progress_end(void);

#endif
