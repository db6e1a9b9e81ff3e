#!/bin/sh
# Runs the test programs on every OpenCL platform that can be installed here, and prints one table: platform x solver x
# passed, failed, refused.
#
#   sh tests/platforms.sh [--update] [--only PLATFORM[,PLATFORM...]] [--build FOLDER] [--no-install]
#   sh tests/platforms.sh --table FOLDER
#   sh tests/platforms.sh --install-intel FOLDER
#
#   --update         writes the table and today's date into docs/testing.md
#   --only           of pocl, oclgrind, rusticl, intel (default: all four)
#   --build          as for tests/run.sh, which runs the programs
#   --table          only prints the table of a run of tests/run.sh that has built in FOLDER
#   --install-intel  only fetches Intel's runtime for CPUs into FOLDER
#
# PoCL, Oclgrind (tiny shapes) and rusticl on llvmpipe are Debian's packages and belong to every run of tests/run.sh.
# Intel's runtime, the one here that has float16 arithmetic and sub-groups, is some 800 MB of PyPI's under a licence of
# its own; it is fetched into the folder of the drivers' caches, is never installed, and nothing links with it.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
update= only=pocl,oclgrind,rusticl,intel build=$root/build/test install=

# Versions that work together: the runtime finds the other two beside itself.
install_intel()
{
    [ -e "$1/lib/libintelocl.so" ] && return 0
    rm -rf "$1.part" && mkdir -p "$1.part" || return 1
    python=python3
    "$python" -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
    "$python" -m pip --version > /dev/null 2>&1 ||
        $(command -v sudo) apt-get -q -y --no-install-recommends install python3-pip || return 1
    "$python" -m pip --quiet install --no-deps --no-compile --ignore-installed --prefix "$1.part" \
        intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0 'tbb==2023.*' || return 1
    # Debian's pip puts a prefix's files under local/.
    [ -d "$1.part/local" ] && mv "$1.part/local" "$1.inner" && rm -rf "$1.part" && mv "$1.inner" "$1.part"
    [ -e "$1.part/lib/libintelocl.so" ] && rm -rf "$1" && mv "$1.part" "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --update) update=yes ;;
    --only) only=${2-} && shift ;;
    --build) build=${2-} && shift ;;
    --no-install) install=--no-install ;;
    --table) exec /usr/bin/python3 "$here/platforms.py" "${2-}/logs" ;;
    --install-intel)
        [ -n "${2-}" ] || exit 2
        install_intel "$2"
        exit
        ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    shift
done

# shellcheck disable=SC2086 # no word where there is no option
sh "$here/run.sh" --only "$only" --build "$build" $install
status=$?
echo
# shellcheck disable=SC2086
/usr/bin/python3 "$here/platforms.py" "$build/logs" ${update:+--update "$root/docs/testing.md"} || status=1
exit $status
