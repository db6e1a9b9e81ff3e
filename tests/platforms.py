"""Prints one table of what the test programs said on each platform: platform x solver x passed, failed, refused.

    platforms.py LOGS [PLATFORM...]

LOGS/PLATFORM/NAME are logs of test programs as tests/run.py keeps them.  The names of tests begin with "operator solver:",
or "operator:" if no solver is meant; a test whose name has neither is counted in one row.  A test that a solver refused, as
it should, has the line "# refused" before its own."""
import collections
import pathlib
import re
import sys

from run import count

NAMES = {"pocl": "PoCL", "oclgrind": "Oclgrind", "rusticl": "rusticl", "intel": "Intel's CPU runtime"}
REST = "everything else"


def row_of(name):
    """What a test is about."""
    match = re.match(r"([a-z][\w-]*(?: [\w-]+)?): ", name)
    return match[1] if match else REST


def read_log(text, counts):
    refused = False
    before = collections.Counter()
    for line in text.splitlines():
        test = re.match(r"(not )?ok \d+(?: - )?(.*)$", line)
        if line == "# refused":
            refused = True
        elif test:
            # cmocka of Debian 12 calls a skipped test "not ok".
            key = "skipped" if "# SKIP" in line else "failed" if test[1] else "refused" if refused else "passed"
            counts[row_of(re.sub(r" *# SKIP *", "", test[2]))][key] += 1
            before[key] += 1
            refused = False
    status = re.search(r"^\(exit status (\d+), ", text, re.M)
    passed, failed, skipped, _ = count(text, int(status[1]) if status else 1)
    # Tests of Python's; tests lost in a crash; what a simulator has found; wrong exit statuses.
    counts[REST].update(passed=passed - before["passed"] - before["refused"], failed=failed - before["failed"],
                        skipped=skipped - before["skipped"])


def cell(counted):
    if not counted:
        return "–"
    text = f"{counted['passed']} / {counted['failed']} / {counted['refused']}"
    return text + (f" ({counted['skipped']} skipped)" if counted["skipped"] else "")


def main():
    logs, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(NAMES)
    platforms = {}
    for name in wanted:
        if (logs / name).is_dir():
            platforms[name] = collections.defaultdict(collections.Counter)
            for file in sorted((logs / name).iterdir()):
                read_log(file.read_text(errors="replace"), platforms[name])
    rows = sorted({row for counts in platforms.values() for row in counts} - {REST}) + [REST]
    print("| passed / failed / refused | " + " | ".join(NAMES.get(name, name) for name in platforms) + " |")
    print("| --- " * (1 + len(platforms)) + "|")
    for row in rows:
        print(f"| {row} | " + " | ".join(cell(counts.get(row)) for counts in platforms.values()) + " |")
    totals = [sum(counts.values(), collections.Counter()) for counts in platforms.values()]
    print("| **all** | " + " | ".join(cell(total) for total in totals) + " |")


if __name__ == "__main__":
    main()
