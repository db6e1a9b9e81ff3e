"""Which lines and branches of src/ the tests of a build have run: coverage.py BUILD; gcovr is the interpreter's.

The build has -Db_coverage=true, and its programs have run.  Prints a row for each folder and each reason why lines have not
run, then the lines of the last reason, for which there is no rule.  Fails below LEAST.  Nothing of src/ that is compiled is
left out; what is not is named."""
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEAST = {"lines": 95, "branches": 88}  # per cent

# The first reason whose pattern is found in "FILE: LINE" is that of a line.
REASONS = [
    ("a child of a fork, or a signal that ends the process",
     r"foreign|disown|RELEASE_NOTHING|keep_cl|FORKED|EINTR|signal|raise\(|_exit\(|remove_temporaries|notes\["),
    ("there is no memory", r"MEMORY|[nN]o memory|out of memory|no_memory|== NULL|\.failed|!\w+ ?\|\||\(!\w+\)|grown"),
    ("GPUs, processors and drivers that are not here",
     r"(?i)gpu|quirk|matrix|sub_group|clblast|amx|caps|capabilit|allow_loops|refuse_loops|cpu|intel|lanes|/device/|os_library|geometr"),
    ("sizes that overflow, numbers that are not finite", r"size_mul|size_add|int64_|SIZE_MAX|OVERFLOW|LIMIT|MOST|isfinite|isnan|isinf|INFINITY"),
    ("a call of OpenCL or of the system fails",
     r"TRY|fail|\bCL_|\bcode\b|report_opencl|os_\w+\(.*\) ?(<|!=|==)|errno|!= 0|< 0|SUCCESS|TOOL_DONE|return status"),
    ("a mistake that is refused", r"report_error|io_fail|complain|REQUIRE|return false|return NULL|INVALID|UNSUPPORTED|refuse|json_is"),
    ("no rule", ""),
]


def measure(build):
    """Returns gcovr's files."""
    command = [sys.executable, "-m", "gcovr", "--root", ROOT, "--object-directory", build, "--filter", f"{ROOT}/src/",
               "--gcov-suspicious-hits-threshold", "0",  # SHA-256's inner function does run ten thousand million times
               "--json", "-", build]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["files"]


def share(counts):
    covered, all_ = counts
    return 100 * covered / all_ if all_ else 100


def reason_of(name, text):
    return next(reason for reason, pattern in REASONS if re.search(pattern, f"{name}: {text}"))


def spans(numbers):
    """[1, 2, 3, 7] as "1-3 7"."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def main():
    files = measure(pathlib.Path(sys.argv[1]).resolve())
    folders = collections.defaultdict(lambda: {"lines": [0, 0], "branches": [0, 0]})
    left, others = {reason: [0, 0] for reason, _ in REASONS}, {}
    for file in files:
        name = file["file"]
        source = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for line in file["lines"]:
            ran = line["count"] > 0
            branches = [branch["count"] > 0 for branch in line["branches"]]
            for of in (folders[str(pathlib.Path(name).parent)], folders["all"]):
                of["lines"][0] += ran
                of["lines"][1] += 1
                of["branches"][0] += sum(branches)
                of["branches"][1] += len(branches)
            reason = reason_of(name, source[line["line_number"] - 1])
            left[reason][0] += not ran
            left[reason][1] += len(branches) - sum(branches)
            if not ran and reason == REASONS[-1][0]:
                others.setdefault(name, []).append(line["line_number"])
    compiled = {file["file"] for file in files}
    print("not compiled here:", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.c")
                                        if str(path.relative_to(ROOT)) not in compiled))
    print(f"\n{'folder':<28}  lines  branches")
    for name, of in sorted(folders.items()):
        print(f"{name:<28} {share(of['lines']):5.1f} %   {share(of['branches']):5.1f} %")
    print(f"\n{'what has not run':<46}  lines  branches")
    for reason, (lines, branches) in left.items():
        print(f"{reason:<46} {lines:6}  {branches:8}")
    print("\nlines without a rule:")
    for name, numbers in sorted(others.items()):
        print(f"{name}: {spans(numbers)}")
    below = [f"{what}: {share(folders['all'][what]):.2f} %, at least {least} % wanted" for what, least in LEAST.items()
             if share(folders["all"][what]) < least]
    print("", *below, sep="\n")
    sys.exit(1 if below else 0)


if __name__ == "__main__":
    main()
