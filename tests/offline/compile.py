"""Compiles what the planner would build on GPUs that the tests do not have, and reads the compilers' reports.

    compile.py --list LIST_PROGRAM --kernels CL_FOLDER --work FOLDER [--quick] [--report FILE] [--jobs N]

tests/offline/offline.sh finds the compilers and says where they are in the environment: CLANG_NVIDIA, LIBCLC_NVIDIA, PTXAS,
NVDISASM, SPLICE, CLANG_AMD, LIBCLC_AMD, OCLOC.  Prints TAP: a test for each kernel on each GPU, that it compiles and, where
it is the planner's choice, that nothing is spilled and that its hot loop does on NVIDIA what HOT says; of one with wgmma
that nothing is spilled and its hot loop has HGMMA; and a test that no kernel of CL_FOLDER was left out.  Results are kept in
FOLDER/results under a digest of all that they depend on, so that a later run compiles only what has changed.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import machine_code

# Kernels that no plan uses here, and why; they are compiled with their file's defaults.
WITHOUT_A_PLAN = {"matmul_bias": "belongs to CLBlast, which calls the linked OpenCL loader"}

# Kernels that call functions which only the drivers of these GPUs have; tests can only see that they compile.
DRIVERS_FUNCTIONS = {"image_pack", "image_unpack"}
WITH_DRIVERS_FUNCTIONS = ("sm_", "gfx")

# The least share of products among the instructions of a kernel's hot loop on NVIDIA.
HOT = {("matmul_tile", "2048 x 2048 x 512"): 0.75, ("matmul_tile", "2048 x 2048 x 512, weight and bias"): 0.75}

# Programs whose PTX the library changes before the driver compiles it (src/program/ptx_splice.h).
SPLICED = "-DPTX_SPLICE=1"

# Registers that a compute unit has for the items of one work-group.
NVIDIA_REGISTERS = 65536

# The texts before the report's two tables.
REGISTERS = """\
Registers of a work-item (vector registers on AMD; on Intel those of a thread, which runs as many items as `simd` says),
local memory, private arrays. "asked for": by a solver that the planner would not choose on these GPUs."""
SPEED = """\
NVIDIA: the share of multiply-adds, of items or of matrices, among the instructions of the kernel's hot loop in the
disassembly, and the warps that a multiprocessor holds of how many it could. AMD: the waves that a SIMD holds, as its
compiler counts them. Intel: the threads that an engine runs. A kernel without a share has no loop with multiply-adds. An
HGMMA (`wgmma`) does for a warp what 2 to 16 HMMA do, so few are enough."""

Kernel = collections.namedtuple("Kernel", "target quick planned file name items options about")
# `waves` is what AMD's compiler says of its SIMDs; `loop`, on NVIDIA, a machine_code.Loop or None.
Figures = collections.namedtuple("Figures", "registers spilled scratch local detail waves loop", defaults=(0, None))


class CompileError(Exception):
    """A compiler refused a kernel; the text is its output."""


def tool(name):
    try:
        return os.environ[name]
    except KeyError:
        sys.exit(f"compile.py: {name} is not set (run tests/offline/offline.sh)")


def call(command):
    """Returns the command's output; raises CompileError if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False)
    if done.returncode:
        raise CompileError(" ".join(map(str, command)) + "\n" + done.stdout[-4000:])
    return done.stdout


def nvidia(source, options, arch, folder):
    """-c: parts of programs, which may call functions that are not there, and have more local memory than 48 KiB.

    ptxas -v: `Compiling entry function 'X'`, then spills and the stack frame, then registers and shared memory."""
    ptx = folder / "kernel.ptx"
    most = re.findall(r"-cl-nv-maxrregcount=(\d+)", options)
    options = re.sub(r"-cl-nv-\S+", "", options)
    call([*tool("CLANG_NVIDIA").split(), "-target", "nvptx64-unknown-nvidiacl", f"-march={arch}", "-x", "cl",
          *options.split(), "-O2", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", tool("LIBCLC_NVIDIA"),
          "-S", source, "-o", ptx])
    if SPLICED in options:
        call([tool("SPLICE"), ptx, folder / "spliced.ptx"])
        ptx, arch = folder / "spliced.ptx", arch + "a"
    log = call([tool("PTXAS"), "-v", "-c", *[f"--maxrregcount={count}" for count in most], f"-arch={arch}", ptx, "-o",
                folder / "kernel.cubin"])
    # ptxas warns so of a wgmma whose sums are used before they are awaited; and of any call, which in a part of a program may
    # lead elsewhere, and which it inlines in a whole one.
    if re.search("Potential Performance Loss(?!.*Extern calls)", log):
        raise CompileError(log)
    loops = machine_code.hot_loops(call([tool("NVDISASM"), "-c", folder / "kernel.cubin"]))
    found = {}
    for part in re.split(r"Compiling entry function ", log)[1:]:
        name = re.match(r"'(\w+)'", part)[1]
        frame, stores, loads = re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups()
        used = re.search(r"Used (\d+) registers", part)[1]
        shared = re.search(r"(\d+) bytes smem", part)
        # The stack frame holds spilled registers and private arrays.
        found[name] = Figures(int(used), int(stores) + int(loads), int(frame), int(shared[1]) if shared else 0, "",
                              loop=loops.get(name))
    return found


