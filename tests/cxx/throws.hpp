// For tests of what has a clattn_io_error, compiled with exceptions.
#ifndef TESTS_CXX_THROWS_HPP
#define TESTS_CXX_THROWS_HPP

#include <cstring>

// Whether `call` throws `status` with the line that it leaves in the clattn_io_error it is given.
template <typename Call> bool throws(clattn_status status, Call call)
{
    clattn_io_error told = {};
    try {
        call(&told);
    } catch (const clattn::error &error) {
        return error.status() == status && told.message[0] && !std::strcmp(error.what(), told.message);
    }
    return false;
}

#endif
