#!/bin/sh
# Compiles every kernel, specialised as the planner would for GPUs that the tests do not have, with the compilers of
# their drivers, and fails if a kernel spills registers:
#
#   sh tests/offline/offline.sh [--quick] [--build FOLDER] [--tools FOLDER] [--no-install]
#   sh tests/offline/offline.sh --install [--tools FOLDER]
#
#   --quick       compiles only the problems marked "quick" (seconds instead of a minute)
#   --build       a build folder of clattn (default: build/test/gcc, as tests/run.sh leaves it).  offline.md is written there:
#                 tables of registers, spills and local memory, of hot loops and occupancy
#   --tools       where the compilers are kept (default: build/tools); about 100 MB are fetched once
#   --no-install  fetches nothing and fails if a compiler is missing
#   --install     only fetches the compilers
#
# The compilers: clang 19, from Debian's packages, because clang 15 knows no sm_90 and gives kernels on gfx1100 at most 128
# registers; libclc 15, which is installed with rusticl; ptxas and nvdisasm, the machine's own or those of PyPI's
# nvidia-cuda-nvcc and nvidia-cuda-nvdisasm; ocloc, from Debian's intel-opencl-icd.  Packages are unpacked into the tools'
# folder and not installed: Intel's would add an OpenCL platform to the machine.  Prints TAP.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
quick= build=$root/build/test/gcc tools=$root/build/tools install=yes only_install=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=--quick ;;
    --build) build=${2-} && shift ;;
    --tools) tools=${2-} && shift ;;
    --no-install) install= ;;
    --install) only_install=yes ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done
mkdir -p "$tools" && tools=$(cd "$tools" && pwd) || exit 1

fail()
{
    echo "offline.sh: $*" >&2
    exit 1
}

# unpack NAME PACKAGE...: Debian's packages, unpacked into $tools/NAME.
unpack()
{
    name=$1
    shift
    [ -e "$tools/$name/usr" ] && return 0
    [ -n "$install" ] || fail "$name is not in $tools"
    rm -rf "${tools:?}/$name.part" && mkdir -p "$tools/$name.part/debs"
    (
        cd "$tools/$name.part/debs" || exit 1
        # Package lists may be missing or old.
        apt-get -q download "$@" > ../log 2>&1 || {
            $(command -v sudo) apt-get -q update >> ../log 2>&1
            apt-get -q download "$@" >> ../log 2>&1
        } || exit 1
        for package in *.deb; do
            dpkg -x "$package" .. || exit 1
        done
    ) || fail "cannot fetch $*: $(tail -n 3 "$tools/$name.part/log")"
    rm -rf "$tools/$name.part/debs" "${tools:?}/$name"
    mv "$tools/$name.part" "$tools/$name"
}

# Prints the machine's newest ptxas if it is new enough for sm_90.
find_ptxas()
{
    for ptxas in "$(command -v ptxas)" /usr/local/cuda/bin/ptxas "$tools"/ptxas/nvidia/*/bin/ptxas; do
        [ -x "$ptxas" ] && "$ptxas" --help 2> /dev/null | grep -q "'sm_90'\|sm_90" && return 0
    done
    return 1
}

find_nvdisasm()
{
    for nvdisasm in "$(command -v nvdisasm)" /usr/local/cuda/bin/nvdisasm "$tools"/nvdisasm/nvidia/*/bin/nvdisasm; do
        [ -x "$nvdisasm" ] && return 0
    done
    return 1
}

# from_pypi FOLDER PACKAGE: one of PyPI's packages, unpacked into $tools/FOLDER.
from_pypi()
{
    [ -n "$install" ] || fail "there is no $1, or none that knows sm_90"
    python=python3
    $python -m pip --version > /dev/null 2>&1 || $(command -v sudo) apt-get -q -y --no-install-recommends install python3-pip \
        > "$tools/pip.log" 2>&1 && $python -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
    $python -m pip --quiet install --no-deps --target "$tools/$1" "$2" > "$tools/pip.log" 2>&1 ||
        fail "cannot fetch $2: $(tail -n 3 "$tools/pip.log")"
}

find_ptxas || {
    from_pypi ptxas nvidia-cuda-nvcc==13.0.88
    find_ptxas || fail "nvidia-cuda-nvcc has no ptxas"
}
find_nvdisasm || {
    from_pypi nvdisasm nvidia-cuda-nvdisasm==13.5.37
    find_nvdisasm || fail "nvidia-cuda-nvdisasm has no nvdisasm"
}
clang=$(command -v clang-19) || {
    unpack clang-19 clang-19 libclang-cpp19 libllvm19 libclang-common-19-dev
    lib=$tools/clang-19/usr/lib
    clang="env LD_LIBRARY_PATH=$lib/llvm-19/lib:$lib/x86_64-linux-gnu $lib/llvm-19/bin/clang"
}
ocloc=$(command -v ocloc) || {
    unpack ocloc intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14 libllvmspirvlib14
    ocloc="env LD_LIBRARY_PATH=$tools/ocloc/usr/lib/x86_64-linux-gnu $tools/ocloc/usr/bin/ocloc"
}
for bitcode in nvptx64--nvidiacl.bc amdgcn--amdhsa.bc; do
    [ -e "/usr/lib/clc/$bitcode" ] || fail "/usr/lib/clc/$bitcode is missing (package libclc-15)"
done
[ -n "$only_install" ] && exit 0
[ -x "$build/tests/offline/offline_list" ] && [ -x "$build/tests/offline/offline_splice" ] || fail "$build is no build folder of clattn"

export SPLICE="$build/tests/offline/offline_splice"
export CLANG_NVIDIA="$clang" CLANG_AMD="$clang" PTXAS="$ptxas" NVDISASM="$nvdisasm" OCLOC="$ocloc"
export LIBCLC_NVIDIA=/usr/lib/clc/nvptx64--nvidiacl.bc LIBCLC_AMD=/usr/lib/clc/amdgcn--amdhsa.bc
OCLOC_VERSION=$(apt-cache policy intel-opencl-icd 2> /dev/null | sed -n 's/ *Candidate: //p')
export OCLOC_VERSION
# shellcheck disable=SC2086 # the variable is split into words
exec /usr/bin/python3 "$here/compile.py" --list "$build/tests/offline/offline_list" --kernels "$root/cl" \
    --work "$tools/offline" --report "$build/offline.md" $quick
