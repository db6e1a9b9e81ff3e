/* PRINTF_LIKE(text, first) stands behind a function's declaration: the compiler checks its arguments as printf's.
 *
 * mingw-w64's own printf is C11's, Windows' is not; __MINGW_PRINTF_FORMAT names the one that is in use. */
#ifndef CLATTN_BASE_PRINTF_LIKE_H
#define CLATTN_BASE_PRINTF_LIKE_H

#include <stdio.h>

#if defined(__MINGW_PRINTF_FORMAT)
#define PRINTF_LIKE(text, first) __attribute__((format(__MINGW_PRINTF_FORMAT, text, first)))
#elif defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

#endif
