#!/usr/bin/env python3
"""libclattn-mpi between two network namespaces, as between two machines: packets take 2 ms, and 1 % of them are lost.

    MPI_ATTENTION=build/tests/mpi/mpi_attention MPI_FAULTS=build/tests/mpi/mpi_faults python3 tests/mpi/test_network.py

77, with a line that says why: this machine cannot make such a network, or mpirun is not Open MPI's, whose options these are."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from network import CannotMake, Network
from test_mpi import ATTENTION, FAULTS, MPIRUN, OPEN_MPI

DELAY, LOSS = 0.002, 0.01
TIMEOUT = 5  # seconds, of a steady run (faults.c)
FULL = os.environ.get("CLATTN_TEST_LEVEL") == "full"
SECONDS = 1500  # nothing hangs


class Between(unittest.TestCase):
    def setUp(self):
        self.network = self.enterContext(Network(DELAY, LOSS))
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def start(self, *command):
        """One rank at each end.  What a rank says goes to a file, which needs no link."""
        agent = self.folder / "agent"
        there = shlex.join(self.network.inside(1, "sh", "-c"))
        agent.write_text(f'#!/bin/sh\nshift\nexec {there} "$*"\n')
        agent.chmod(0o700)
        net = f"{self.network.addresses[0]}/24"
        said = f'exec "$0" "$@" > {shlex.quote(str(self.folder))}/$OMPI_COMM_WORLD_RANK 2>&1'
        words = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--enable-recovery",
                 "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", net,
                 "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", net,
                 "--host", ",".join(f"{address}:1" for address in self.network.addresses), "-n", 2, "sh", "-c", said, *command]
        process = subprocess.Popen(self.network.inside(0, *map(str, words)), env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        self.network.end_processes()
        process.communicate()

    def said(self, rank):
        file = self.folder / str(rank)
        return file.read_text() if file.exists() else ""

    def wait_for(self, pattern, seconds):
        """Waits until both ranks have said what fits the pattern."""
        began = time.monotonic()
        while not all(re.search(pattern, self.said(rank), re.MULTILINE) for rank in range(2)):
            self.assertLess(time.monotonic() - began, seconds, f"rank 0:\n{self.said(0)}\nrank 1:\n{self.said(1)}")
            time.sleep(0.05)

    def test_attention(self):
        """attention.c: every mode and order, and what is drawn, is exact, gradients included."""
        if FULL:
            os.environ["MPI_DRAWS"] = "all"
            self.addCleanup(os.environ.pop, "MPI_DRAWS")
        process = self.start(ATTENTION)
        text, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, f"{text}\nrank 0:\n{self.said(0)}\nrank 1:\n{self.said(1)}")
        for rank in range(2):
            planned = int(re.search(r"^1\.\.(\d+)$", self.said(rank), re.MULTILINE)[1])
            self.assertGreaterEqual(planned, 4)
            self.assertEqual(len(re.findall("^ok ", self.said(rank), re.MULTILINE)), planned, self.said(rank))
        print(f"{planned} tests, {self.network.passed} packets, {self.network.lost} lost")
        self.assertGreater(self.network.passed, 1000)
        self.assertGreater(self.network.lost, 0)

    def test_cut(self):
        """A link that goes down while both ranks run: each fails at its time-out and names the other one."""
        self.start(FAULTS, "ring", "steady", 100)
        self.wait_for("^rank [01]: running$", 100)
        began = time.monotonic()
        self.network.cut()
        self.wait_for("did not answer", 4 * TIMEOUT)
        seconds = time.monotonic() - began
        for rank in range(2):
            expected = [f"rank {rank}: running", f"rank {rank}: rank {1 - rank} did not answer within {1000 * TIMEOUT} ms"]
            self.assertEqual(self.said(rank).splitlines(), expected)
        self.assertGreaterEqual(seconds, TIMEOUT - 0.5)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # namespaces are removed
    if not OPEN_MPI:
        print("skipped: mpirun is not Open MPI's")
        return 77
    try:
        with Network(DELAY, LOSS):
            pass
    except CannotMake as error:
        print(f"skipped: no network of two namespaces here: {error}")
        return 77
    return unittest.main()


if __name__ == "__main__":
    sys.exit(main())