def amd(source, options, cpu, folder):
    """The metadata at the end of the assembly, and the compiler's remark behind each kernel."""
    assembly = folder / "kernel.s"
    call([*tool("CLANG_AMD").split(), "-target", "amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-nogpulib", "-x", "cl",
          *options.split(), "-O2", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", tool("LIBCLC_AMD"),
          "-S", source, "-o", assembly])
    text = assembly.read_text()
    metadata = text.split(".amdgpu_metadata")[1]
    # A function that is not a kernel has a size and no such remark.
    waves = dict(re.findall(r"^\s*\.size\s+(\w+),(?:(?!^\s*\.size\s).)*?^; Occupancy: (\d+)", text,
                            re.MULTILINE | re.DOTALL))
    found = {}
    for part in re.split(r"\n  - ", metadata.split("amdhsa.kernels:")[1])[1:]:
        def field(name, text=part):
            match = re.search(rf"\.{name}:\s+(\d+)", text)
            return int(match[1]) if match else 0
        name = re.search(r"^    \.name:\s+(\w+)", part, re.MULTILINE)
        if not name: # the version's numbers behind the kernels
            continue
        found[name[1]] = Figures(field("vgpr_count"), field("vgpr_spill_count") + field("sgpr_spill_count"),
                              field("private_segment_fixed_size"), field("group_segment_fixed_size"),
                              f"{field('sgpr_spill_count')} of them scalar", int(waves.get(name[1], 0)))
    return found


def section_of_elf(data, wanted):
    """The named section of a 64-bit little-endian ELF file."""
    def number(at, size):
        return int.from_bytes(data[at:at + size], "little")
    start, entry, count, names = number(0x28, 8), number(0x3A, 2), number(0x3C, 2), number(0x3E, 2)
    def place(index):
        header = start + index * entry
        return number(header, 4), number(header + 0x18, 8), number(header + 0x20, 8)
    names_at = place(names)[1]
    for index in range(count):
        name, at, size = place(index)
        if data[names_at + name:data.index(b"\0", names_at + name)] == wanted:
            return data[at:at + size].decode()
    raise CompileError(f"the binary has no section {wanted.decode()}")


def intel(source, options, device, folder):
    """.ze_info of the binary.  128 or 256 general registers of 32 bytes a thread, which runs simd_size items."""
    call([*tool("OCLOC").split(), "compile", "-q", "-device", device, "-file", source, "-options", options,
          "-internal_options", "-ze-opt-allow-zebin", "-out_dir", folder])
    info = section_of_elf(next(folder.glob("*.bin")).read_bytes(), b".ze_info")
    found = {}
    for part in re.split(r"\n  - name:", info.split("kernels_misc_info:")[0])[1:]:
        def field(name, text=part):
            match = re.search(rf"{name}:\s+(\d+)", text)
            return int(match[1]) if match else 0
        spilled = scratch = 0
        for usage, size in re.findall(r"usage:\s+(\w+)\s*\n\s+size:\s+(\d+)", part):
            if usage == "spill_fill_space":
                spilled += int(size)
            else:
                scratch += int(size)
        found[part.split()[0]] = Figures(field("grf_count"), spilled + field("spill_size"), scratch,
                                         field("slm_size"), f"simd {field('simd_size')}")
    return found


COMPILERS = {"sm_80": nvidia, "sm_90": nvidia, "gfx1030": amd, "gfx90a": amd, "gfx1100": amd, "dg2": intel}


def versions():
    """Returns each compiler's version line, for the report and for the digests."""
    def first(command, pattern):
        match = re.search(pattern, call(command))
        return match[0] if match else "unknown"
    clang = r"clang version \S+"
    of_ocloc = os.environ.get("OCLOC_VERSION", "unknown")
    return {nvidia: first([*tool("CLANG_NVIDIA").split(), "--version"], clang) + ", ptxas "
                    + first([tool("PTXAS"), "--version"], r"V\d[\d.]*"),
            amd: first([*tool("CLANG_AMD").split(), "--version"], clang),
            intel: f"ocloc {of_ocloc}"}


