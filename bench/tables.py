#!/usr/bin/env python3
"""Writes the tables of README.md, docs/performance.md, docs/notes/performance-tables.md and docs/notes/models.md, and the
plots, from the files of bench/results, and those of docs/scale.md.

    tables.py [--check]

A document marks the place of a table by two comments, and everything between them belongs to this program:

    <!-- table: rows amd-zen5 intel-sapphire-rapids -->
    <!-- end of table -->

The first word is the table; the others name files of bench/results, without .json:

    rows MACHINE...     clattn beside the roof and PyTorch
    summary MACHINE...  the same, of a few rows
    chosen MACHINE...   the same, of more rows
    beside MACHINE...   what else was timed in the same rounds
    extras MACHINE...   what no roof bounds
    file NAME           a file that has columns and rows of its own
    guard               the figures that bench/guard.py holds
    scale TABLE         what bench/scale computes

--check changes nothing, names each file that differs from what would be written, and exits with 1 if there is any."""
import argparse
import os
import re
import sys

import compare
import guard
import record
from scale import page

ROOT = os.path.dirname(record.HERE)
DOCUMENTS = ("README.md", "docs/performance.md", "docs/notes/performance-tables.md", "docs/notes/models.md",
             "docs/scale.md")
PLOTS = {"docs/performance.svg": "amd-zen5", "docs/performance-intel.svg": "intel-sapphire-rapids"}
SUMMARY = ("attention 8 x 2048, d 64", "attention 32 heads to 8, 1 query, 4,096 keys, d 128", "matmul 2048x512x512",
           "softmax 4096x1024", "encoder layer 512/8/2048, 1 x 2048", "matmul 2048x512x512, bfloat16")
CHOSEN = SUMMARY + ("attention 32x8 x 64, d 64", "attention 32 heads, 1 query, 32,768 keys, d 128",
                    "matmul 16x4096x4096", "LayerNorm 4096x512", "mha 512/8, 1 x 2048",
                    "attention 8 x 2048, d 64, bfloat16")
MARKED = re.compile(r"(<!-- table: ([^\n]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def result(name):
    return record.read(os.path.join(ROOT, "bench", "results", name + ".json"))


def short(found):
    return found["machine"].split(",")[0]


def table(head, rows):
    """Lines of Markdown."""
    return "\n".join("| %s |" % " | ".join(row) for row in [head, ["---"] * len(head), *rows])


def where(found):
    return "%s, %s, %s, commit %s, %d rounds" % (found["machine"], found["platform"], found["date"], found["commit"],
                                                 found["rounds"])


def with_target(value, target, reached, form="%.2f"):
    """The number, and its target if it falls short of that."""
    if value is None:
        return "-"
    return form % value + ("" if target is None or reached else " (target %s)" % (form % target))


def joined(machines, kind, key):
    """(key, the machines' rows or None) for each row of that kind that any machine has, in their order."""
    by_key = [{key(row): row for row in found[kind]} for found in machines]
    order = sorted(dict.fromkeys(name for rows in by_key for name in rows),
                   key=lambda name: min(list(rows).index(name) for rows in by_key if name in rows))
    return [(name, [rows.get(name) for rows in by_key]) for name in order]


def share_and_speedup(row, targets=True):
    if row is None:
        return ["-", "-"]
    if not targets:
        return [with_target(row[key], None, True) for key in ("share", "speedup")]
    return [with_target(row["share"], row["share_target"], row["share"] >= (row["share_target"] or 0)),
            with_target(row["speedup"], row["speedup_target"], (row["speedup"] or 0) >= (row["speedup_target"] or 0))]


def rows_table(machines, only=None):
    head = ["work"]
    for found in machines:
        head += ([] if only else [short(found)]) + [short(found) + ": of the roof" if only else "of the roof",
                                                    "PyTorch's time / ours"]
    lines = []
    for work, rows in joined(machines, "rows", lambda row: row["work"]):
        if only is None or work in only:
            lines.append([work])
            for row in rows:
                reached = ["-" if row is None else "%.0f %s" % (row["reached"], row["unit"])]
                lines[-1] += ([] if only else reached) + share_and_speedup(row, not only)
    return table(head, lines)


def peers(found):
    return "".join(", %s %s" % each for each in found.get("peers", {}).items())


def measured_on(machines):
    return "\n".join("- " + where(found) + peers(found) + "; %d of %d targets reached." % compare.targets(found)
                     for found in machines)


def beside_table(machines):
    lines = [[*name, *("-" if row is None else with_target(row["ratio"], row["target"], row["ratio"] >= row["target"])
                       for row in rows)]
             for name, rows in joined(machines, "beside", lambda row: (row["work"], row["beside"]))]
    return table(["its time / ours", "beside", *map(short, machines)], lines)


def extras_table(machines):
    lines = [[what, *("-" if row is None else "%g %s" % (row["value"], row["unit"]) for row in rows),
              next("%g %s" % (row["limit"], row["unit"]) for row in rows if row)]
             for what, rows in joined(machines, "extras", lambda row: row["what"])]
    return table(["what", *map(short, machines), "target, at most"], lines)


def file_table(found):
    return table(found["columns"], found["rows"]) + "\n\nBy `%s`, %s%s." % (found["command"], where(found), peers(found))


def guard_table():
    return table(["figure", "reported", "bound"],
                 [[one.name, "%.2f" % one.reported, "at %s %.2f" % ("least" if one.factor < 1 else "most", one.bound())]
                  for one in guard.FIGURES])


def make(words):
    """The text of the table that a marker asks for."""
    kind, *names = words.split()
    if kind == "scale":
        return page.TABLES[names[0]]()
    machines = [result(name) for name in names]
    makers = {"rows": lambda: rows_table(machines) + "\n\n" + measured_on(machines),
              "chosen": lambda: rows_table(machines, CHOSEN) + "\n\n" + measured_on(machines),
              "summary": lambda: rows_table(machines, SUMMARY), "beside": lambda: beside_table(machines),
              "extras": lambda: extras_table(machines), "file": lambda: file_table(*machines), "guard": guard_table}
    return makers[kind]()


def filled(text):
    return MARKED.sub(lambda match: match.group(1) + "\n" + make(match.group(2)) + "\n\n" + match.group(3), text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    contents = {path: filled(read(os.path.join(ROOT, path))) for path in DOCUMENTS}
    contents.update({path: compare.plot(result(name)) for path, name in PLOTS.items()})
    different = [path for path, content in contents.items() if content != read(os.path.join(ROOT, path))]
    for path in different:
        if not options.check:
            record.write_whole(os.path.join(ROOT, path), contents[path])
        print("%s %s" % (path, "is not what bench/tables.py makes" if options.check else "is written"))
    return 1 if options.check and different else 0


if __name__ == "__main__":
    sys.exit(main())
