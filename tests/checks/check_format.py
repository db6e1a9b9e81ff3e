#!/usr/bin/env python3
"""Whether each source is as clang-format 19.1.7 writes it with the tree's .clang-format: check_format.py ROOT [COMMAND].

Other versions format otherwise.  Without COMMAND, the one that the path has.  Prints a line for each file that differs and
exits with 1 if there was any; 77: there is no clang-format 19 here, or git lists no files.
"""
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "version 19.1.7"


def find_command(candidates):
    for command in filter(shutil.which, candidates):
        if VERSION in subprocess.run([command, "--version"], capture_output=True, text=True).stdout:
            return command
    return None


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    command = find_command(sys.argv[2:] or ["clang-format-19", "clang-format"])
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.c", "*.h", "*.cl", "*.cpp", "*.cc", "*.hpp"], capture_output=True, text=True)
    files = [name for name in listed.stdout.splitlines() if (root / name).is_file()]
    if not command or not files:
        print(f"no clang-format {VERSION} here" if files else "git lists no files here")
        return 77
    wrong = {}
    for start in range(0, len(files), 100):
        done = subprocess.run([command, "--dry-run", *files[start:start + 100]], cwd=root, capture_output=True, text=True)
        for name, line in re.findall(r"^(\S+?):(\d+):\d+: (?:warning|error): code should be", done.stderr, re.M):
            wrong.setdefault(name, line)
    for name, line in wrong.items():
        print(f"{name}:{line}: clang-format -i {name}")
    print(f"{len(files)} sources, {len(wrong)} not formatted")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main())