def figures_of(*fields):
    """Returns figures as they were before they went through JSON."""
    figures = Figures(*fields)
    return figures._replace(loop=machine_code.Loop(*figures.loop) if figures.loop else None)


def compile_program(program, folder, results, version):
    """Returns {kernel: figures} of (target, file, options), or the text of a failure."""
    target, file, options = program
    source = folder / file
    digest = hashlib.sha256("\0".join([target, version, options, source.read_text(),
                                       pathlib.Path(__file__).read_text(),
                                       pathlib.Path(machine_code.__file__).read_text()]).encode()
                            + (pathlib.Path(tool("SPLICE")).read_bytes() if SPLICED in options else b"")).hexdigest()
    kept = results / digest
    if kept.exists():
        return {name: figures_of(*figures) for name, figures in json.loads(kept.read_text()).items()}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            found = COMPILERS[target](source, options, target, pathlib.Path(scratch))
        except CompileError as error:
            return str(error)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(found))
    part.rename(kept)
    return found


def expand(kernels, name, seen):
    """Returns a kernel file in which the first #include of each header is replaced by the header."""
    if name in seen:
        return ""
    seen.add(name)
    text = (kernels / name).read_text()
    return re.sub(r'^#include "([^"]+)"$', lambda m: expand(kernels, m[1], seen), text, flags=re.MULTILINE)


def kernel_names(text):
    """Returns the kernels that a file defines outside comments."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.findall(r"^(?:__)?kernel\b[^;{()]*(?:__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)\s*)*void\s+(\w+)\s*\(",
                      text, re.MULTILINE)


def read_list(arguments):
    """Sorts kernels in the order of the list, those of plans first."""
    lines = call([arguments.list, arguments.work])
    kernels = []
    for line in lines.splitlines():
        target, quick, planned, file, name, items, options, about = line.split("\t")
        count = 1
        for extent in items.split("x"):
            count *= int(extent)
        kernels.append(Kernel(target, quick == "quick", planned == "planner", file, name, count, options, about))
    return kernels


def left_out(arguments, kernels):
    """Returns the folder's kernels that no plan uses, compiled with defaults, and the names of those that nothing
    excuses."""
    planned = {kernel.name for kernel in kernels}
    more, missing = [], []
    for path in sorted(arguments.kernels.rglob("*.cl")):
        for name in kernel_names(path.read_text()):
            if name in planned:
                continue
            inside = str(path.relative_to(arguments.kernels))
            if name not in WITHOUT_A_PLAN:
                missing.append(f"{name} of {inside}")
                continue
            file = "default-" + path.name
            (arguments.work / file).write_text(expand(arguments.kernels, inside, set()))
            more += [Kernel(target, False, False, file, name, 1, "-cl-std=CL1.2 -w", "defaults")
                     for target in COMPILERS]
    return more, missing


def is_opaque(kernel):
    return kernel.name in DRIVERS_FUNCTIONS and kernel.target.startswith(WITH_DRIVERS_FUNCTIONS)


def spilled(kernel, figures):
    """How much is spilled; AMD's scalar registers go to lanes of a vector register, and not to memory."""
    return f"{figures.spilled} ({figures.detail})" if kernel.target.startswith("gfx") else str(figures.spilled)


