#!/usr/bin/env python3
"""The rules about layers, includes and banned words, read from the sources: check_includes.py ROOT.

Prints each rule that is broken with its file and line, and exits with 1 if there was any.
"""
import pathlib
import re
import sys

# Layers, lowest first; each may include itself and those before it.  ref and io stand on base alone, and the command
# is on top of all.
ORDER = ["base", "device", "program", "plan", "ops", "nn"]
ALLOWED = {layer: set(ORDER[:i + 1]) for i, layer in enumerate(ORDER)}
ALLOWED["ops"].add("ref")  # the self-check
ALLOWED["ref"] = {"base", "ref"}
ALLOWED["io"] = {"base", "io"}
for shared in ("denoise", "restore"):
    ALLOWED[shared] = {"base", shared}  # of base, what headers have
ALLOWED["pictures"] = {"base", "denoise", "restore", "pictures"}
ALLOWED["ranks"] = {"base", "device", "ranks"}
ALLOWED["nn"].add("ranks")
ALLOWED["group"] = {"base", "device", "program", "plan", "ops", "ranks", "group"}
ALLOWED["tool"] = set(ORDER) | {"ref", "io", "denoise", "restore", "pictures", "tool"}

# What the C standard has; any other <header> asks something of an operating system or of another library.
STANDARD = {"assert.h", "complex.h", "ctype.h", "errno.h", "fenv.h", "float.h", "inttypes.h", "iso646.h", "limits.h",
            "locale.h", "math.h", "setjmp.h", "signal.h", "stdalign.h", "stdarg.h", "stdatomic.h", "stdbool.h",
            "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "stdnoreturn.h", "string.h", "tgmath.h",
            "time.h", "uchar.h", "wchar.h", "wctype.h"}
# Other libraries, and the only files that may include them.
LIBRARIES = {"sndfile.h": r"src/tool/transcribe/sound/audio\.c$", "soxr.h": r"src/tool/transcribe/sound/audio\.c$",
             "fftw3.h": r"src/tool/transcribe/sound/mel\.c$", "zlib.h": r"src/tool/transcribe/whisper\.c$",
             "jansson.h": r"src/tool/", "png.h": r"src/tool/cli/png_file\.c$",
             "utf8proc.h": r"src/tool/embed/bert_text\.c$",
             "sentencepiece_processor.h": r"src/tool/text/vocabulary\.cc$",
             "sentencepiece_trainer.h": r"src/tool/text/vocabulary\.cc$", "clblast_c.h": r"src/ops/matmul/clblast/",
             "OpenCL/opencl.h": r"include/clattn/", "CL/cl.h": r"(include/clattn/|src/base/cl\.h$|src/tool/)"}

BANNED_FLAGS = ["-cl-fast-relaxed-math", "-cl-finite-math-only", "-cl-unsafe-math-optimizations", "-cl-mad-enable",
                "-cl-no-signed-zeros", "-cl-denorms-are-zero", "-ffast-math", "-Ofast", "-funsafe-math-optimizations",
                "-ffinite-math-only"]
NOT_IN_THE_LIBRARY = ["exit", "_exit", "_Exit", "quick_exit", "abort", "atexit", "fork", "vfork", "system", "popen"]

# Planning is the same for all: it names no operator, no other library and no processor.
PLANNING_NAMES = re.compile(r"attention|softmax|matmul|(?<![a-z])norm_|rope_|kv_append|clblast|x86|amx|avx|nvidia|intel",
                            re.I)
# The context keeps the caller's choice about CLBlast, a public parameter.
PLANNING_EXCEPTIONS = re.compile(r"src/plan/context\.[ch]$")

