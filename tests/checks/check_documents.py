#!/usr/bin/env python3
"""The rules for documents, read from the Markdown files: check_documents.py ROOT.

A document has no more words than its limit; each link leads to a file and a heading that exist; each path that a document
names exists.  Prints each rule that is broken with its file and line, and exits with 1 if there was any.
77: git lists no files, as in an unpacked archive.
"""
import pathlib
import re
import subprocess
import sys

# Words of prose, tables and code apart: what the plan of the documents says, and a fifth more.
LIMITS = {"README.md": 1200, "CONTRIBUTING.md": 1200, "CHANGES.md": 480, "docs/architecture.md": 1800,
          "docs/decisions.md": 1800, "docs/kernels.md": 3600, "docs/performance.md": 1440, "docs/testing.md": 1080,
          "docs/offline.md": 480}

# A path in `code` begins with a folder of the tree.  `*` and words in capitals stand for any name.
PATH = re.compile(r"`((?:bench|cl|docs|examples|include|src|tests|tools|\.ci)/[\w./*+-]*)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def headings(path):
    """The anchors that GitHub gives the headings of a page."""
    anchors = set()
    fenced = False
    for line in path.read_text(encoding="utf-8").splitlines():
        fenced ^= line.startswith("```")
        found = not fenced and re.match(r"#+ +(.*)", line)
        if found:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).lower()
            anchors.add(re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-"))
    return anchors


def prose(text):
    """The text without fenced code and tables, line numbers kept."""
    lines, fenced = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        lines.append("" if fenced or fence or line.startswith("|") else line)
        fenced ^= fence
    return lines


def check(root, name, tracked):
    """The problems of one document."""
    path = root / name
    text = path.read_text(encoding="utf-8")
    lines = prose(text)
    words = sum(len(line.split()) for line in lines)
    if words > LIMITS.get(name, words):
        yield f"{name}:1: {words} words, at most {LIMITS[name]}"
    for number, line in enumerate(text.splitlines(), 1):
        for link in LINK.finditer(line):
            target, _, anchor = (link[1] or link[2]).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            goal = (path.parent / target).resolve() if target else path
            if not goal.exists():
                yield f"{name}:{number}: the link leads to {target}, which does not exist"
            elif anchor and goal.suffix == ".md" and anchor not in headings(goal):
                yield f"{name}:{number}: {goal.name} has no heading #{anchor}"
    if name.startswith("docs/notes/"):  # may tell of files that have left
        return
    for number, line in enumerate(text.splitlines(), 1):
        for named in PATH.findall(line):
            pattern = re.sub(r"\\\*|\b[A-Z]{2,}(?![a-z])|(?<=_)[A-Z]{2,}", "[^/]*", re.escape(named.rstrip("/")))
            if not any(re.match(pattern + r"($|/|\.\w+$)", file) for file in tracked):
                yield f"{name}:{number}: `{named}` does not exist"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tracked = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.splitlines()
    documents = [name for name in tracked if name.endswith(".md") and (root / name).exists()]
    problems = [problem for name in documents for problem in check(root, name, tracked)]
    for problem in problems:
        print(problem)
    print(f"{len(documents)} documents, {len(problems)} problems")
    if not documents:
        print("git lists no documents here")
        return 77
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
