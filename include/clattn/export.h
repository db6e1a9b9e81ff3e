/** @file
 * Symbol visibility and linkage: the macros that stand around every declaration of the library.
 *
 * The library is built with hidden visibility. Only what is marked CLATTN_API leaves it.
 */
#ifndef CLATTN_EXPORT_H
#define CLATTN_EXPORT_H

/** Marks a function that the library exports. On Windows an application of the static library is compiled with
 * pkg-config's flags, without which it would import the function from a DLL. */
#if defined(_WIN32) && defined(CLATTN_STATIC)
#define CLATTN_API
#elif defined(_WIN32)
#if defined(CLATTN_BUILDING)
#define CLATTN_API __declspec(dllexport)
#else
#define CLATTN_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define CLATTN_API __attribute__((visibility("default")))
#else
#define CLATTN_API
#endif

#ifdef __cplusplus
#define CLATTN_BEGIN_DECLS extern "C" {
#define CLATTN_END_DECLS }
#else
#define CLATTN_BEGIN_DECLS /**< opens a block of declarations with C linkage */
#define CLATTN_END_DECLS   /**< closes that block */
#endif

/** An initialiser for a struct whose first member is its own size: that size, and zeros. */
#ifdef __cplusplus
#define CLATTN_INIT(type) \
    ([] { \
        type value_{}; \
        value_.size = sizeof(type); \
        return value_; \
    }())
#else
#define CLATTN_INIT(type) {.size = sizeof(type)}
#endif

#endif
