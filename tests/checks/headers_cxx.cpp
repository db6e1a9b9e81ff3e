// One public header, HEADER, as the only thing that a C++ program includes.  Compiled once for each.
#include HEADER

// Something of its own, so that the unit is not empty.
int headers_cxx_unit();
int headers_cxx_unit()
{
    return 0;
}
