#!/bin/sh
# Installs the Debian packages that are missing on this machine: deps.sh build|models|test|plugins|window|browser|arm64
#
#   build    what building the library and the command needs, and PoCL, so that they have a device to run on
#   models   the same, pip to fetch pretrained models with, and recordings of speech (2 MB)
#   test     the same and what the test suite needs
#   plugins  the same, and ffmpeg, GEGL and frei0r's header (100 MB to fetch, 340 MB in all) for the plug-ins
#   window   what `plugins` has, and GTK 3, Xvfb and xdotool (60 MB to fetch, 215 MB in all) for the example with a window
#   browser  what `test` has and a headless browser (60 MB to fetch, 220 MB in all) for heat maps
#   arm64    what `test` has, a cross compiler for arm64 and an emulator (200 MB in all)
#
# If everything is there, nothing is installed and no package list is fetched.  Works as root or with sudo.
set -u

case ${1-} in
build | models | test | plugins | window | browser | arm64) level=$1 ;;
*)
    echo "usage: deps.sh build|models|test|plugins|window|browser|arm64" >&2
    exit 2
    ;;
esac

missing=
# want PACKAGE COMMAND...: the package is missing if the command fails.
want()
{
    package=$1
    shift
    "$@" > /dev/null 2>&1 || missing="$missing $package"
}
have() { command -v "$1"; }
pkg() { pkg-config --exists "$1"; }
pip() { python3 -m pip --version || /usr/bin/python3 -m pip --version; }
compiles() { printf '%s\nint main(void) { return 0; }\n' "$2" | "$1" -x c -fsyntax-only -; }

want gcc have gcc
want libc6-dev compiles gcc '#include <stdio.h>'
want meson have meson
want ninja-build have ninja
want pkg-config have pkg-config
want ocl-icd-opencl-dev pkg OpenCL
want opencl-headers compiles gcc '#include <CL/cl.h>'
want libjansson-dev pkg jansson
want libpng-dev pkg libpng
want libutf8proc-dev pkg libutf8proc
want libsndfile1-dev pkg sndfile
want libsoxr-dev pkg soxr
want libfftw3-dev pkg fftw3
want zlib1g-dev pkg zlib
want g++ have g++
want libsentencepiece-dev pkg sentencepiece
want libprotobuf-dev pkg sentencepiece # which the package of Debian 13 does not ask for
want libclblast-dev compiles gcc '#include <clblast_c.h>'
want pocl-opencl-icd test -e /etc/OpenCL/vendors/pocl.icd
if [ "$level" != build ]; then
    want python3-pip pip
    want pocketsphinx-testdata test -d /usr/share/pocketsphinx/test/data
fi
tests() { [ "$level" != build ] && [ "$level" != models ]; }
if tests; then
    want cmake have cmake
    want opencl-clhpp-headers test -e /usr/include/CL/opencl.hpp
    want clang have clang
    want libcmocka-dev compiles gcc '#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>'
    want libopenmpi-dev pkg ompi-c
    want openmpi-bin have mpirun
    want iproute2 have ip
    want oclgrind have oclgrind
    want mesa-opencl-icd test -e /etc/OpenCL/vendors/rusticl.icd
    want espeak-ng have espeak-ng
    want doxygen have doxygen
    want mmdebstrap have mmdebstrap
    # Not whichever python3 is first on the path: the distribution's, for which python3-numpy is.
    want python3-numpy /usr/bin/python3 -c 'import numpy'
fi
if [ "$level" = plugins ] || [ "$level" = window ]; then
    want ffmpeg have ffmpeg
    want frei0r-plugins-dev pkg frei0r
    want gegl have gegl
    want libgegl-dev pkg gegl-0.4
fi
if [ "$level" = window ]; then
    want libgtk-3-dev pkg gtk+-3.0
    want xvfb have Xvfb
    want xdotool have xdotool
fi
if [ "$level" = browser ]; then
    want chromium-headless-shell /usr/bin/python3 -B "$(dirname "$0")/tool/devtools.py"
fi
if [ "$level" = arm64 ]; then
    want gcc-aarch64-linux-gnu have aarch64-linux-gnu-gcc
    want qemu-user-static have qemu-aarch64-static
fi

# libFuzzer's package has clang's version in its name, so it can be told only once clang is there.  Nothing fails for want
# of it: fuzzing is skipped.
without_fuzzer() { tests && ! have_fuzzer > /dev/null 2>&1; }
have_fuzzer() { ls "$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer*; }

if [ -z "$missing" ]; then
    without_fuzzer || exit 0
    command -v apt-get > /dev/null && { [ "$(id -u)" = 0 ] || command -v sudo > /dev/null; } || exit 0
    missing_fuzzer=" libclang-rt"
fi
echo "installing$missing${missing_fuzzer-}"
if ! command -v apt-get > /dev/null; then
    echo "deps.sh: no apt-get here; please install the equivalents of$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    if ! command -v sudo > /dev/null; then
        echo "deps.sh: root or sudo is needed to install$missing" >&2
        exit 1
    fi
fi
# An update that fails in part (some other repository of the machine is out of reach) may still be enough.
$as_root apt-get -q update || echo "deps.sh: apt-get update had errors; going on" >&2
install() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$@"; }
# Debian 13 has no oclgrind, Ubuntu no chromium-headless-shell: what these are for is then skipped.
has_package() { apt-cache show "$1" > /dev/null 2>&1; }
for package in oclgrind chromium-headless-shell; do
    case " $missing " in
    *" $package "*)
        has_package "$package" && continue
        echo "deps.sh: this distribution has no $package; going on without" >&2
        missing=$(printf '%s' " $missing " | sed "s/ $package / /")
        ;;
    esac
done
if [ -n "${missing# }" ]; then
    # shellcheck disable=SC2086 # words are meant
    install $missing || exit 1
fi
if without_fuzzer; then
    install "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev" || echo "deps.sh: no libFuzzer for this clang" >&2
fi
exit 0