def verdict(kernel, outcome):
    """Returns None, or why the test has failed."""
    if isinstance(outcome, str):
        return outcome
    if kernel.name not in outcome:
        return f"the compiler names no kernel {kernel.name}, but {', '.join(outcome)}"
    figures = outcome[kernel.name]
    if SPLICED in kernel.options and not (figures.loop and figures.loop.matrix):
        return f"no loop has an HGMMA: {kernel.options}"
    if (not kernel.planned and SPLICED not in kernel.options) or is_opaque(kernel):
        return None
    if figures.spilled:
        return f"{spilled(kernel, figures)} registers or bytes spilled: {kernel.options}"
    if kernel.target.startswith("sm_") and -(-figures.registers // 8) * 8 * kernel.items > NVIDIA_REGISTERS:
        return f"{figures.registers} registers for each of {kernel.items} items do not fit: {kernel.options}"
    least = HOT.get((kernel.name, kernel.about)) if kernel.target.startswith("sm_") else None
    if least and (not figures.loop or machine_code.share(figures.loop) < least):
        return f"products are {hot(figures)} of the hot loop, less than {100 * least:.0f} %: {kernel.options}"
    return None


def hot(figures):
    return f"{100 * machine_code.share(figures.loop):.0f} %" if figures.loop else "none"


def speed_cell(kernel, outcome):
    """Describes the kernel's speed as its instructions, registers, local memory and items tell it."""
    if kernel is None or isinstance(outcome, str) or kernel.name not in outcome:
        return ""
    figures = outcome[kernel.name]
    if kernel.target.startswith("sm_"):
        held, most = machine_code.warps(kernel.target, figures.registers, figures.local, kernel.items)
        return (f"{hot(figures)}, " if figures.loop else "") + f"{held}/{most}"
    return str(machine_code.engine_threads(figures.registers) if kernel.target == "dg2" else figures.waves)


def cell(kernel, outcome):
    if kernel is None:
        return ""
    if isinstance(outcome, str) or kernel.name not in outcome:
        return "**failed**"
    if is_opaque(kernel):
        return "compiles"
    figures = outcome[kernel.name]
    text = str(figures.registers)
    if kernel.target == "dg2":
        text += f" ({figures.detail})"
    if figures.local:
        text += ", " + (f"{figures.local / 1024:.4g} KiB" if figures.local >= 1024 else f"{figures.local} B")
    if figures.scratch and not figures.spilled:
        text += f", arrays {figures.scratch} B"
    if figures.spilled:
        text += f", **spilled {spilled(kernel, figures)}**"
    return text


def write_table(rows, outcomes, title, contents):
    """Makes a table with a row for each kernel's problem and a column for each target, in which equal rows are
    merged."""
    table = ["| kernel | problem | " + " | ".join(title(target) for target in COMPILERS) + " |",
             "| --- " * (2 + len(COMPILERS)) + "|"]
    seen = set()
    for (name, about), targets in sorted(rows.items(), key=lambda row: row[0][0]):
        programs = tuple((target, kernel.file, kernel.options) for target, kernel in targets.items())
        if (name, programs) in seen:
            continue
        seen.add((name, programs))
        cells = [contents(targets.get(target), outcomes.get((target, targets[target].file, targets[target].options))
                          if target in targets else None) for target in COMPILERS]
        table.append(f"| `{name}` | {about} | " + " | ".join(cells) + " |")
    return table


def speed_title(target):
    unit = "hot loop, warps" if target.startswith("sm_") else "threads" if target == "dg2" else "waves"
    return f"{target}: {unit}"


def write_report(path, kernels, outcomes, version):
    rows, speed = collections.OrderedDict(), collections.OrderedDict()
    for kernel in kernels:
        about = kernel.about if kernel.planned or kernel.about == "defaults" else kernel.about + " (asked for)"
        rows.setdefault((kernel.name, about), {}).setdefault(kernel.target, kernel)
        outcome = outcomes[kernel.target, kernel.file, kernel.options]
        wanted = kernel.planned or "matrix" in kernel.name or SPLICED in kernel.options
        if wanted and not is_opaque(kernel) and not isinstance(outcome, str):
            speed.setdefault((kernel.name, about), {}).setdefault(kernel.target, kernel)
    table = ["# Kernels compiled for GPUs that are not here", ""] + REGISTERS.splitlines()
    table += ["", "Compilers: " + "; ".join(version[compiler] for compiler in (nvidia, amd, intel)) + ".", ""]
    table += write_table(rows, outcomes, str, cell)
    table += ["", "## Hot loops and occupancy", ""] + SPEED.splitlines() + [""]
    table += write_table(speed, outcomes, speed_title, speed_cell)
    path.write_text("\n".join(table) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", required=True)
    parser.add_argument("--kernels", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    results = arguments.work / "results"
    results.mkdir(parents=True, exist_ok=True)
    kernels = read_list(arguments)
    more, missing = left_out(arguments, kernels)
    kernels += more
    if arguments.quick:
        kernels = [kernel for kernel in kernels if kernel.quick]
    version = versions()
    programs = list(dict.fromkeys((kernel.target, kernel.file, kernel.options) for kernel in kernels))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        made = pool.map(lambda program: compile_program(program, arguments.work, results,
                                                        version[COMPILERS[program[0]]]), programs)
        outcomes = dict(zip(programs, made))

    print(f"1..{len(kernels) + 1}")
    for number, kernel in enumerate(kernels, 1):
        reason = verdict(kernel, outcomes[kernel.target, kernel.file, kernel.options])
        print(f"{'not ' if reason else ''}ok {number} - offline {kernel.target}: {kernel.name}, {kernel.about}")
        for line in (reason or "").splitlines():
            print("#", line)
    print(f"{'not ' if missing else ''}ok {len(kernels) + 1} - offline: every kernel is in the table of problems")
    for name in missing:
        print(f"# no problem of tests/offline/problems.c has {name}")
    if arguments.report:
        write_report(arguments.report, kernels, outcomes, version)
    sys.exit(0)


if __name__ == "__main__":
    main()
