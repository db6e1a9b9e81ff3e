#!/bin/sh
# Compiles the libraries and a program of the public headers as if for macOS: compile.sh FOLDER
#
# There is no SDK of Apple's here.  The compiler is this machine's, told that the system is macOS, with a header in place of
# the framework's; then no object may call a function that macOS lacks.  Nothing of this has run on a Mac.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
cd "$1"
number=0
for file in $(find "$root/src" -name '*.c' ! -path '*/tool/*' ! -path '*/clblast/*' ! -name '*_windows.c') "$root/examples/first.c"; do
    variants=
    case $file in
    */src/base/*) variants=-DCLATTN_OPENCL_DLOPEN ;;
    esac
    for opencl in "" $variants; do
        ${CC:-cc} -std=gnu11 -Wall -Wextra -Wundef -Werror -U__linux__ -U__linux -U__gnu_linux__ -D__APPLE__ \
            -DCL_TARGET_OPENCL_VERSION=300 -DCL_USE_DEPRECATED_OPENCL_1_2_APIS $opencl \
            -include "$root/tests/macos/standin.h" -I"$root/tests/macos" -I"$root/include" -I"$root/src" -I"$root/cl" \
            -c "$file" -o "$((number += 1)).o"
    done
done
nm -u ./*.o > undefined
if grep -wE 'secure_getenv|getrandom|syscall|prctl|epoll_\w+|eventfd|memfd_create|renameat2|pipe2|accept4|sem_timedwait' \
    undefined || grep -wE '(mtx|cnd|thrd|tss)_\w+|call_once|aligned_alloc|timespec_get|quick_exit' undefined; then
    echo "macOS lacks these functions"
    exit 1
fi
echo "$(ls ./*.o | wc -l) objects"
