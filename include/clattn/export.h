/* Symbol visibility: the library is built with hidden visibility, and only what is marked CLATTN_API leaves
 * it. */
#ifndef CLATTN_EXPORT_H
#define CLATTN_EXPORT_H

#if defined(_WIN32)
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
#define CLATTN_BEGIN_DECLS
#define CLATTN_END_DECLS
#endif

/* An initialiser for a struct whose first member is its own size: that, and zeros. */
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
