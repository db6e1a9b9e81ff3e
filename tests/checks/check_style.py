#!/usr/bin/env python3
"""The rules for names and folders, read from the sources: check_style.py ROOT.

A folder has at most 24 files, public headers apart.  No identifier is `operator` or `class`: C++ programs and formatters
read the headers.  The constants of a public enum carry the enum's name.

Prints each rule that is broken with its file and line, and exits with 1 if there was any.  77: git lists no files, as
in an unpacked archive.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

from check_includes import without_comments

MOST_FILES = 24
CROWDED = {"include/clattn"}
SOURCES = (".c", ".h", ".cl")


def check_folders(files):
    for folder, count in collections.Counter(os.path.dirname(name) for name in files).items():
        if count > MOST_FILES and folder not in CROWDED:
            yield f"{folder}: {count} files, at most {MOST_FILES}"


def check_names(root, name):
    code = without_comments((root / name).read_text(encoding="utf-8"))
    for number, line in enumerate(code.splitlines(), 1):
        found = re.search(r"(?<!\w)(operator|class)(?!\w)", line)
        if found and not re.match(r"\s*#\s*include", line):
            yield f"{name}:{number}: an identifier is called {found[1]}"
    if not name.startswith("include/"):
        return
    for found in re.finditer(r"\benum\s+(\w+)\s*\{([^}]*)\}", code):
        prefixes = (found[1].upper() + "_",)
        if found[1] == "clattn_status":  # as in every library
            prefixes += ("CLATTN_SUCCESS", "CLATTN_ERROR_")
        for constant in re.findall(r"(?:^|,)\s*(\w+)", found[2]):
            if not constant.startswith(prefixes):
                line = code.count("\n", 0, found.start()) + 1
                yield f"{name}:{line}: {constant} does not begin with {prefixes[0]}, its enum's name"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    files = [name for name in listed.stdout.splitlines() if (root / name).is_file()]
    if not files:
        print("# git lists no files here")
        return 77
    sources = [name for name in files if name.endswith(SOURCES)]
    problems = [*check_folders(files), *(problem for name in sources for problem in check_names(root, name))]
    for problem in problems:
        print(problem)
    print(f"{len(sources)} sources, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
