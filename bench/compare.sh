#!/bin/sh
# Compares clattn with the machine's roofs and with PyTorch, and keeps the results, the tables and a plot:
#
#   sh bench/compare.sh BUILD_DIR [--out FOLDER] [OPTION...]
#
#   BUILD_DIR  where clattn was built, with the command
#   --out      where compare.json, compare.md and compare.svg go (default: BUILD_DIR/bench); those of an earlier run are
#              replaced
#   OPTION     bench/compare.py's: --rounds N, --only TEXT, --machine TEXT, --openblas FILE
#
# Runs on the OpenCL device that the command chooses (CLATTN_DEVICE).  PyTorch is measured if the Python that PYTHON names
# (default: python3) can import it.  compare.json has the form of bench/results.
set -eu

fail() { echo "compare.sh: $*" >&2; exit 1; }

case ${1-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
'' | -*) fail "usage: compare.sh BUILD_DIR [--out FOLDER] [--rounds N] [--only TEXT] [--machine TEXT] [--openblas FILE]" ;;
esac
build=$1
shift
out=$build/bench
left=$#
while [ "$left" -gt 0 ]; do
    if [ "$1" = --out ]; then
        [ "$left" -ge 2 ] && [ -n "$2" ] || fail "--out needs a folder"
        out=$2
        shift
        left=$((left - 1))
    else
        set -- "$@" "$1"
    fi
    shift
    left=$((left - 1))
done
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

[ -d "$build" ] || fail "$build: no such folder; build clattn first: meson setup $build && meson compile -C $build"
command -v "$python" > /dev/null || fail "needs Python 3: $python was not found (PYTHON names another)"
for each in src/clattn bench/roof; do
    [ -x "$build/$each" ] || fail "$build/$each is not there; build it first: meson compile -C $build"
done
mkdir -p "$out" || fail "$out: cannot be made"
"$build/src/clattn" devices > /dev/null || fail "the clattn command finds no device to measure"
# A run that fails must not leave the results of an earlier one.
rm -f "$out/compare.json" "$out/compare.md" "$out/compare.svg"

"$python" "$here/compare.py" "$build" --json "$out/compare.json" --markdown "$out/compare.md" --svg "$out/compare.svg" "$@"
echo
for each in compare.json compare.md compare.svg; do
    [ ! -e "$out/$each" ] || echo "$out/$each"
done
