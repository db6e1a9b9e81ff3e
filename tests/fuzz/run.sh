#!/bin/sh
# Builds the fuzzers of what reads files and arguments, and runs each for so many seconds:
#
#   sh tests/fuzz/run.sh SECONDS FOLDER [READER...]
#
# In FOLDER/READER stay the fuzzer, its log, its corpus, which begins with what seeds.py makes and grows from run to run,
# and the input where one fails.  As many readers at a time as there are cores.  Prints a TAP line for each; one that cannot
# be built without clang's libFuzzer or a library is skipped.
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

# What a reader needs beside its fuzzer: sources and packages.
about()
{
    io=$(printf "%s\n" "$root"/src/io/*.c | grep -v _windows)
    parts= sources= base=
    case $1 in
    npy | safetensors | ctranslate2) sources=$io packages=OpenCL ;;
    wordpiece)
        sources=$io packages="jansson libutf8proc"
        parts="embed/wordpiece embed/wordpiece_json embed/wordpiece_load embed/bert_text run/model_file cli/json_text"
        ;;
    snippet)
        packages=OpenCL base="os_file os_process report sha256 status strbuf"
        parts="../program/snippet_log ../program/snippet_refuse ../program/snippet_text ../program/source"
        ;;
    audio) packages="sndfile soxr fftw3" parts="cli/os_tool transcribe/sound/audio transcribe/sound/mel" ;;
    whisper_tokens)
        sources="$io $root/src/base/strbuf.c" packages=jansson
        parts="cli/json_text cli/os_tool run/model_file transcribe/tokens transcribe/words transcribe/rules transcribe/utf8"
        ;;
    wisdom)
        packages=OpenCL base="os_process report status strbuf"
        parts="../plan/wisdom/text ../plan/wisdom/tuning ../plan/wisdom/wisdom"
        ;;
    cache_entry)
        packages=OpenCL base="os_file os_process report sha256 status strbuf"
        parts=../program/binary_cache
        ;;
    vision)
        sources="$io $root/src/nn/model/names.c" packages="jansson OpenCL" base=layout
        parts="../pictures/fit_rule ../pictures/prefix cli/json_text cli/os_tool run/host run/model_config run/model_file run/model_tensors"
        for part in hugging_face processor tensors timm vision; do
            parts="$parts embed_image/$part"
        done
        ;;
    swinir)
        sources="$io $root/src/nn/model/vision.c" packages=OpenCL base="layout os_process report status strbuf"
        parts="../restore/shape ../restore/swinir ../restore/tiling"
        ;;
    png)
        packages="libpng zlib" base=strbuf
        parts="cli/os_tool cli/png_file ../io/common ../io/os_file"
        ;;
    arguments)
        sources=$io packages="jansson OpenCL" base=layout
        parts="cli/options cli/option_values cli/os_tool attention/options attention/array_order run/host"
        ;;
    *) return 1 ;;
    esac
    for part in $base; do
        parts="$parts ../base/$part"
    done
    for part in $parts; do
        sources="$sources $root/src/tool/$part.c"
    done
}

flags="-g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -DCL_TARGET_OPENCL_VERSION=300
    -DCL_USE_DEPRECATED_OPENCL_1_2_APIS"

# ---- one reader (called back below): --one READER SECONDS FOLDER; its line without number in FOLDER/READER/result ----
if [ "${1-}" = --one ]; then
    reader=$2 seconds=$3 folder=$4/$2
    about "$reader"
    mkdir -p "$folder/corpus" && rm -f "$folder/result" "$folder/log"
    for package in $packages; do
        pkg-config --exists "$package" || { echo "ok - $reader # SKIP no $package" > "$folder/result" && exit; }
    done
    # shellcheck disable=SC2046,SC2086 # words are meant
    clang $flags -I "$root/include" -I "$root/src" -I "$root/cl" -o "$folder/fuzz" $sources "$here/fuzz_$reader.c" \
        $(pkg-config --cflags --libs $packages) -lm > "$folder/log" 2>&1 ||
        { echo "not ok - $reader cannot be built" > "$folder/result" && exit; }
    # Whatever a fuzzer that ends abnormally leaves behind lies in its folder, too.
    rm -rf "$folder/tmp" && mkdir "$folder/tmp"
    TMPDIR=$folder/tmp "$folder/fuzz" -max_total_time="$seconds" -max_len=4096 -timeout=20 -print_final_stats=1 \
        -artifact_prefix="$folder/" "$folder/corpus" >> "$folder/log" 2>&1
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log")
    if [ "$status" = 0 ] && [ "${runs:-0}" -gt 0 ]; then
        echo "ok - $reader: $runs inputs in $seconds s" > "$folder/result"
    else
        echo "not ok - $reader: exit status $status after ${runs:-no} inputs" > "$folder/result"
    fi
    exit
fi

[ $# -ge 2 ] || { echo "usage: run.sh SECONDS FOLDER [READER...]" >&2; exit 2; }
seconds=$1
mkdir -p "$2" && folder=$(cd "$2" && pwd) || exit 1
shift 2
[ $# -gt 0 ] || set -- npy safetensors ctranslate2 wordpiece whisper_tokens audio wisdom cache_entry png vision swinir arguments snippet
for reader; do
    about "$reader" || { echo "run.sh: there is no fuzzer of $reader" >&2; exit 2; }
done
echo "1..$#"
if ! printf '%s\n' '#include <stddef.h>' 'int LLVMFuzzerTestOneInput(const char *data, size_t size);' \
    'int LLVMFuzzerTestOneInput(const char *data, size_t size) { return data && size > 9999; }' |
    clang -x c $flags -o "$folder/probe" - > /dev/null 2>&1; then
    number=0
    for reader; do
        echo "ok $((number += 1)) - $reader # SKIP no clang with libFuzzer and its sanitizers"
    done
    exit 0
fi
/usr/bin/python3 "$here/seeds.py" "$folder" || exit 1
printf '%s\n' "$@" | xargs -P "$(nproc 2> /dev/null || echo 2)" -I '{}' sh "$here/run.sh" --one '{}' "$seconds" "$folder"
number=0 failed=0
for reader; do
    number=$((number + 1))
    result=$(cat "$folder/$reader/result")
    case $result in
    not*)
        failed=1
        tail -n 60 "$folder/$reader/log" | sed 's/^/# /'
        ;;
    esac
    echo "$result" | sed "s/ok -/ok $number -/"
done
exit $failed
