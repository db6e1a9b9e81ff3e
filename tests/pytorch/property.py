"""Random descriptions of attention, computed by the clattn command and by PyTorch in float64, compared by the accuracy rule.

    python property.py [--draws N] [--seed N] [--only NUMBER[,NUMBER...]] [--kinds KIND[,KIND...]] [--jobs N] [--keep]

The command is $CLATTN, or the clattn that is found.  Prints TAP; a draw that fails says which command line repeats it, and its
files stay.  README.md beside this file says what is drawn."""
import argparse
import collections
import concurrent.futures
import gc
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

import torch

from draw import Draw
from flex import Flex
from mha import Mha
from sdpa import Sdpa

KINDS = {"sdpa": Sdpa, "flex": Flex, "mha": Mha}
ORDER = ("sdpa", "flex", "sdpa", "mha", "flex")
SOLVERS = ("generic", "cpu", "tile")
TIMEOUT = 240


def arguments(kinds, draws):
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=draws, metavar="N")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CLATTN_TEST_SEED") or 20261121), metavar="N")
    parser.add_argument("--only", type=lambda text: [int(n) for n in text.split(",")], metavar="NUMBER,...")
    parser.add_argument("--kinds", default=",".join(kinds), metavar="KIND,...")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--keep", action="store_true", help="the files of what went well, too")
    return parser.parse_args()


def make(options, number, folder, kinds, order, solvers):
    kind = order[number % len(order)]
    draw = Draw(options.seed, number, kind, solvers[number // len(order) % len(solvers)], os.path.join(folder, str(number)))
    if kind not in options.kinds.split(","):
        return None
    os.mkdir(draw.folder)
    return kinds[kind](draw)


def run(command, draw):
    """What the command complains about, or None."""
    try:
        done = subprocess.run([command] + draw.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return "no result after %d s" % TIMEOUT
    if done.returncode != 0:
        return "status %d: %s" % (done.returncode, done.stdout.decode("utf-8", "replace").strip())
    return None


def judge(case, wrong):
    """What is wrong with a draw that has been computed, or None."""
    if wrong is None:
        try:
            wrong = case.check()
        except Exception:  # a draw that cannot be compared fails, and the others go on
            wrong = traceback.format_exc(limit=-3)
    return wrong


def report(case, wrong, command, options):
    draw = case.draw
    print("%sok %d - %s" % ("" if wrong is None else "not ", draw.number + 1, draw.describe()), flush=True)
    if wrong is not None:
        for line in wrong.splitlines():
            print("# Error: %s" % line)
        print("# the command: %s" % draw.line(command))
        print("# the draw:    %s --seed %d --only %d" % (sys.argv[0], options.seed, draw.number), flush=True)
    elif not options.keep:
        shutil.rmtree(draw.folder)


def main(kinds, order, solvers, variable, draws):
    """`kinds` are classes by name, drawn in that order; the program is what `variable` of the environment names."""
    options = arguments(kinds, draws)
    command = shutil.which(os.environ.get(variable, "clattn"))
    if command is None:
        sys.exit("%s: no program; %s names the one to test" % (os.path.basename(sys.argv[0]), variable))
    warnings.filterwarnings("ignore")  # that flex_attention is not compiled, which is what is wanted here
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    folder = tempfile.mkdtemp(prefix="clattn-pytorch-")
    print("# PyTorch %s, CLATTN_TEST_SEED=%d, files in %s" % (torch.__version__, options.seed, folder))
    numbers = collections.deque(options.only if options.only is not None else range(options.draws))
    failed = count = 0
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # The command computes what is ahead while PyTorch computes here.
        pending = collections.deque()
        while numbers or pending:
            while numbers and len(pending) < 3 * options.jobs:
                case = make(options, numbers.popleft(), folder, kinds, order, solvers)
                if case is not None:
                    pending.append((case, pool.submit(run, command, case.draw)))
            if pending:
                case, done = pending.popleft()
                wrong = judge(case, done.result())
                report(case, wrong, command, options)
                failed += wrong is not None
                count += 1
                gc.collect()  # a model and its stacks name each other, and are large
    if not os.listdir(folder):
        os.rmdir(folder)
    print("1..%d" % count)
    print("# %d of %d draws disagree, %.0f s" % (failed, count, time.monotonic() - began))
    sys.exit(1 if failed or not count else 0)


if __name__ == "__main__":
    main(KINDS, ORDER, SOLVERS, "CLATTN", 300)
