#!/usr/bin/env python3
"""What leaves the shared library, what it needs and what it keeps: check_library.py LIBRARY VERSION linked|dlopen.

Uses nm, readelf and objdump; a build with sanitizers has symbols of theirs and is only checked for its exports.
"""
import re
import subprocess
import sys

# The library never ends or multiplies the process, prints nothing, and registers nothing to run at exit.
FORBIDDEN = {"exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail", "__assert", "atexit", "on_exit", "fork",
             "vfork", "system", "popen", "printf", "puts", "putchar", "perror", "__printf_chk", "stdout", "stderr",
             "setenv", "putenv", "unsetenv", "signal", "sigaction", "tmpnam", "strtok", "rand", "srand"}

# The two that may change (see docs/decisions.md): what a thread reports, and the lock and user count around CLBlast.
MUTABLE = [r"thread_(mark|message|text|report|job|worker)\w*", r"\w*clblast\w*", r"lock", r"users"]

# What the compiler and the linker put there.
TOOLCHAIN = {"__dso_handle", "completed.0", "__TMC_END__", "_edata", "__bss_start", "_end", "__frame_dummy_init_array_entry",
             "__do_global_dtors_aux_fini_array_entry", "_DYNAMIC", "_GLOBAL_OFFSET_TABLE_", "object.0"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    library, version, opencl = sys.argv[1:4]
    problems = []

    exported, undefined = [], []
    for line in output("nm", "-D", library).splitlines():
        fields = line.split()
        name = fields[-1].split("@")[0]
        if fields[-2] in ("U", "w"):
            undefined.append(name)
        elif fields[-2] != "A":  # A: the version node itself
            exported.append(name)
    sanitized = any(name.startswith(("__asan", "__ubsan", "__tsan")) for name in undefined)
    problems += [f"exports {name}" for name in exported if not name.startswith("clattn_")]
    if "clattn_version" not in exported:
        problems.append("does not export clattn_version")

    dynamic = output("readelf", "-d", "-W", library)
    soname = re.search(r"\(SONAME\).*\[(.*?)\]", dynamic)
    if not soname or soname.group(1) != "libclattn.so." + version.split(".")[0]:
        problems.append(f"SONAME is {soname and soname.group(1)}")
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)
    if (opencl == "linked") != any(name.startswith("libOpenCL") for name in needed):
        problems.append(f"needs {needed} in a build with -Dopencl={opencl}")
    if "TEXTREL" in dynamic:
        problems.append("has text relocations")
    if re.search(r"GNU_STACK.*RWE", output("readelf", "-l", "-W", library)):
        problems.append("wants an executable stack")

    if not sanitized:
        problems += [f"uses {name}" for name in undefined if name in FORBIDDEN]
        for line in output("objdump", "-t", library).splitlines():
            found = re.match(r"[0-9a-f]+ (.{7}) (\.(?:data|bss|tdata|tbss)\S*)\s+([0-9a-f]+)\s+(?:\.hidden )?(\S+)$", line)
            if not found or "d" in found.group(1) or found.group(2).startswith(".data.rel.ro"):
                continue
            name = found.group(4)
            if name not in TOOLCHAIN and not any(re.fullmatch(known, name) for known in MUTABLE):
                problems.append(f"has a mutable global: {name} in {found.group(2)}")
        for section in (".init_array", ".fini_array", ".ctors", ".dtors"):
            size = re.search(r"\]\s+%s\s+\S+\s+\S+\s+\S+\s+([0-9a-f]+)" % re.escape(section),
                             output("readelf", "-S", "-W", library))
            if size and int(size.group(1), 16) > 8:  # one entry is the C runtime's own
                problems.append(f"has constructors or destructors in {section}")

    for problem in problems:
        print(f"{library}: {problem}")
    print(f"{len(exported)} exported symbols, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main())
