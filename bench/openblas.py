#!/usr/bin/env python3
"""Times OpenBLAS's float32 product of (M, K) and the transpose of (N, K), a projection's, in a process of its own.

    openblas.py LIBRARY M N K

Prints one line of JSON: {"seconds_median", "seconds_min", "core", "threads"}.  One thread for each processor, unless
OPENBLAS_NUM_THREADS says otherwise.  A library that is older than the processor takes it for one with AVX2 alone.  So that
the peer is as fast as it can be, it is told of AVX-512 if /proc/cpuinfo names that, unless OPENBLAS_CORETYPE is set."""
import array
import ctypes
import ctypes.util
import json
import os
import random
import statistics
import sys

import record

ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112  # of cblas.h


def library(named=None):
    """The path or name of the library, or None: the one that is named, or the system's."""
    return named or ctypes.util.find_library("openblas")


def version(path):
    """The library's version, as it tells."""
    blas = ctypes.CDLL(path)
    blas.openblas_get_config.restype = ctypes.c_char_p
    return (blas.openblas_get_config().decode().split() + ["", "unknown"])[1]


def random_floats(count):
    """A pattern of odd length, over and over: no two rows are the same."""
    pattern = array.array("f", (random.uniform(-1, 1) for _ in range(1021)))
    return (ctypes.c_float * count).from_buffer((pattern * (count // len(pattern) + 1))[:count])


def run(path, m, n, k):
    blas = ctypes.CDLL(path)
    blas.openblas_get_corename.restype = ctypes.c_char_p
    a, b, c = random_floats(m * k), random_floats(n * k), (ctypes.c_float * (m * n))()
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def product():
        blas.cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, one, a, k, b, k, zero, c, n)

    product()
    times = record.times(product)
    return {"seconds_median": statistics.median(times), "seconds_min": min(times),
            "core": blas.openblas_get_corename().decode(), "threads": blas.openblas_get_num_threads()}


def main():
    if len(sys.argv) != 5 or not all(size.isdigit() and int(size) > 0 for size in sys.argv[2:]):
        sys.exit("usage: openblas.py LIBRARY M N K")
    if record.cpuinfo(r"^flags\s*:.*\s(avx512dq)\b"):
        os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # read when the library is loaded
    try:
        print(json.dumps(run(sys.argv[1], *map(int, sys.argv[2:]))))
    except (OSError, AttributeError) as error:
        sys.exit("openblas.py: %s" % error)


if __name__ == "__main__":
    main()
