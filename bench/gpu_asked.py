"""PyTorch in a process of its own, asked from bench/gpu.py; gpu_peer.py is what answers."""
import json
import os
import selectors
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Peer:
    """gpu_peer.py as a process of its own, asked row by row."""

    def __init__(self, run, wait=120):
        command = [sys.executable, os.path.join(HERE, "gpu_peer.py"), run.options.peer]
        # Its home is the user's, where Python's packages may lie.
        variables = {**run.environment, "HOME": os.environ.get("HOME", "/")}
        self.process = subprocess.Popen(command + ([run.options.shape] if run.options.shape else []), env=variables,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=run.log_file,
                                        start_new_session=True)
        self.pending = b""
        self.alive = True
        self.about = self.answer(min(wait, run.left()))
        self.alive = self.alive and "error" not in self.about

    def answer(self, seconds):
        """The next line's object; where none comes in time, or the process has ended, it is given up."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.pending:
                more = b""
                if selector.select(max(0.0, end - time.monotonic())):
                    more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    self.close()
                    return {"error": "PyTorch's process gave no answer in %.0f s, or has ended" % seconds}
                self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        try:
            return json.loads(line)
        except ValueError:
            self.close()
            return {"error": "PyTorch's process answered %r" % line[:200]}

    def ask(self, name, seconds):
        try:
            self.process.stdin.write(name.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self.close()
            return {"error": "PyTorch's process has ended"}
        return self.answer(seconds)

    def close(self):
        self.alive = False
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:  # what was written to a process that has ended
                pass


def fastest(ways):
    """The way that took the least time from call to completion, with its seconds; or None."""
    times = [(each["seconds_host"], way) for way, each in ways.items() if "seconds_host" in each]
    return min(times) if times else None
