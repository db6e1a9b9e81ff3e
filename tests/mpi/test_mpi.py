#!/usr/bin/env python3
"""libclattn-mpi: the ranks of exchanges.c, attention.c, tensor.c and faults.c, as mpirun starts them.

    MPI_RANKS=2 MPI_EXCHANGES=build/tests/mpi/mpi_exchanges MPI_PIECES=build/tests/mpi/mpi_pieces python3 tests/mpi/test_mpi.py Mpi
    MPI_RANKS=2 MPI_ATTENTION=build/tests/mpi/mpi_attention python3 tests/mpi/test_mpi.py Attention
    MPI_RANKS=2 MPI_RING=build/examples/ring_mpi python3 tests/mpi/test_mpi.py Example
    MPI_RANKS=2 MPI_TENSOR=build/tests/mpi/mpi_tensor python3 tests/mpi/test_mpi.py Tensor
    MPI_RANKS=2 MPI_FAULTS=build/tests/mpi/mpi_faults python3 tests/mpi/test_mpi.py Faults

MPIRUN is another mpirun than the path's.  All ranks share this machine's cores, however few these are."""
import os
import re
import signal
import subprocess
import unittest

MPIRUN = os.environ.get("MPIRUN", "mpirun")
EXCHANGES, PIECES = os.environ.get("MPI_EXCHANGES", "mpi_exchanges"), os.environ.get("MPI_PIECES", "mpi_pieces")
ATTENTION, FAULTS = os.environ.get("MPI_ATTENTION", "mpi_attention"), os.environ.get("MPI_FAULTS", "mpi_faults")
RING = os.environ.get("MPI_RING", "ring_mpi")
TENSOR = os.environ.get("MPI_TENSOR", "mpi_tensor")
RANKS = int(os.environ.get("MPI_RANKS", 2))
SEED = int(os.environ.get("CLATTN_TEST_SEED", 1))
OPEN_MPI = "Open MPI" in subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
SECONDS = 500  # nothing hangs

RECOVERY = ["--enable-recovery"] if OPEN_MPI else ["-disable-auto-cleanup"]  # ranks go on without one that has ended

several = unittest.skipIf(RANKS < 2, "needs two ranks")


