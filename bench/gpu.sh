#!/bin/sh
# Measures clattn on one GPU, by one command, on a machine that has little more than the GPU's driver:
#
#   sh bench/gpu.sh --fetch FOLDER
#   sh bench/gpu.sh [--packages FOLDER] [--out FOLDER] [--work FOLDER] [OPTION...]
#
#   --fetch     only downloads Debian's packages that a build needs, with apt-get, on a machine with a network: the OpenCL
#               loader and headers, CLBlast, jansson, cmocka, meson, ninja, pkg-config and what they depend on, but for the
#               C and C++ libraries and Python; nothing is installed
#   --packages  unpacks the packages of that folder, without root, and uses them after what the machine has itself
#   --out       where gpu.json and gpu.log go (default: the work folder's out); those of an earlier run are replaced
#   --work      where packages are unpacked, clattn is built and caches lie (default: build/gpu in the source folder)
#   OPTION      bench/gpu.py's: --device, --icd, --stage, --limit, --build, --level, --tests, --jobs, --shape, --only, --peer
#
# Needs Python 3 (PYTHON names it; with its PyTorch clattn is compared) and, to build, a C compiler.
set -eu

fail() { echo "gpu.sh: $*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
fetch= packages= out= work=$root/build/gpu

# depends PACKAGE: what it needs, the first of alternatives.
depends()
{
    apt-cache depends --important "$1" | awk '/^[ |]+(Pre)?Depends: / {
        if (!more && $2 !~ /^</)
            print $2
        more = /^ *\|/
    }'
}

fetch_packages()
{
    command -v apt-get > /dev/null || fail "--fetch needs apt-get"
    mkdir -p "$1" || fail "$1: cannot be made"
    queue='ocl-icd-libopencl1 ocl-icd-opencl-dev opencl-c-headers libclblast-dev libjansson-dev libcmocka-dev meson
        ninja-build pkgconf'
    seen=
    while :; do
        # shellcheck disable=SC2086 # words are meant
        set -- "$1" $queue
        [ $# -ge 2 ] || break
        each=$2 folder=$1
        shift 2
        queue=$*
        set -- "$folder"
        # Where a C compiler and Python are, these are; those of another release could break them.
        case $each in libc6* | libgcc* | libstdc++* | gcc* | libcrypt* | python3*) continue ;; esac
        case " $seen " in *" $each "*) continue ;; esac
        seen="$seen $each"
        queue="$queue $(depends "$each")"
    done
    # shellcheck disable=SC2086 # words are meant
    (cd "$1" && apt-get download $seen) || fail "the packages could not be downloaded:$seen"
    echo "in $1:$seen"
}

# absolute PATH: the same from every folder.
absolute() { case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }

# Puts all packages of a folder into the prefix and tells compiler, loader and pkg-config of it.
use_packages()
{
    command -v dpkg-deb > /dev/null || fail "--packages needs dpkg-deb"
    prefix=$work/prefix
    rm -rf "$prefix"
    mkdir -p "$prefix/bin" || fail "$prefix: cannot be made"
    for each in "$1"/*.deb; do
        [ -e "$each" ] || fail "$1: there are no packages in it"
        dpkg-deb -x "$each" "$prefix" || fail "$each: cannot be unpacked"
    done
    libraries=$prefix/usr/lib
    for each in "$prefix"/usr/lib/*-linux-gnu*; do
        [ ! -d "$each" ] || libraries=$each:$libraries
    done
    descriptions=$prefix/usr/share/pkgconfig
    for each in "$prefix"/usr/lib/*/pkgconfig "$prefix"/usr/lib/pkgconfig; do
        [ ! -d "$each" ] || descriptions=$each:$descriptions
    done
    # They say where a package has been installed.
    find "$prefix/usr" -name '*.pc' -type f -exec sed -i "s#\\(=\\|-[IL]\\)/usr#\\1$prefix/usr#g" {} +
    if [ -e "$prefix/usr/bin/meson" ]; then
        # Beside its script it finds its modules without PYTHONPATH, which would reach other Python programs too; and it
        # runs by the Python that is here.
        ln -sf ../lib/python3/dist-packages/mesonbuild "$prefix/usr/bin/mesonbuild"
        printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$python" "$prefix/usr/bin/meson" > "$prefix/bin/meson"
        chmod +x "$prefix/bin/meson"
    fi
    export PATH="$PATH:$prefix/bin:$prefix/usr/bin"
    export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LIBRARY_PATH="$libraries${LIBRARY_PATH:+:$LIBRARY_PATH}"
    export C_INCLUDE_PATH="$prefix/usr/include${C_INCLUDE_PATH:+:$C_INCLUDE_PATH}"
    export CPLUS_INCLUDE_PATH="$prefix/usr/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
    export PKG_CONFIG_PATH="$descriptions${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
}

left=$#
while [ "$left" -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --fetch | --packages | --out | --work)
        [ "$left" -ge 2 ] && [ -n "$2" ] || fail "$1 needs a folder"
        case $1 in
        --fetch) fetch=$(absolute "$2") ;;
        --packages) packages=$(absolute "$2") ;;
        --out) out=$(absolute "$2") ;;
        --work) work=$(absolute "$2") ;;
        esac
        shift
        left=$((left - 1))
        ;;
    *) set -- "$@" "$1" ;;
    esac
    shift
    left=$((left - 1))
done

if [ -n "$fetch" ]; then
    fetch_packages "$fetch"
    exit 0
fi
python=$(command -v "${PYTHON:-python3}") || fail "needs Python 3: ${PYTHON:-python3} was not found (PYTHON names another)"
[ -z "$packages" ] || use_packages "$packages"
exec "$python" "$here/gpu.py" --out "${out:-$work/out}" --work "$work" "$@"
