#!/usr/bin/env python3
"""clattn train, translate and bench ring under mpirun: what several ranks make together, and how they end.

    CLATTN=build/src/clattn CLATTN_MPI=build/plugins/mpi MPI_RANKS=2 python3 tests/text/test_ranks.py [-k PATTERN ...]

MPIRUN is another mpirun than the path's.  All ranks share this machine's cores.  Needs NumPy and no more."""
import contextlib
import json
import os
import signal
import subprocess
import time
import unittest

import numpy as np

from test_train import CLATTN, TIMEOUT, TrainTest, main, slow

MPIRUN = os.environ.get("MPIRUN", "mpirun")
RANKS = int(os.environ.get("MPI_RANKS", 2))
LIBRARY = os.environ.get("CLATTN_MPI", "")
OPEN_MPI = "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
ACCUMULATE = ["--accumulate", 12]  # a multiple of all numbers of ranks here
PARALLEL = ["--tensor-parallel", RANKS]


class Ranks(TrainTest):
    def start(self, ranks, commands, **more):
        """Starts `commands`, of which each has a list of arguments; one alone is all ranks'."""
        words = [MPIRUN]
        env = dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, [LIBRARY, os.environ.get("LD_LIBRARY_PATH")])))
        if OPEN_MPI:
            words += ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
            env.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")  # containers forbid the others
        for i, command in enumerate(commands):
            words += [":"] * (i > 0) + ["-n", ranks // len(commands), CLATTN, *command]
        return subprocess.Popen([str(word) for word in words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, start_new_session=True, **more)

    def run_ranks(self, ranks, *commands, text=None):
        """Returns mpirun's status, what was written, and the command's lines of errors.  What mpirun itself has not survived says nothing of
        the command, and is done again, up to twice: Open MPI 4.1.4's can crash on the message that comes with MPI_Abort
        (docs/notes/compilers.md)."""
        for _ in range(3):
            status, out, errors = self.run_once(ranks, commands, text)
            if status != -signal.SIGSEGV:  # a rank's would be 139
                break
        return status, out, errors

    def run_once(self, ranks, commands, text):
        with self.start(ranks, commands, stdin=subprocess.PIPE if text else subprocess.DEVNULL) as process:
            try:
                out, errors = process.communicate(text, timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, out, [line for line in errors.splitlines() if line.startswith("clattn: ")]

    def together(self, ranks, model, *options):
        status, out, errors = self.run_ranks(ranks, self.command(model, "--json", *ACCUMULATE, *options))
        self.assertEqual((status, errors), (0, []))
        lines = [line for line in out.splitlines() if line.startswith("{")]
        self.assertEqual(len(lines), 1, out)  # one rank speaks
        return json.loads(lines[0])

    def refuse_ranks(self, commands, *saying, ranks=2):
        status, _, errors = self.run_ranks(ranks, *commands)
        self.assertNotEqual(status, 0)
        self.assertEqual(len(errors), 1, errors)
        for text in saying:
            self.assertIn(text, errors[0])

    def near(self, left, right, tolerance=1e-4):
        left, right = self.checkpoint(left), self.checkpoint(right)
        self.assertEqual(left.keys(), right.keys())
        for name, tensor in left.items():
            # The gradient of a key's bias is 0 but for rounding, because a softmax does not see it, and Adam's moves are as large.
            if name == "state" or name.endswith("key.bias") or not tensor.size:
                continue
            largest = max(1e-12, float(np.abs(tensor).max()))
            self.assertLessEqual(float(np.abs(tensor - right[name]).max()), tolerance * largest, name)
        return left, right


class Training(Ranks):
    def test_as_one(self):
        """Losses and parameters of ranks are those of one process that adds up the same batches, with dropout; every time with the
        same bits."""
        self.train("one", "--steps", 6, *ACCUMULATE)
        report = self.together(RANKS, "m", "--steps", 6)
        self.assertEqual((report["steps"], report["ranks"]), (6, RANKS))
        one, together = self.near("one", "m", 1e-3)  # Adam's steps are as large for small gradients
        for name in ("state.losses", "state.checks"):
            np.testing.assert_allclose(together[name], one[name], rtol=1e-5)
        self.together(RANKS, "again", "--steps", 6)
        self.same_files("m", "again")

    def test_another_number_of_ranks(self):
        """A checkpoint goes on with any number of ranks."""
        self.together(RANKS, "whole", "--steps", 7)
        self.together(RANKS, "m", "--steps", 2)
        self.together(3 if RANKS == 2 else 2, "m", "--steps", 4, "--resume")
        self.train("m", "--steps", 5, "--resume")
        self.together(RANKS, "m", "--steps", 7, "--resume")
        whole, mixed = self.near("whole", "m", 1e-3)
        np.testing.assert_allclose(mixed["state.losses"], whole["state.losses"], rtol=1e-5)

    def test_resume(self):
        """With the same number there is no difference at all."""
        self.together(RANKS, "whole", "--steps", 7)
        self.together(RANKS, "m", "--steps", 3)
        self.together(RANKS, "m", "--steps", 7, "--resume")
        self.same_files("whole", "m")

    def test_tensor_parallel(self):
        """Ranks that have the model together train it as one process does, and go on with it in any way."""
        heads = ["--heads", 4, "--d-ff", 66]
        self.train("one", "--steps", 5, *ACCUMULATE, *heads)
        together = self.together(RANKS, "m", "--steps", 5, *PARALLEL, *heads)
        self.assertEqual(together["ranks"], RANKS)
        one, found = self.near("one", "m", 1e-3)
        for name in ("state.losses", "state.checks"):
            np.testing.assert_allclose(found[name], one[name], rtol=1e-5)
        self.together(RANKS, "again", "--steps", 2, *PARALLEL, *heads)
        self.together(RANKS, "again", "--steps", 5, *PARALLEL, "--resume", *heads)
        self.same_files("m", "again")
        self.together(RANKS, "mixed", "--steps", 2, *PARALLEL, *heads)
        self.train("mixed", "--steps", 3, "--resume", *heads)
        self.together(RANKS, "mixed", "--steps", 4, "--resume", *heads)
        self.together(RANKS, "mixed", "--steps", 5, *PARALLEL, "--resume", *heads)
        self.near("one", "mixed", 1e-3)
        self.refuse_ranks([self.command("n", "--steps", 1, "--tensor-parallel", 3, "--heads", 2)], "2 heads of keys for 3 ranks", ranks=3)

    @unittest.skipUnless(RANKS == 4, "needs four ranks")
    def test_rows_of_tensor_parallel(self):
        """Two models of two ranks each, which share out the batches, train as one process does."""
        heads = ["--heads", 4, "--d-ff", 66]
        self.train("one", "--steps", 5, *ACCUMULATE, *heads)
        rows = self.together(4, "m", "--steps", 5, "--tensor-parallel", 2, *heads)
        alone = self.together(2, "n", "--steps", 1, "--tensor-parallel", 2, *heads)
        self.assertEqual((rows["ranks"], rows["parameters"]), (4, alone["parameters"]))
        one, found = self.near("one", "m", 1e-3)
        for name in ("state.losses", "state.checks"):
            np.testing.assert_allclose(found[name], one[name], rtol=1e-5)
        self.together(4, "again", "--steps", 2, "--tensor-parallel", 2, *heads)
        self.together(4, "again", "--steps", 5, "--tensor-parallel", 2, "--resume", *heads)
        self.same_files("m", "again")
        self.together(4, "mixed", "--steps", 2, "--tensor-parallel", 2, *heads)
        self.train("mixed", "--steps", 3, "--resume", *heads)
        self.together(4, "mixed", "--steps", 5, "--tensor-parallel", 2, "--resume", *heads)
        self.near("one", "mixed", 1e-3)

    def test_rows_that_do_not_divide(self):
        for ranks, columns in ((2, 4), (3, 2)):
            self.refuse_ranks([self.command("m", "--steps", 1, "--tensor-parallel", columns)], "clattn: rank 0: ",
                              f"--tensor-parallel {columns} is not valid with {ranks} ranks", ranks=ranks)
        self.refuse(2, *self.command("m", "--steps", 1, "--tensor-parallel", 2), saying=("2 is not valid with 1 rank (mpirun starts several)",))
        self.assertFalse(os.path.exists(self.path("m")))
        self.refuse_ranks([self.command("m", "--steps", 1, "--tensor-parallel", 2, "--accumulate", 3)],
                          "a multiple of 2, the number of models on all ranks", ranks=4)

    @slow
    def test_bfloat16(self):
        self.train("one", "--steps", 4, "--dtype", "bf16", *ACCUMULATE)
        self.together(RANKS, "m", "--steps", 4, "--dtype", "bf16")
        one, together = self.near("one", "m", 1e-2)
        np.testing.assert_allclose(together["state.losses"], one["state.losses"], rtol=1e-3)

    def test_default(self):
        """Each rank, or row of ranks, has a batch of a step unless it is said otherwise."""
        for ranks, columns in ((RANKS, 1), (4, 2)):
            model = f"m{columns}"
            status, _, errors = self.run_ranks(ranks, self.command(model, "--steps", 1, "--tensor-parallel", columns))
            self.assertEqual((status, errors), (0, []))
            state = json.loads(self.checkpoint(model)["state"].tobytes())
            self.assertEqual((state["parts"], state["position"]), (ranks // columns, ranks // columns))

    def test_ends(self):
        """All ranks end with the first whose time is up."""
        status, out, errors = self.run_ranks(RANKS, self.command("m", "--json", "--minutes", "0.0001"))
        self.assertEqual((status, errors), (0, []))
        self.assertEqual(json.loads(out.splitlines()[-1])["ended_by"], "minutes")


class Translation(Ranks):
    def test_as_one(self):
        """Texts of standard input and of the command line, with beams, are those of one process, in their order."""
        self.train("m", "--steps", 30)
        lines = self.read("a.txt").decode()
        expected = self.succeed("translate", self.path("m"), input=lines.encode()).out
        status, out, errors = self.run_ranks(RANKS, ["translate", self.path("m")], text=lines)
        self.assertEqual((status, errors), (0, []))
        self.assertEqual(out, expected)
        texts = lines.splitlines()[:3]
        for options in ([], ["--beams", 3]):
            one = self.succeed("translate", self.path("m"), *texts, "--json", *options).json()
            status, out, errors = self.run_ranks(RANKS, ["translate", self.path("m"), *texts, "--json", *options])
            self.assertEqual((status, errors), (0, []))
            several = json.loads(out)
            for left, right in zip(several["translations"], one["translations"], strict=True):
                self.assertAlmostEqual(left.pop("score"), right.pop("score"), places=4)
            self.assertEqual(several["translations"], one["translations"])

    def test_tensor_parallel(self):
        """Ranks that have the model together write what one process writes, and one of them writes it."""
        self.train("m", "--steps", 30, "--heads", 4)
        lines = self.read("a.txt").decode()
        expected = self.succeed("translate", self.path("m"), input=lines.encode()).out
        for ranks, columns in ((RANKS, RANKS), (4, 2)):
            status, out, errors = self.run_ranks(ranks, ["translate", self.path("m"), "--tensor-parallel", columns], text=lines)
            self.assertEqual((status, errors, out), (0, [], expected))
        for count, ranks, columns in ((3, RANKS, RANKS), (3, 4, 2), (1, 4, 2)):  # the last has fewer texts than rows
            texts = [*lines.splitlines()[:count], "--json", "--beams", 3]
            one = self.succeed("translate", self.path("m"), *texts, "--tensor-parallel", 1).json()
            status, out, errors = self.run_ranks(ranks, ["translate", self.path("m"), *texts, "--tensor-parallel", columns])
            self.assertEqual((status, errors), (0, []))
            several = json.loads(out)
            for left, right in zip(several["translations"], one["translations"], strict=True):
                self.assertAlmostEqual(left.pop("score"), right.pop("score"), places=4)
            self.assertEqual(several["translations"], one["translations"])
        parallel = ["translate", self.path("m"), "a", "--tensor-parallel", 2]
        self.refuse_ranks([[*parallel, "--attention", self.path("a.html")]], "clattn: rank 0: ", "--attention draws a model")
        self.refuse_ranks([[*parallel[:-1], 5]], "clattn: rank 0: ", "heads of keys for 5 ranks", ranks=5)
        self.refuse_ranks([parallel], "--tensor-parallel 2 is not valid with 3 ranks", ranks=3)
        self.refuse_ranks([[*parallel, "--dtype", "bf16"], parallel], "clattn: rank 0: has '--dtype', and rank 1 has 'translate'")

    def test_refused(self):
        self.refuse_ranks([["translate", self.path("nothing")]], "clattn: rank 0: ", "nothing: is no folder")
        self.refuse_ranks([["translate"]], "clattn: rank 0: ", "missing argument")
        self.refuse_ranks([["generate", self.path("m"), "--nothing"]], "clattn: rank 0: ", "unknown option '--nothing'")
        self.train("m", "--steps", 1)
        translate = ["translate", self.path("m"), "the old file " * 6000]  # ranks compare all of it, and the first refuses it
        self.refuse_ranks([translate], "clattn: rank 0: ", "tokens, expected at most")
        translate = ["translate", self.path("m"), *["the old file"] * 6000]
        self.refuse_ranks([[*translate, "--beams", 2], [*translate, "--beams", 3]], "rank 0: has '2', and rank 1 has '3'")

    def test_help(self):
        for command in ("train", "translate", "generate", "bench ring"):
            status, out, errors = self.run_ranks(RANKS, [*command.split(), "--help"])
            self.assertEqual((status, errors, out.count("usage: ")), (0, [], 1), command)

    def test_what_was_written(self):
        """A text that is refused does not take back the translations before it."""
        self.train("m", "--steps", 1, "--heads", 4)
        for columns in (1, RANKS):
            count = 1024 * RANKS // columns  # all that are in work at once
            fine = "".join(self.read("a.txt").decode().splitlines(keepends=True)[:1]) * count
            status, out, errors = self.run_ranks(RANKS, ["translate", self.path("m"), "--tensor-parallel", columns],
                                                 text=fine + "the " * 1000 + "\n")
            self.assertEqual(status, 2)
            self.assertEqual(len(errors), 1, errors)
            self.assertIn(f"text {count + 1} has", errors[0])
            self.assertEqual(out.count("\n"), count)


class Bench(Ranks):
    def test_ring(self):
        """Each mode's result is that of the whole, and each rank sends what its mode needs."""
        shape = [1, 4, 4, 64, 96, 8, 16]
        own = (8 + 16) * 4 * 96 // RANKS * 4  # bytes of a rank's keys and values
        others = 4 * (8 + 16) * 4 * 64 // RANKS + own  # of queries and outputs, besides
        sent = {"ring": (RANKS - 1) * own, "zigzag": (RANKS - 1) * own, "gather": (RANKS - 1) * own,
                "heads": others // RANKS * (RANKS - 1)}
        for mode in ("ring", "zigzag", "gather", "heads"):
            with self.subTest(mode):
                status, out, errors = self.run_ranks(RANKS, ["bench", "ring", "--shape", ",".join(map(str, shape)), "--mode",
                                                             mode, "--causal", "--repeat", 2, "--json"])
                self.assertEqual((status, errors), (0, []))
                report = json.loads(out)
                self.assertEqual((report["ranks"], report["runs"], len(report["sent_bytes"])), (RANKS, 2, RANKS))
                self.assertLess(report["max_difference"], 1e-5)
                self.assertEqual(report["sent_bytes"], RANKS * [sent[mode]])

    def test_ring_by_a_link(self):
        """A round takes the latency and the bytes' time at least, for each of N - 1 messages."""
        status, out, errors = self.run_ranks(RANKS, ["bench", "ring", "--shape", f"1,8,4,16,{16 * RANKS},8,8", "--link", 0.001,
                                                     "--latency", 20000, "--repeat", 2, "--json"])
        self.assertEqual((status, errors), (0, []))
        report = json.loads(out)
        self.assertGreaterEqual(report["seconds_min"], (RANKS - 1) * (0.02 + 4096e-6))
        self.assertEqual(report["sent_bytes"], RANKS * [(RANKS - 1) * 4096])
        self.assertEqual((report["link_microseconds"], report["ranks"]), (20000, RANKS))
        self.assertGreater(report["waiting_share"], 0.3)

    def test_refused(self):
        ring = ["bench", "ring", "--shape", "1,4,4,64,64,8,8"]
        self.refuse_ranks([ring + ["--ranks", 2]], "--ranks is for threads")
        self.refuse_ranks([["bench", "ring", "--shape", "1,4,4,65,64,8,8"]], "SQ 65", "a multiple of 2")
        self.refuse_ranks([ring + ["--repeat", 2], ring + ["--repeat", 3]], "rank 0: has '2', and rank 1 has '3'")
        self.refuse_ranks([ring, [*ring[:3], "1,4,4,64,128,8,8"]], "1,4,4,64,64,8,8", "1,4,4,64,128,8,8")


class Faults(Ranks):
    def test_refused(self):
        """What all ranks would say is said once; what one of them says names it."""
        self.refuse_ranks([self.command("m", "--steps", 1, "--layers", "x")], "--layers 'x'")
        self.refuse_ranks([self.command("m", "--steps", 1, data=["--text", self.path("nothing")])], "nothing: cannot be opened")
        self.assertFalse(os.path.exists(self.path("m")))
        self.refuse_ranks([self.command("m", "--steps", 1), self.command("m", "--steps", 2)],
                          "clattn: rank 0: has '1', and rank 1 has '2'")
        self.refuse_ranks([self.command("n", "--steps", 1, "--accumulate", 3)], "--accumulate is 3",
                          "a multiple of 2, the number of ranks")
        self.refuse_ranks([self.command("o", "--steps", 1), self.command("o", "--steps", 1, "--device", "no such device")],
                          "clattn: rank 1: ", "no such device")
        other = self.write("other.txt", self.read("b.txt").replace(b"der", b"die"))
        self.refuse_ranks([self.command("p", "--steps", 1), self.command("p", "--steps", 1, data=[
            "--source", self.source, "--target", other])], "rank 0: has ", "b.txt", "rank 1 has ", "other.txt")

    def test_devices(self):
        """A list of devices is dealt out."""
        self.refuse_ranks([self.command("m", "--steps", 1, "--device", ",no such device")], "clattn: rank 1: ", "no such device")

    def test_a_loss_that_is_not_finite(self):
        self.train("m", "--steps", 2, *ACCUMULATE)
        self.change(**{"decoder.norm.weight": np.full(32, np.nan, np.float32)})
        before = self.files("m")
        self.refuse_ranks([self.command("m", *ACCUMULATE, "--resume", "--steps", 9)], "rank 0: train: the loss of step 3 is")
        self.assertEqual(self.files("m"), before)

    def test_weights_that_are_not_finite(self):
        """All ranks fail of the same, and the first of them says so."""
        self.train("m", "--steps", 2, "--heads", 4)
        model = bytearray(self.read("m/model.safetensors"))
        data = 8 + int.from_bytes(model[:8], "little")
        begin, end = json.loads(model[8:data])["decoder.norm.weight"]["data_offsets"]
        model[data + begin:data + end] = np.full((end - begin) // 4, np.nan, np.float32).tobytes()
        self.write("m/model.safetensors", bytes(model))
        for how in ([], PARALLEL):
            self.refuse_ranks([["translate", self.path("m"), "a", "b", "c", "d", *how]], "clattn: rank 0: ", ranks=RANKS)

    def test_a_checkpoint_that_cannot_be_written(self):
        """The first rank fails alone, while the others wait for it."""
        with self.start(2, [self.command("m", *ACCUMULATE, "--steps", 1000000)]) as process:
            self.assertTrue(process.stdout.readline().startswith("step 5: loss "))
            path = self.path("m/checkpoint.safetensors")
            while not os.path.isdir(path):
                with contextlib.suppress(OSError):
                    os.remove(path)
                    os.mkdir(path)
            _, errors = process.communicate(timeout=TIMEOUT)
        lines = [line for line in errors.splitlines() if line.startswith("clattn: ")]
        self.assertEqual(process.returncode, 1)
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], "^clattn: rank 0: .*m/checkpoint.safetensors: cannot be opened")

    @unittest.skipUnless(OPEN_MPI, "MPICH's processes ask their mpirun")
    def test_another_mpi(self):
        """Processes that would not find each other write nothing."""
        path = ":".join(filter(None, [LIBRARY, os.environ.get("LD_LIBRARY_PATH")]))
        self.refuse(1, *self.command("m", "--steps", 1), env=dict(os.environ, PMI_SIZE="2", LD_LIBRARY_PATH=path),
                    saying=("started 2 ranks", "finds 1"))
        self.assertFalse(os.path.exists(self.path("m")))

    def test_a_killed_rank(self):
        """The others end, and the last checkpoint is whole."""
        with self.start(2, [self.command("m", *ACCUMULATE, "--steps", 1000000)]) as process:
            for step in (5, 10):  # a line comes before its step's checkpoint
                line = process.stdout.readline()
                self.assertTrue(line.startswith(f"step {step}: loss "), line)
            children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
            self.assertEqual(len(children), 2)
            began = time.monotonic()
            os.kill(int(children[1]), signal.SIGKILL)
            process.communicate(timeout=TIMEOUT)
        self.assertNotEqual(process.returncode, 0)
        self.assertLess(time.monotonic() - began, 30)
        while any(os.path.exists(f"/proc/{child}/exe") for child in children):
            self.assertLess(time.monotonic() - began, 30)
            time.sleep(0.05)
        step = json.loads(self.checkpoint("m")["state"].tobytes())["step"]
        self.assertEqual(step % 5, 0)
        self.together(2, "m", "--resume", "--steps", step + 1)

    def test_without_the_library(self):
        env = dict(os.environ, OMPI_COMM_WORLD_SIZE="2", LD_LIBRARY_PATH="")
        self.refuse(1, *self.command("m", "--steps", 1), env=env, saying="libclattn-mpi.so.0")


class Devices(Ranks):
    """PoCL and rusticl on one machine, whose ICDs the environment names."""

    @unittest.skipUnless("RUSTICL_ENABLE" in os.environ, "needs rusticl beside PoCL")
    def test_two_drivers(self):
        devices = ["--device", "Portable:,rusticl:"]
        self.train("one", "--steps", 4, "--device", "Portable:", *ACCUMULATE)
        self.together(2, "m", "--steps", 4, *devices)
        one, together = self.near("one", "m", 1e-3)
        np.testing.assert_allclose(together["state.losses"], one["state.losses"], rtol=1e-5)
        lines = self.read("a.txt").decode().splitlines()[:8]
        expected = self.succeed("translate", self.path("m"), *lines, "--device", "Portable:").out
        for how in ([], ["--tensor-parallel", 2]):
            status, out, _ = self.run_ranks(2, ["translate", self.path("m"), *lines, *devices, *how])
            self.assertEqual((status, out), (0, expected), how)
        self.together(2, "parts", "--steps", 4, *devices, "--tensor-parallel", 2)
        _, together = self.near("one", "parts", 1e-3)
        np.testing.assert_allclose(together["state.losses"], one["state.losses"], rtol=1e-5)


del TrainTest  # its tests are another program's
if __name__ == "__main__":
    main()