class Ranks(unittest.TestCase):
    def run_ranks(self, program, *arguments, options=(), transport="^tcp"):
        """Runs the ranks and returns mpirun's exit status, the lines of the ranks, and all that was said."""
        command = [MPIRUN, *options, "-n", RANKS, program, *arguments]
        env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
        if OPEN_MPI:
            command[1:1] = ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
            # Containers forbid reading another process's memory.
            env.setdefault("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
            env["OMPI_MCA_btl"] = transport
        process = subprocess.Popen([str(word) for word in command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # ends the ranks, too
            try:
                text, _ = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                text, _ = process.communicate()
            self.fail(f"it hangs: {text}")
        return process.returncode, re.findall(r"^rank \d+: .*$", text, re.M), text

    def succeed(self, program, *arguments, **keywords):
        status, said, text = self.run_ranks(program, *arguments, **keywords)
        self.assertEqual(status, 0, text)
        return said


class Suites(Ranks):
    def run_suite(self, program, least=2):
        """All ranks run the same tests."""
        status, _, text = self.run_ranks(program)
        self.assertEqual(status, 0, text)
        count = int(re.search(r"^1\.\.(\d+)$", text, re.M).group(1))
        self.assertGreaterEqual(count, least)
        self.assertEqual(len(re.findall(r"^ok \d+ - ", text, re.M)), count * RANKS, text)
        self.assertNotIn("not ok", text)


class Attention(Suites):
    def test_attention(self):
        """attention.c: rank 0 compares every mode and order, and what is drawn, with the reference, gradients included."""
        self.run_suite(ATTENTION, 4)


class Tensor(Suites):
    def test_tensor(self):
        """tensor.c: ranks train a model that they have together, and in a grid, as one device does."""
        self.run_suite(TENSOR)


class Example(Ranks):
    def test_ring(self):
        """examples/ring_mpi.c: what it computes is what it says that this is."""
        said = self.succeed(RING)
        self.assertEqual(sorted(line.split(": ")[0] for line in said), sorted(f"rank {rank}" for rank in range(RANKS)))
        for line in said:
            self.assertLess(float(line.split()[-1]), 1e-5)


class Faults(Ranks):
    """One of a group's ranks, the last one, has a fault while they attend."""
    last = RANKS - 1

    def run_killed(self, mode, phase, number=0):
        """All others name a rank, and one of them the last; they end within the time-out, or faults.c says that they do not."""
        _, said, text = self.run_ranks(FAULTS, mode, "killed", phase, number, options=RECOVERY)
        self.assertEqual(sorted(line.split(":")[0] for line in said), [f"rank {rank}" for rank in range(self.last)], text)
        for line in said:
            self.assertRegex(line, r"^rank \d+: ranks? \d+( and \d+)? did not answer within 2000 ms$")
        self.assertTrue(any(re.search(rf"\b{self.last}\b", line.split(":")[1]) for line in said), text)

    def test_killed_while_creating(self):
        """Before descriptions are compared, and before the ranks know that all are ready."""
        for number in range(2):
            self.run_killed("ring", "create", number)

    def test_killed_before_running(self):
        self.run_killed("ring", "before")

    def test_killed_forward(self):
        """The first exchange is the only one of two ranks' ring; then parts are in between, and outputs that return."""
        for mode, number in (("ring", RANKS - 2), ("gather", RANKS - 1), ("heads", 0), ("heads", RANKS - 1)):
            with self.subTest(mode=mode, number=number):
                self.run_killed(mode, "forward", number)

    def test_killed_backward(self):
        """While keys go round, while gradients follow them, and on the last way home; while gradients return."""
        for mode, number in (("ring", 0), ("ring", 1), ("ring", 2 * RANKS - 2), ("heads", RANKS - 1)):
            with self.subTest(mode=mode, number=number):
                self.run_killed(mode, "backward", number)

    def test_slow(self):
        """A rank that takes a quarter of the time-out for what it sends to all changes no bit."""
        for mode in ("ring", "gather", "heads"):
            self.assertEqual(sorted(self.succeed(FAULTS, mode, "slow")), [f"rank {rank}: the same" for rank in range(RANKS)])

    def test_truncated(self):
        """Rank 0 has both lengths: of descriptions, of keys and values, of gradients, of what all ranks exchange."""
        floats, lengths = 12 * 64 * 16, 12 * 64  # of a rank's array, and of its log-sum-exps
        for mode, phase, number, expected in (
                ("ring", "create", 0, 4096), ("ring", "forward", 0, 8 * floats), ("ring", "backward", 1, 8 * floats),
                ("gather", "forward", 0, 8 * floats // RANKS), ("heads", "forward", 0, 12 * floats // RANKS),
                ("heads", "forward", RANKS - 1, (4 * floats + 4 * lengths) // RANKS)):
            with self.subTest(mode=mode, phase=phase, number=number):
                _, said, text = self.run_ranks(FAULTS, mode, "truncated", phase, number, options=RECOVERY)
                self.assertEqual(len(said), RANKS, text)
                self.assertIn(f"rank 0: rank {self.last} sent {expected - 8} bytes, expected {expected}", said, text)

    def test_different(self):
        """Both values are named by a rank that sees them, and the others name a rank that has no share."""
        for mode, what, own, other in (("ring", "mode", "mode=ring", "mode=heads"), ("heads", "mode", "mode=heads", "mode=ring"),
                                       ("gather", "causal", "causal=1", "causal=0"),
                                       ("ring", "rows", "query=float32 1x12x64x16", "query=float32 1x12x32x16")):
            with self.subTest(mode=mode, what=what):
                said = self.succeed(FAULTS, mode, "different", what)
                self.assertEqual(len(said), RANKS)
                self.assertIn(f"rank 0: rank 0 has {own}, and rank {self.last} has {other}", said)
                for line in said:
                    self.assertRegex(line, r"^rank \d+: (rank \d+ has \S.*, and rank \d+ has \S.*|rank \d+ has no share: .+)$")


class Mpi(Ranks):
    def check_random(self, said):
        self.assertEqual(len(said), RANKS)
        for rank, line in enumerate(sorted(said)):
            exchanges, received = map(int, re.fullmatch(rf"rank {rank}: (\d+) exchanges, (\d+) bytes", line).groups())
            self.assertGreater(exchanges, 20)
            self.assertGreater(received, 1000000)

    def test_random(self):
        """Rings, permutations and pairs, of none to 1 MB, up to six at a time, waited for in any order."""
        self.check_random(self.succeed(EXCHANGES, "random", SEED, 60))

    def test_pieces(self):
        """The same in messages of at most 1,000 bytes."""
        self.check_random(self.succeed(PIECES, "random", SEED + 1, 60))

    @unittest.skipUnless(OPEN_MPI, "needs Open MPI")
    def test_tcp(self):
        """Over sockets, as between machines."""
        self.check_random(self.succeed(EXCHANGES, "random", SEED + 2, 60, transport="self,tcp"))

    def check_lengths(self, program, *pairs):
        """What rank 0 says of messages of another length."""
        said = self.succeed(program, "length", *(number for pair in pairs for number in pair))
        self.assertEqual(said, [f"rank 0: rank {RANKS - 1} sent {sent} bytes, expected {expected}" for sent, expected in pairs])

    def test_lengths(self):
        """Messages that MPI sends at once, and others."""
        self.check_lengths(EXCHANGES, (12, 16), (20, 16), (1, 2000000), (2000000, 3), (1000000, 1000001), (1000001, 1000000))

    def test_lengths_of_pieces(self):
        self.check_lengths(PIECES, (2500, 2600), (2600, 2500), (2500, 9000), (1000, 1001), (1001, 1000))

    def test_longer_pieces(self):
        """The first message is as long as any, and the second one has not been looked at."""
        self.assertEqual(self.succeed(PIECES, "length", 1500, 999), [f"rank 0: rank {RANKS - 1} sent 1000 bytes or more, expected 999"])

    def test_nothing_sent(self):
        """Where one of the two has no bytes, the other one's time-out tells."""
        self.assertEqual(self.succeed(EXCHANGES, "length", 0, 16), self.in_vain([0]))

    def test_refusals(self):
        self.assertEqual(sorted(self.succeed(EXCHANGES, "refusals")),
                         [f"rank {rank}: rank {rank} exchanges with ranks 0 and {RANKS} of {RANKS}" for rank in range(RANKS)])

    def run_without(self, *arguments):
        """What the ranks say whose exchange others have left.  The others do not end MPI, and so mpirun fails, too."""
        return sorted(self.run_ranks(*arguments, options=RECOVERY)[1])

    def in_vain(self, ranks):
        return [f"rank {rank}: rank {RANKS - 1} did not answer within 2000 ms" for rank in ranks]

    @several
    def test_silent(self):
        """What is sent to a rank that does not answer may be on its way if it is little; if it is much, it is waited for."""
        for count in (64, 1000000):
            self.assertEqual(self.run_without(EXCHANGES, "silent", count), self.in_vain(range(RANKS - 1)))

    @several
    def test_killed(self):
        """A rank that ends while the others wait for it."""
        self.assertEqual(self.run_without(EXCHANGES, "killed", 1000000), self.in_vain(range(RANKS - 1)))

    @several
    def test_two_silent(self):
        """The message has both ranks, if the one has not sent and the other has not received."""
        both = [f"rank 0: ranks {RANKS - 1} and 1 did not answer within 2000 ms"] if RANKS > 2 else self.in_vain([0])
        self.assertEqual(self.run_without(EXCHANGES, "alone", 1000000), both)


if __name__ == "__main__":
    unittest.main()
