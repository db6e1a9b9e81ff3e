"""Makes one table of what the test programs said on each platform: platform x solver x passed, failed, refused.

    platforms.py LOGS [--update FILE] [PLATFORM...]

LOGS/PLATFORM/NAME are logs of test programs as tests/run.sh keeps them; what it has counted itself lies in
LOGS/../results/PLATFORM/NAME and holds for failures, since a program can fail where no test of it did.  The names of tests begin with "operator solver:",
or "operator:" where no solver is meant; what names neither is counted in one row.  A test that a solver refused, as it should,
has the line "# refused" before its own.  With --update the table goes between the marks in FILE, with its date.
"""

import argparse
import collections
import datetime
import pathlib
import re
import sys

NAMES = {"pocl": "PoCL", "oclgrind": "Oclgrind", "rusticl": "rusticl", "intel": "Intel's CPU runtime"}
COMMAND = "the command"
REST = "API, plans, cache"


def row_of(name):
    """What a test is about."""
    match = re.match(r"([a-z][\w-]*(?: [\w-]+)?): ", name)
    return match[1] if match else REST


def read_tap(text, counts):
    """Adds the tests of one log; returns whether it was TAP."""
    refused = found = False
    for line in text.splitlines():
        plan = re.match(r"1\.\.\d+$", line)
        test = re.match(r"(not )?ok \d+(?: - )?(.*)$", line)
        if plan:
            found = True
        elif line == "# refused":
            refused = True
        elif test:
            name = re.sub(r" *# SKIP *", "", test[2])
            skipped = "# SKIP" in line  # cmocka of Debian 12 calls a skipped test "not ok"
            key = "skipped" if skipped else "failed" if test[1] else "refused" if refused else "passed"
            counts[row_of(name)][key] += 1
            refused = False
    return found


def read_unittest(text, counts):
    ran = re.search(r"^Ran (\d+) tests? in ", text, re.MULTILINE)
    if not ran:
        return
    def number(what):
        match = re.search(rf"^(?:OK|FAILED) \(.*{what}=(\d+)", text, re.MULTILINE)
        return int(match[1]) if match else 0
    failed, skipped = number("failures") + number("errors"), number("skipped")
    counts[COMMAND]["failed"] += failed
    counts[COMMAND]["skipped"] += skipped
    counts[COMMAND]["passed"] += int(ran[1]) - failed - skipped


def failures(counts):
    return sum(count["failed"] for count in counts.values())


def read_platform(folder):
    counts = collections.defaultdict(collections.Counter)
    results = folder.parent.parent / "results" / folder.name
    names = {file.name for place in (folder, results) if place.is_dir() for file in place.iterdir()}
    for name in sorted(names):
        if name.endswith(".oclgrind"):
            continue
        text = (folder / name).read_text(errors="replace") if (folder / name).exists() else ""
        before = failures(counts)
        if not read_tap(text, counts):
            read_unittest(text, counts)
        # Tests lost in a crash or a time-out, what a simulator has found, wrong exit statuses.
        more = int((results / name).read_text().split()[1]) - (failures(counts) - before) if (results / name).exists() else 0
        if more > 0:
            counts[REST]["failed"] += more
    return counts


def cell(count):
    if not count:
        return "–"
    text = f"{count['passed']} / {count['failed']} / {count['refused']}"
    return text + (f" ({count['skipped']} skipped)" if count["skipped"] else "")


def table(platforms):
    rows = sorted({row for counts in platforms.values() for row in counts} - {COMMAND, REST})
    rows += [row for row in (COMMAND, REST) if any(row in counts for counts in platforms.values())]
    lines = ["| passed / failed / refused | " + " | ".join(NAMES.get(name, name) for name in platforms) + " |",
             "| --- " * (1 + len(platforms)) + "|"]
    for row in rows:
        lines.append(f"| {row} | " + " | ".join(cell(counts.get(row)) for counts in platforms.values()) + " |")
    totals = [sum(counts.values(), collections.Counter()) for counts in platforms.values()]
    lines.append("| **all** | " + " | ".join(cell(total) for total in totals) + " |")
    return lines, sum(total["failed"] for total in totals)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("logs", type=pathlib.Path)
    parser.add_argument("platforms", nargs="*", default=[])
    parser.add_argument("--update", type=pathlib.Path)
    arguments = parser.parse_args()
    wanted = arguments.platforms or list(NAMES)
    platforms = {name: read_platform(arguments.logs / name) for name in wanted if (arguments.logs / name).is_dir()}
    if not platforms:
        sys.exit(f"platforms.py: {arguments.logs} has no logs of {', '.join(wanted)}")
    lines, failed = table(platforms)
    print("\n".join(lines))
    if arguments.update:
        text = arguments.update.read_text()
        date = datetime.date.today().isoformat()
        text, changes = re.subn(r"(<!-- begin platforms[^\n]*-->\n).*?(<!-- end platforms -->)",
                                lambda m: f"{m[1]}\n{date}:\n\n" + "\n".join(lines) + f"\n\n{m[2]}", text,
                                flags=re.DOTALL)
        if not changes:
            sys.exit(f"platforms.py: {arguments.update} has no marks for the table")
        arguments.update.write_text(text)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
