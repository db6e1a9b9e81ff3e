#!/usr/bin/env python3
"""bench/guard.py: its bounds, its repeated measuring and its skips, with stand-ins, so that nothing is measured."""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench")
DOCS = os.path.join(os.path.dirname(BENCH), "docs")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True

import guard

CLATTN = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
"devices --json") echo '{"devices": [{"name": "other", "platform": "p", "class": "cpu"},' \\
    '{"name": "d", "platform": "p", "class": "'${CLASS-pocl}'"}]}' ;;
*softmax*4096*) echo '{"solver": "cpu", "device": "d", "platform": "p", "gflops": 1, "gbytes_per_s": '${COPIED-9}'}' ;;
*--causal*) echo '{"seconds_median": 0.051}' ;;
*) echo '{"solver": "cpu", "device": "d", "platform": "p", "gflops": 170, "gbytes_per_s": 16, "seconds_median": 0.1}' ;;
esac
"""
ROOF = """#!/bin/sh
echo '{"fma_gflops": 200.0, "read_gbytes_per_s": 20.0, "copy_gbytes_per_s": 10.0}'
"""
LEAST = guard.Figure("share", None, 0.8, 0.5)
MOST = guard.Figure("cost", None, 0.5, 1.6)


class Logic(unittest.TestCase):
    def test_a_bound_is_a_part_of_what_is_reported_or_a_multiple_of_it(self):
        self.assertAlmostEqual(LEAST.bound(), 0.4)
        self.assertAlmostEqual(MOST.bound(), 0.8)
        self.assertEqual([LEAST.holds(value) for value in (0.39, 0.41, 9.0)], [False, True, True])
        self.assertEqual([MOST.holds(value) for value in (0.1, 0.79, 0.81)], [True, True, False])

    def values(self, *lists, figures=None):
        """What is measured of figures that give these values one after another, and how many pauses there were."""
        pauses = []
        figures = [one._replace(read=lambda build, values=iter(values): next(values))
                   for one, values in zip(figures or [LEAST] * len(lists), lists)]
        return guard.measure(None, figures, lambda: pauses.append(1)), len(pauses)

    def test_figures_are_measured_again_until_they_hold(self):
        self.assertEqual(self.values([0.5, 0.1]), ([[0.5]], 0))
        self.assertEqual(self.values([0.1, 0.5, 0.1], [0.6], [0.1, 0.2, 0.5]), ([[0.1, 0.5], [0.6], [0.1, 0.2, 0.5]], 2))
        self.assertEqual(self.values([0.9, 0.7], figures=[MOST]), ([[0.9, 0.7]], 1))

    def test_three_times_are_enough(self):
        self.assertEqual(self.values([0.1, 0.2, 0.3, 0.9]), ([[0.1, 0.2, 0.3]], 2))

    def test_what_is_no_number_does_not_hold(self):
        self.assertFalse(LEAST.holds(float("nan")) or MOST.holds(float("nan")))

    def test_figures_are_far_from_their_bounds_and_from_what_a_broken_kernel_would_reach(self):
        self.assertEqual(len(guard.FIGURES), 11)
        for one in guard.FIGURES:
            self.assertTrue(one.holds(one.reported), one.name)
            self.assertTrue(0.3 <= one.factor <= 0.7 or 1.4 <= one.factor <= 3, one.name)
        for causal in (guard.FIGURES[4], guard.FIGURES[6]):
            self.assertIn("causal", causal.name)
            self.assertFalse(causal.holds(1.0), "as slow as without causality")

    def test_what_is_reported_stands_in_the_documentation(self):
        with open(os.path.join(DOCS, "notes", "performance-tables.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| (.*?) \| ([\d.]+) \| at (least|most) ([\d.]+) \|$",
                              file.read().split("## Held by the tests")[1].split("\n## ")[0], re.MULTILINE)
        self.assertEqual(rows, [(one.name, "%.2f" % one.reported, "least" if one.factor < 1 else "most",
                                 "%.2f" % one.bound()) for one in guard.FIGURES])

    def test_lines_are_tap(self):
        self.assertEqual(guard.line_of(2, LEAST, [0.3, 0.5]),
                         "ok 2 - share: 0.30, 0.50, at least 0.40 wanted, 0.80 reported")
        self.assertEqual(guard.line_of(1, MOST, [1.0]), "not ok 1 - cost: 1.00, at most 0.80 wanted, 0.50 reported")

    def test_all_that_failed_are_counted(self):
        folder = tempfile.mkdtemp(prefix="clattn-test-")
        self.addCleanup(shutil.rmtree, folder)
        reads, pauses = [], []
        slow = LEAST._replace(read=lambda build: reads.append(build) or 0.1)
        make_build(folder)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            failed = guard.guard(folder, [slow, LEAST._replace(read=lambda build: 0.5), slow], lambda: pauses.append(1))
        self.assertEqual((failed, len(reads), len(pauses)), (2, 6, 2))
        self.assertEqual(printed.getvalue().splitlines()[0], "1..3")


def make_build(folder):
    for name, content in (("src/clattn", CLATTN), ("bench/roof", ROOF)):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(path, 0o755)


class Script(unittest.TestCase):
    """The whole, from the outside."""

    def setUp(self):
        self.build = tempfile.mkdtemp(prefix="clattn-test-")
        self.addCleanup(shutil.rmtree, self.build)
        make_build(self.build)

    def run_script(self, **environment):
        return subprocess.run([sys.executable, os.path.join(BENCH, "guard.py"), self.build, "--pause", "0"], text=True, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment})

    def test_all_hold(self):
        done = self.run_script()
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "1..11")
        self.assertEqual([line.split(" - ")[0] for line in lines[1:]], ["ok %d" % number for number in range(1, 12)])
        self.assertIn("softmax 4096x1024: 0.90,", lines[3])
        self.assertIn("over not causal: 0.51,", lines[5])

    def test_a_slow_kernel_fails_after_three_times(self):
        done = self.run_script(COPIED="2")
        self.assertEqual((done.returncode, done.stderr), (1, ""), done)
        self.assertIn("not ok 3 - softmax 4096x1024: 0.20, 0.20, 0.20, at least 0.50 wanted", done.stdout)
        self.assertEqual(done.stdout.count("not ok"), 1)

    def test_what_is_no_cpu_is_skipped(self):
        for kind in ("gpu", "software"):
            done = self.run_script(CLASS=kind)
            self.assertEqual((done.returncode, done.stdout), (0, "1..1\nok 1 # SKIP d is no CPU\n"), done)

    def test_without_the_roof_it_is_skipped(self):
        os.remove(os.path.join(self.build, "bench", "roof"))
        done = self.run_script()
        self.assertEqual((done.returncode, done.stdout), (0, "1..1\nok 1 # SKIP bench/roof is missing\n"), done)

    def test_a_command_that_is_missing_or_fails_is_no_skip(self):
        with open(os.path.join(self.build, "src", "clattn"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 3\n")
        done = self.run_script()
        self.assertEqual((done.returncode, done.stdout), (1, ""), done)
        self.assertIn("status 3", done.stderr)
        os.remove(os.path.join(self.build, "src", "clattn"))
        self.assertIn("src/clattn is not there", self.run_script().stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
