#!/bin/sh
# From nothing to a result: installs what is missing, builds, and runs one attention layer of a real sentence encoder
# over an English paragraph, on the best OpenCL device of this machine (PoCL where there is no GPU).
#
#   sh examples/quickstart.sh [BUILD_FOLDER]        (default: build)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
sample=$root/examples/minilm

sh "$root/tests/run.sh" --deps
echo "building in $build"
mkdir -p "$build"
{ [ -e "$build/build.ninja" ] || meson setup "$build" "$root"; } > "$build/quickstart.log" 2>&1 &&
    meson compile -C "$build" >> "$build/quickstart.log" 2>&1 || {
    tail -n 40 "$build/quickstart.log" >&2
    exit 1
}

echo
echo "The paragraph:"
fold -s -w 78 "$sample/paragraph.txt" | sed 's/^/  /'
echo
"$build/examples/minilm" "$sample"
echo
echo "The same from the command line:"
echo "  clattn mha --weights weights.safetensors --heads 12 -x hidden.npy -o output.npy --attention words.html --labels tokens.txt"
"$build/src/clattn" mha --weights "$sample/weights.safetensors" --heads 12 -x "$sample/hidden.npy" \
    -o "$build/minilm-output.npy" --verify --attention "$build/words.html" --labels "$sample/tokens.txt"
echo
echo "Who attends to whom, head by head, for a browser: $build/words.html"
