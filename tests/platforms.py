"""Prints a page of Markdown: what the test programs said on each platform, platform x solver x passed, failed, refused.

    platforms.py LOGS [PAGE]

LOGS/PLATFORM/NAME are logs of test programs as tests/run.py keeps them.  Platforms that have none there keep their columns of PAGE, a
page that was made before.  The names of tests begin with "operator solver:",
or "operator:" if no solver is meant; a test whose name has neither is counted in one row.  A test that a solver refused, as
it should, has the line "# refused" before its own."""
import collections
import datetime
import pathlib
import re
import sys

from run import count

NAMES = {"pocl": "PoCL, Debian 12", "debian13": "PoCL, Debian 13", "sid": "PoCL, sid", "arm64": "PoCL, Debian 12, arm64 by qemu",
         "oclgrind": "Oclgrind", "rusticl": "rusticl, Debian 12", "debian13-rusticl": "rusticl, Debian 13",
         "sid-rusticl": "rusticl, sid", "windows": "PoCL, Debian 12, from wine", "intel": "Intel's CPU runtime"}
REST = "everything else"
HEAD = """# Platforms

What the test programs said on each platform, by operator and solver. `python3 tests/platforms.py build/test/logs
tests/platforms.md` writes this page anew from the logs of `sh tests/run.sh`, with the columns that it had of platforms that were not
run. The columns are groups of `docs/testing.md`, which differ in programs and level.
"""


class Platform:
    def __init__(self, logs):
        self.programs, self.drivers, self.levels, self.failures = 0, set(), set(), []
        self.counts = collections.defaultdict(collections.Counter)
        self.dates = set()
        for file in sorted(logs.iterdir()):
            self.dates.add(datetime.date.fromtimestamp(file.stat().st_mtime).isoformat())
            self.read(file.name, file.read_text(errors="replace"))

    def read(self, program, text):
        refused = False
        before = collections.Counter()
        for driver, level in re.findall(r"^# device: .*; driver (.*); level (\w+); ", text, re.M):
            self.drivers.add(driver)
            self.levels.add(level)
        for line in text.splitlines():
            test = re.match(r"(not )?ok \d+(?: - )?(.*)$", line)
            if line == "# refused":
                refused = True
            elif test:
                # cmocka of Debian 12 calls a skipped test "not ok".
                key = "skipped" if "# SKIP" in line else "failed" if test[1] else "refused" if refused else "passed"
                self.counts[row_of(re.sub(r" *# SKIP *", "", test[2]))][key] += 1
                before[key] += 1
                refused = False
                if key == "failed":
                    self.failures.append(f"{program}: {test[2]}")
        status = re.search(r"^\(exit status (-?\d+), ", text, re.M)
        passed, failed, skipped, _ = count(text, int(status[1]) if status else 1)
        self.programs += passed + failed > 0
        if failed > before["failed"]:
            self.failures.append(f"{program}: {failed - before['failed']} more, exit status {status[1] if status else 'unknown'}")
        # Tests of Python's; tests lost in a crash; what a simulator has found; wrong exit statuses.
        self.counts[REST].update(passed=passed - before["passed"] - before["refused"], failed=failed - before["failed"],
                                 skipped=skipped - before["skipped"])


    def cells(self):
        """The column, by the names of rows."""
        rows = {"of": ", ".join(sorted(self.dates)), "driver": ", ".join(sorted(self.drivers)),
                "level": ", ".join(sorted(self.levels)), "programs": str(self.programs),
                "**all**": cell(sum(self.counts.values(), collections.Counter()))}
        return {**rows, **{key: cell(counted) for key, counted in self.counts.items()}}


def columns_of(page):
    """The columns of a page's table, by their titles, each by the names of rows."""
    table = [[text.strip() for text in line.strip("|\n ").split(" | ")] for line in page.splitlines() if line.startswith("| ")]
    titles, rows = table[0][1:], [row for row in table[1:] if not row[0].startswith("---")]
    return {title: {row[0]: row[n] for row in rows} for n, title in enumerate(titles, 1)}


def row_of(name):
    """What a test is about."""
    match = re.match(r"([a-z][\w-]*(?: [\w-]+){0,2}): ", name)
    return match[1] if match else REST


def cell(counted):
    if not counted:
        return "–"
    text = f"{counted['passed']} / {counted['failed']} / {counted['refused']}"
    return text + (f" ({counted['skipped']} skipped)" if counted["skipped"] else "")


def main():
    logs = pathlib.Path(sys.argv[1])
    before = columns_of(pathlib.Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else {}
    platforms = {title: Platform(logs / name) for name, title in NAMES.items() if (logs / name).is_dir()}
    columns = {title: platforms[title].cells() if title in platforms else before.get(title) for title in NAMES.values()}
    columns = {title: column for title, column in columns.items() if column}
    print(HEAD)
    print("| passed / failed / refused | " + " | ".join(columns) + " |")
    print("| --- " * (1 + len(columns)) + "|")
    first = ["of", "driver", "level", "programs", "**all**"]
    keys = {key for column in columns.values() for key in column} - {*first, REST}
    for key in first + sorted(keys) + [REST]:
        print(f"| {key} | " + " | ".join(column.get(key, "–") for column in columns.values()) + " |")
    for title, platform in platforms.items():
        if platform.failures:
            print(f"\n## Failures on {title}\n")
            print("\n".join(f"- {failure}" for failure in platform.failures))


if __name__ == "__main__":
    main()
