#!/usr/bin/env python3
"""`clattn tune` from outside: it keeps what it measures, stays within its budget, and a rerun continues with what is
missing.

Holds: of docs/tuning.md, "clattn tune".  Which candidate wins depends on the device and is not tested."""
import os
import re
import resource
import stat

from command_support import CommandTest, main, slow

SHAPE = "1,2,2,40,40,8,8"


class TuneTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.cache = self.path("cache")
        self.env = {"CLATTN_CACHE_DIR": self.cache, "CLATTN_CACHE": None, "CLATTN_LOG": None}

    def tune(self, *arguments):
        """Returns the report as a dictionary from a shape's name to its result."""
        result = self.succeed("tune", *arguments, "--json", env=self.env)
        self.assertEqual(len(result.out.splitlines()), 1, result)
        report = result.json()
        for name in ("device", "platform", "shapes", "measured", "begun", "known", "left", "skipped", "seconds", "wisdom"):
            self.assertIn(name, report)
        return report

    def tune_all(self, *arguments):
        """Runs until all shapes are measured, which takes several runs on a machine with other work; returns the last
        report."""
        for _ in range(100):
            report = self.tune(*arguments, "--budget", 20)
            if report["begun"] + report["left"] == 0:
                return report
        self.fail(report)

    def wisdom(self):
        return self.read("cache/wisdom").decode("ascii")


class Usage(TuneTest):
    def test_what_is_refused(self):
        self.refuse(2, "tune", "dance", saying=("dance", "matmul"), env=self.env)
        self.refuse(2, "tune", "--shape", "4,4,4", saying=("--shape", "one operator"), env=self.env)
        self.refuse(2, "tune", "matmul", "softmax", "--shape", "4,4", saying=("--shape", "one operator"), env=self.env)
        self.refuse(2, "tune", "matmul", "--shape", "4,4", saying="--shape", env=self.env)
        self.refuse(2, "tune", "matmul", "--shape", "4,4,none", saying="--shape", env=self.env)
        self.refuse(2, "tune", "attention", "--shape", "1,3,2,4,4,4,4", saying=("3", "2"), env=self.env)
        self.refuse(2, "tune", "attention", "--shape", "1,2,4,4,4,4,4", saying=("2", "4"), env=self.env)
        self.refuse(2, "tune", "matmul", "--shape", "4,4,4", "--causal", saying="--causal", env=self.env)
        self.refuse(2, "tune", "--causal", saying="--shape", env=self.env)
        self.refuse(2, "tune", "matmul", "--budget", "0", saying="--budget", env=self.env)
        self.refuse(2, "tune", "--import", self.path("missing"), saying="missing", env=self.env)
        self.assertFalse(os.path.exists(os.path.join(self.cache, "wisdom")))

    def test_a_failed_export_loses_nothing(self):
        """The file is replaced whole or stays, a folder is refused at once, and --reset waits for the export."""
        wisdom = "clattn-wisdom 1\na b c d e cpu 0 123 rows=6\n"
        self.succeed("tune", "--import", self.write("imported", wisdom), env=self.env)
        for changes in ([], ["--reset"]):
            self.refuse(2, "tune", *changes, "--export", self.folder, saying=(self.folder, "directory"),
                        env=dict(self.env, CLATTN_DEVICE="nonsense")) # refused before a device is looked for
            self.refuse(1, "tune", *changes, "--export", "/dev/full", saying="/dev/full", env=self.env)
            self.assertEqual(self.wisdom(), wisdom)
        kept = self.write("kept", "what was there")
        os.chmod(kept, 0o640)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        # A build that counts coverage must not cut its counts off, nor complain.
        env = dict(self.env, GCOV_PREFIX=self.path("counts"), GCOV_ERROR_FILE="/dev/null")
        result = self.refuse(1, "tune", "--reset", "--export", kept, saying=kept, preexec_fn=limit,
                             restore_signals=False, env=env)
        self.assertEqual((self.read("kept"), self.wisdom()), (b"what was there", wisdom), result)
        self.succeed("tune", "--import", self.path("imported"), "--reset", "--export", kept, env=self.env)
        self.assertEqual(self.read("kept").decode(), wisdom)
        self.assertEqual(stat.S_IMODE(os.stat(kept).st_mode), 0o640)
        self.succeed("tune", "--reset", "--export", self.path("empty"), env=self.env)
        self.assertEqual(self.wisdom(), "clattn-wisdom 1\n")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])

    def test_without_a_folder(self):
        off = {"CLATTN_CACHE": "off"}
        self.refuse(1, "tune", "softmax", "--shape", "8,8", saying=("folder", "--export"), env=off)
        file = self.path("exported")
        result = self.succeed("tune", "softmax", "--shape", "8,8", "--budget", 20, "--export", file, "--json", env=off)
        self.assertIsNone(result.json()["wisdom"])
        self.assertIn(b" softmax r8-c8-", self.read(file))


