/* Threads for the tests, by the header that the library uses. */
#include "../../../src/base/os/os_threads.h"
