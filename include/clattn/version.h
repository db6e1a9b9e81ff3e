/** @file
 * The library's version: that of the headers at compile time, that of the library at run time.
 */
#ifndef CLATTN_VERSION_H
#define CLATTN_VERSION_H

#include "export.h"

CLATTN_BEGIN_DECLS

#define CLATTN_VERSION_MAJOR 0        /**< the first of the version's three numbers */
#define CLATTN_VERSION_MINOR 1        /**< the second */
#define CLATTN_VERSION_PATCH 0        /**< the third */
#define CLATTN_VERSION_STRING "0.1.0" /**< all three as text */

/** One number that grows with every release: major * 10000 + minor * 100 + patch. */
#define CLATTN_VERSION (CLATTN_VERSION_MAJOR * 10000 + CLATTN_VERSION_MINOR * 100 + CLATTN_VERSION_PATCH)

/** Returns the CLATTN_VERSION that the loaded library was built from. Thread-safe; never fails. */
CLATTN_API int clattn_version(void);

/** Returns the loaded library's version as text, "major.minor.patch", a static string. Thread-safe; never fails. */
CLATTN_API const char *clattn_version_string(void);

CLATTN_END_DECLS

#endif