class Tuning(TuneTest):
    @slow
    def test_a_shape_is_kept_and_followed(self):
        report = self.tune_all("attention", "--shape", SHAPE)
        self.assertEqual([report["measured"], report["begun"], report["known"], report["left"]], [1, 0, 0, 0])
        row, = report["shapes"]
        self.assertEqual([row["shape"], row["state"]], ["attention " + SHAPE, "measured"])
        self.assertGreater(row["candidates"], 1)
        self.assertGreater(row["seconds_median"], 0)
        self.assertTrue(0 <= row["gain"] < 1, row)
        if row["gain"] == 0:
            self.assertEqual([row["solver"], row["parameters"]], [row["untuned_solver"], ""])
        else:
            self.assertLess(row["seconds_median"], row["untuned_seconds"])
        self.assertEqual(stat.S_IMODE(os.stat(report["wisdom"]).st_mode), 0o600)
        text = self.succeed("explain", "--shape", SHAPE, "--json", env=self.env).json()["text"]
        self.assertIn("wisdom has %s, rank 0, " % row["solver"], text)
        self.assertNotIn("ignored", text)
        # The shape is known from now on; --again measures it once more, against the untuned choice.
        self.assertEqual(self.tune("attention", "--shape", SHAPE)["known"], 1)
        again = self.tune("attention", "--shape", SHAPE, "--budget", 5, "--again")
        self.assertEqual(again["measured"] + again["begun"], 1)
        self.assertEqual(again["shapes"][0]["untuned_solver"], row["untuned_solver"])
        # Results are right with this wisdom.
        generator = self.random
        q, k, v = (generator.standard_normal((1, 2, 40, 8)).astype("float32") for _ in range(3))
        files = sum((["-" + n, self.save(n + ".npy", a)] for n, a in zip("qkv", (q, k, v))), [])
        self.assertTrue(self.succeed("attention", *files, "-o", self.path("o.npy"), "--verify", "--json",
                                     env=self.env).json()["verified"])

    @slow
    def test_the_budget_is_kept_and_a_rerun_goes_on(self):
        first = self.tune("softmax", "layernorm", "matmul", "--budget", 6)
        self.assertGreater(first["left"], 0)
        self.assertGreater(first["measured"] + first["begun"], 0)
        self.assertEqual(first["measured"] + first["begun"] + first["left"] + first["skipped"], len(first["shapes"]))
        # The run completes the compilation of one candidate and the last comparison, which it has begun.
        self.assertLess(first["seconds"], 6 + 60)
        complete = [shape["shape"] for shape in first["shapes"] if shape["state"] == "measured"]
        records = [line.split() for line in self.wisdom().splitlines()]
        begun = [record[:5] for record in records if record[5:6] == ["-"]]
        kept = [record for record in records if record[:5] not in begun]
        second = self.tune("softmax", "layernorm", "matmul", "--budget", 6)
        self.assertEqual(second["known"], first["measured"])
        self.assertEqual([row["state"] for row in second["shapes"] if row["shape"] in complete],
                         ["known already"] * len(complete))
        now = [line.split() for line in self.wisdom().splitlines()]
        self.assertTrue(all(record in now for record in kept), (kept, now))

    @slow
    def test_a_shape_that_was_cut_is_continued(self):
        """Runs without any time take one step each and add up to one search."""
        def steps():
            lines = [line for line in self.wisdom().splitlines() if " - 7 " in line]
            return int(lines[0].split()[-1]) if lines else None

        one = ("softmax", "--shape", "16,64")
        states, reached, candidates = [], [], 0
        while not states or states[-1] != "measured":
            self.assertLess(len(states), 100)
            report = self.tune(*one, "--budget", 1e-3)
            row, = report["shapes"]
            states.append(row["state"])
            self.assertEqual([report["measured"], report["begun"], report["left"]],
                             [int(row["state"] == "measured"), int(row["state"] == "begun"), 0])
            candidates += row["candidates"]
            if row["state"] == "begun":
                self.assertTrue(row["cut"])
                reached.append(steps())
        self.assertIn("begun", states)
        self.assertEqual(reached, sorted(set(reached)))  # each run goes farther than the one before
        self.assertIsNone(steps())
        self.assertEqual(self.tune(*one)["known"], 1)
        # The steps are as many as in one run, except that each run begins with known solvers and that chance leads
        # elsewhere.
        whole, = self.tune(*one, "--again")["shapes"]
        solvers = 3
        self.assertLessEqual(candidates, 2 * whole["candidates"] + solvers * len(states))

    def test_human_lines(self):
        out = self.succeed("tune", "softmax", "--shape", "16,64", env=self.env).out
        self.assertRegex(out, r"(?m)^softmax 16,64 +\w+ .*\d ms, \d+ candidates")
        self.assertIn("1 measured, 0 begun, 0 known already, 0 left for the next run, 0 skipped", out)
        self.assertIn("wisdom: " + self.cache, out)

    @slow
    def test_the_bar_moves_within_a_shape(self):
        status, shown = self.on_a_terminal("tune", "matmul", "--shape", "40,40,40", "--budget", 4, env=self.env)
        self.assertEqual(status, 0)
        shares = [int(share) for share in re.findall(r"\rtuning \[[#.]{30}\] +(\d+) %  \d+ s", shown)]
        self.assertGreater(len(set(shares)), 5, repr(shown))
        self.assertEqual(shares, sorted(shares))
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown))

    def test_layernorm(self):
        report = self.tune("layernorm", "--shape", "3,64", "--budget", 0.001)
        self.assertEqual(report["shapes"][0]["shape"], "layernorm 3,64")
        self.assertIn(" norm ", self.wisdom())

    @slow
    def test_other_types(self):
        report = self.tune("matmul", "--shape", "20,24,32", "--dtype", "bf16", "--budget", 20)
        self.assertEqual(report["shapes"][0]["shape"], "matmul 20,24,32 bfloat16")
        self.assertIn("-BF16.r-BF16.c-BF16.r ", self.wisdom())
        report = self.tune("attention", "--shape", "1,2,2,8,16,16,16", "--dtype", "bf16", "--budget", 1)
        self.assertEqual(report["shapes"][0]["shape"], "attention 1,2,2,8,16,16,16 bfloat16")

    def test_export_import_and_reset(self):
        exported = self.path("exported")
        self.tune("softmax", "--shape", "16,64", "--export", exported)
        text = self.read(exported).decode("ascii")
        self.assertEqual(text, self.wisdom())
        report = self.tune("--reset")
        self.assertEqual([report["shapes"], self.wisdom()], [[], "clattn-wisdom 1\n"])
        self.tune("--import", exported)
        self.assertEqual(self.wisdom(), text)
        self.assertEqual(self.tune("softmax", "--shape", "16,64")["known"], 1)
        self.assertEqual(self.tune("softmax", "--shape", "16,64", "--reset")["measured"], 1)
        for bad, saying in ((text[:-1], "the last line has no end"), ("clattn-wisdom 9\n", "version"), ("", "line 1"), (text + "x\n", "line")):
            self.write(exported, bad)
            before = self.wisdom()
            self.refuse(2, "tune", "--import", exported, saying=(exported, saying), env=self.env)
            self.assertEqual(self.wisdom(), before)

    @slow
    def test_a_damaged_file_counts_as_none(self):
        os.mkdir(self.cache, 0o700)
        self.write("cache/wisdom", "clattn-wisdom 1\nnonsense\n")
        os.chmod(os.path.join(self.cache, "wisdom"), 0o600)
        self.succeed("explain", "--shape", SHAPE, env=self.env)
        self.assertEqual(self.tune("softmax", "--shape", "16,64")["measured"], 1)
        self.assertNotIn("nonsense", self.wisdom())


if __name__ == "__main__":
    main()
