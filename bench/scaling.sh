#!/bin/sh
# Times clattn against the sizes of its work, and random shapes against the machine's roofs, and keeps tables and a plot:
#
#   sh bench/scaling.sh BUILD_DIR [--out FOLDER] [OPTION...]
#
#   BUILD_DIR  where clattn was built, with the command
#   --out      where scaling.md, scaling.svg and random_shapes.md go (default: BUILD_DIR/bench); those of an earlier run
#              are replaced
#   OPTION     bench/scaling.py's: --rounds N, --only TEXT; with --only, random shapes are left out
#
# Runs on the OpenCL device that the command chooses (CLATTN_DEVICE).  The exit status is 1 if something grows faster than
# its arithmetic, or could not be measured.
set -eu

fail() { echo "scaling.sh: $*" >&2; exit 1; }

case ${1-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
'' | -*) fail "usage: scaling.sh BUILD_DIR [--out FOLDER] [--rounds N] [--only TEXT]" ;;
esac
build=$1
shift
out=$build/bench
all=yes
left=$#
while [ "$left" -gt 0 ]; do
    case $1 in
    --out)
        [ "$left" -ge 2 ] && [ -n "$2" ] || fail "--out needs a folder"
        out=$2
        shift
        left=$((left - 1))
        ;;
    --only | --only=*) all=no; set -- "$@" "$1" ;;
    *) set -- "$@" "$1" ;;
    esac
    shift
    left=$((left - 1))
done
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

[ -d "$build" ] || fail "$build: no such folder; build clattn first: meson setup $build && meson compile -C $build"
command -v "$python" > /dev/null || fail "needs Python 3: $python was not found (PYTHON names another)"
mkdir -p "$out" || fail "$out: cannot be made"
# What an earlier run has left is not this one's.
rm -f "$out/scaling.md" "$out/scaling.svg" "$out/random_shapes.md"

status=0
"$python" "$here/scaling.py" "$build" --markdown "$out/scaling.md" --svg "$out/scaling.svg" "$@" || status=$?
if [ "$all" = yes ] && [ -e "$out/scaling.md" ]; then
    echo
    "$python" "$here/random_shapes.py" "$build" --markdown "$out/random_shapes.md" || status=$?
fi
echo
for each in scaling.md scaling.svg random_shapes.md; do
    [ ! -e "$out/$each" ] || echo "$out/$each"
done
exit "$status"
