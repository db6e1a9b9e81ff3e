/* What the Windows twins of os_*.c share: paths in UTF-8, as everywhere in this project, for functions that take UTF-16. */
#ifndef CLATTN_BASE_OS_WINDOWS_H
#define CLATTN_BASE_OS_WINDOWS_H

#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <stdlib.h>

/* The text as UTF-16; the caller frees it.  NULL if it is no UTF-8, or memory runs out. */
static inline wchar_t *os_wide(const char *text)
{
    const int length = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    wchar_t *wide = length > 0 ? malloc((size_t)length * sizeof *wide) : NULL;
    if (wide)
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, length);
    return wide;
}

/* The text as UTF-8 in a buffer of that size; false if the buffer is too small. */
static inline BOOL os_narrow(const wchar_t *wide, char *text, size_t bytes)
{
    return WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, bytes < INT_MAX ? (int)bytes : INT_MAX, NULL, NULL) > 0;
}

#endif