# The #includes of cl/ that may stand inside #if: the user's snippets, which are there only if the user gave them, and what
# the host needs of a header that it shares with the kernels.
CONDITIONAL_INCLUDES = {("cl/attention/user.h", '"score_mod"'), ("cl/attention/user.h", '"mask_mod"'),
                        ("cl/attention/user.h", '"score_mod_grad"'), ("cl/lib/array.h", "<stdint.h>")}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def without_comments(text):
    """The text with comments and string literals blanked out, line numbers kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


class Checker:
    def __init__(self, root):
        self.root = root
        self.problems = []

    def files(self, *patterns):
        return sorted(path for pattern in patterns for path in self.root.glob(pattern) if path.is_file())

    def name(self, path):
        return path.relative_to(self.root).as_posix()

    def problem(self, path, line, text):
        self.problems.append(f"{self.name(path)}:{line}: {text}")

    def includes(self, path):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = INCLUDE.match(line)
            if found:
                yield number, found.group(1) == '"', found.group(2)

    def resolve(self, path, include):
        """The file of this project that `include` names, or None."""
        for base in (path.parent, self.root / "src", self.root / "include", self.root / "cl", self.root / "tests"):
            candidate = (base / include).resolve()
            if candidate.is_file() and self.root in candidate.parents:
                return candidate
        return None

    def check_source(self, path):
        layer = path.relative_to(self.root / "src").parts[0]
        own = self.name(path)
        for line, quoted, include in self.includes(path):
            target = self.resolve(path, include) if quoted else None
            if path.suffix == ".cc" and not quoted and include.replace("_", "").isalpha():
                continue  # C++'s standard headers
            if target is None and include not in STANDARD:
                permitted = LIBRARIES.get(include)
                if permitted is None and not include.startswith("clattn/"):
                    if not re.match(r"os_\w+\.[ch]$", path.name):
                        self.problem(path, line, f"only os_*.[ch] may include <{include}>")
                elif permitted and not re.search(permitted, own):
                    self.problem(path, line, f"<{include}> is not for this file")
            if target is None:
                continue
            goal = self.name(target)
            if goal.startswith("tests/"):
                self.problem(path, line, "src/ never includes tests/")
            elif goal.startswith("src/"):
                other = target.relative_to(self.root / "src").parts[0]
                if other not in ALLOWED.get(layer, set()):
                    self.problem(path, line, f"{layer} may not include {other}: {include}")
                if include.endswith(".c"):
                    self.problem(path, line, f"a source file is included: {include}")
                if re.match(r"src/ops/\w+/solver_", own) and re.match(r"src/ops/\w+/solver_", goal):
                    if pathlib.PurePath(goal).stem != path.stem:
                        self.problem(path, line, f"a solver includes another solver: {include}")
                if goal == "src/program/source.h" and layer != "program":
                    self.problem(path, line, "only program/ sees the embedded sources")
            elif goal.startswith("cl/") and not re.fullmatch(r"cl/\w+/args\.h|cl/lib/array\.h", goal):
                self.problem(path, line, f"of cl/ the host shares */args.h and lib/array.h and nothing else: {include}")
        self.check_code(path, layer)

    def check_code(self, path, layer):
        code = without_comments(path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.splitlines(), 1):
            if layer == "plan" and not PLANNING_EXCEPTIONS.match(self.name(path)):
                named = PLANNING_NAMES.search(line)
                if named:
                    self.problem(path, number, f"planning names {named.group(0)}")
            if "embedded_source" in line and layer != "program":
                self.problem(path, number, "only program/ sees the embedded sources")
            if layer not in ("denoise", "restore", "pictures", "tool") and self.name(path) not in ("src/base/cl.c", "src/base/cl.h"):
                call = re.search(r"(?<![\w.>])(cl[A-Z]\w*)\s*\(", line)
                if call:
                    self.problem(path, number, f"{call.group(1)} is called past the table of base/cl.h")
            if layer != "tool":
                for name in NOT_IN_THE_LIBRARY:
                    if re.search(r"(?<![\w.>])%s\s*\(" % name, line):
                        self.problem(path, number, f"the library never calls {name}")
                if re.search(r"(?<!\w)(printf|puts|putchar|perror)\s*\(|\b(stderr|stdout)\b", line):
                    self.problem(path, number, "the library prints nothing")
                if re.search(r"__attribute__\s*\(\(\s*(constructor|destructor)", line):
                    self.problem(path, number, "the library has no constructor and no destructor")

    def check_header(self, path):
        for line, quoted, include in self.includes(path):
            if include in STANDARD or include in ("CL/cl.h", "OpenCL/opencl.h"):
                continue
            if include == "mpi.h" and not quoted and path.name == "mpi.h":
                continue  # libclattn-mpi's
            if path.suffix == ".hpp" and not quoted and include.isidentifier():
                continue  # C++'s standard headers
            target = self.resolve(path, include) if quoted else None
            if target is None or target.parent != path.parent:
                self.problem(path, line, f"a public header includes only standard, OpenCL and public ones: {include}")

    def check_kernel(self, path):
        text = path.read_text(encoding="utf-8")
        for line, quoted, include in self.includes(path):
            if include == "stdint.h" and self.name(path) == "cl/lib/array.h":
                continue  # its host side
            if include in ("score_mod", "mask_mod", "score_mod_grad") and self.name(path) == "cl/attention/user.h":
                continue  # snippets, no files
            if not quoted or not (self.root / "cl" / include).is_file():
                self.problem(path, line, f"kernels include files of cl/, named from there: {include}")
            elif include.endswith(".cl"):
                self.problem(path, line, f"a kernel file includes another one: {include}")
        code = without_comments(text)
        for number, line in enumerate(code.splitlines(), 1):
            if re.search(r"(?<!\w)(native|half)_\w+\s*\(", line):
                self.problem(path, number, "no native_* and no half_* functions")
            if re.search(r"atomic_\w+\s*\(.*float|atomic_fetch_add_explicit", line):
                self.problem(path, number, "no float atomics")
        self.check_braces(path, code)
        self.check_conditional_includes(path, text)

    def check_conditional_includes(self, path, text):
        """No #include is inside #if: a header that a kernel may not need has the #if in itself."""
        conditions = []
        for number, line in enumerate(text.splitlines(), 1):
            directive = re.match(r"\s*#\s*(\w+)(.*)", line)
            word = directive.group(1) if directive else ""
            if word in ("if", "ifdef", "ifndef"):
                conditions.append(line)
            elif word == "endif" and conditions:
                conditions.pop()
            elif word == "include" and any("ifndef CLATTN_CL_" not in condition for condition in conditions):
                if (self.name(path), directive.group(2).strip()) not in CONDITIONAL_INCLUDES:
                    self.problem(path, number, "an #include inside #if")

    def check_braces(self, path, code):
        """No #if opens or closes a brace: each branch of a conditional is balanced in itself."""
        depths = []
        for number, line in enumerate(code.splitlines(), 1):
            directive = re.match(r"\s*#\s*(\w+)", line)
            if directive and directive.group(1) in ("if", "ifdef", "ifndef"):
                depths.append([number, 0])
            elif directive and directive.group(1) in ("else", "elif", "endif"):
                if depths and depths[-1][1] != 0:
                    self.problem(path, depths[-1][0], "this branch opens or closes a brace")
                if depths and directive.group(1) == "endif":
                    depths.pop()
                elif depths:
                    depths[-1] = [number, 0]
            elif not directive:
                for depth in depths:
                    depth[1] += line.count("{") - line.count("}")

    def check_flags(self):
        for path in self.files("src/**/*.[ch]", "src/**/*.cc", "cl/**/*.h", "cl/**/*.cl", "bench/**/*.[ch]", "**/meson.build"):
            # A comment may say that a flag is banned, so only what is left without comments counts; options are
            # strings, so those stay.
            text = path.read_text(encoding="utf-8")
            pattern = r"#[^\n]*" if path.name == "meson.build" else r"/\*.*?\*/|//[^\n]*"
            text = re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)
            for number, line in enumerate(text.splitlines(), 1):
                for flag in BANNED_FLAGS:
                    if flag in line:
                        self.problem(path, number, f"banned flag {flag}")

    def check_header_list(self):
        """Every public header is installed, and so compiled alone by the tests."""
        build = self.root / "include" / "meson.build"
        lists = build.read_text(encoding="utf-8") + (self.root / "plugins" / "mpi" / "meson.build").read_text(encoding="utf-8")
        listed = set(re.findall(r"['/]clattn/(\w+\.h(?:pp)?)'", lists))
        there = {path.name for path in self.files("include/clattn/*.h", "include/clattn/*.hpp")}
        for name in sorted(there ^ listed):
            self.problem(build, 1, f"{name} is {'not listed' if name in there else 'listed and not there'}")

    def check_wrapper(self):
        """clattn.hpp and io.hpp have every operator, every struct that is initialised and every handle that is released."""
        wrappers = {path: path.read_text(encoding="utf-8") for path in self.files("include/clattn/*.hpp")}
        code = "".join(wrappers.values())
        declared = "".join(path.read_text(encoding="utf-8") for path in self.files("include/clattn/*.h")
                           if path.name != "mpi.h")  # which has no wrapper
        for name in re.findall(r"clattn_status clattn_(\w+)_supports\(", declared):
            if f"CLATTN_HPP_OPERATOR({name})" not in code:
                self.problem(next(iter(wrappers)), 1, f"the operator {name} is missing")
        for name in re.findall(r"CLATTN_INIT\((clattn_\w+)\)", declared):
            if f"initialised<{name}>" not in code:
                self.problem(next(iter(wrappers)), 1, f"there is no initialised<{name}>")
        for name in re.findall(r"void (clattn_\w+_release)\(", declared):
            if not re.search(rf"owner<clattn_\w+, {name}>", code):
                self.problem(next(iter(wrappers)), 1, f"no class owns what {name} releases")

    def check_readme(self):
        """README shows examples/first.c as it is."""
        readme = self.root / "README.md"
        program = (self.root / "examples" / "first.c").read_text(encoding="utf-8")
        if "```c\n" + program + "```" not in readme.read_text(encoding="utf-8"):
            self.problem(readme, 1, "the first program is not examples/first.c")

    def check_kernel_table(self):
        """docs/kernels.md has a row for each kernel file."""
        page = self.root / "docs" / "kernels.md"
        rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
        listed = {name for row in rows for name in re.findall(r"`([\w/]+\.cl)`", row.split("|")[1])}
        there = {path.relative_to(self.root / "cl").as_posix() for path in self.files("cl/**/*.cl")}
        for name in sorted(there ^ listed):
            self.problem(page, 1, f"{name} is {'not listed' if name in there else 'listed and not there'}")

    def run(self):
        counted = 0
        for path in self.files("src/**/*.[ch]", "src/**/*.cc"):
            self.check_source(path)
            counted += 1
        for path in self.files("include/clattn/*.h", "include/clattn/*.hpp"):
            self.check_header(path)
            counted += 1
        for path in self.files("cl/**/*.cl", "cl/**/*.h"):
            self.check_kernel(path)
            counted += 1
        self.check_flags()
        self.check_header_list()
        self.check_wrapper()
        self.check_readme()
        self.check_kernel_table()
        for problem in self.problems:
            print(problem)
        print(f"{counted} files, {len(self.problems)} problems")
        if not counted:
            print("no files: a wrong root?")
        return 1 if self.problems or not counted else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(Checker(pathlib.Path(sys.argv[1]).resolve()).run())
