/* Addresses that stand for what is elsewhere. */
#include <sys/mman.h>

#include "memory/memory.h"

void *os_addresses_reserve(size_t bytes)
{
    void *begin = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return begin == MAP_FAILED ? NULL : begin;
}

void os_addresses_release(void *begin, size_t bytes)
{
    munmap(begin, bytes);
}
