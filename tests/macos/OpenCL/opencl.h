/* Stands in for the framework's header, which includes the same declarations. */
#include <CL/cl.h>
