"""The command of the build whose calls of the system go through tests/support/core/inject_system.c; CLATTN_INJECTED names
it."""
import os
import subprocess

from command_support import NOISE, environment

INJECTED = os.environ.get("CLATTN_INJECTED")


class Served:
    """A command that is run again and again by a process that has loaded its libraries."""

    def __init__(self, arguments, folder, env, **more):
        os.makedirs(folder)
        self.folder = folder
        self.process = subprocess.Popen([INJECTED] + [str(a) for a in arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env={**environment(env), "CLATTN_INJECT": folder}, **more)

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def run(self, number, how=""):
        """Returns how the command ended when the call of that number failed; "+": and all after it; "!SIGNAL": when the
        signal came before it."""
        for name in ("sites", "held"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.remove(os.path.join(self.folder, name))
        self.process.stdin.write(f"{number}{how}\n")
        self.process.stdin.flush()
        status, signal, ended, calls, failed, place = self.process.stdout.readline().split()
        done = Ended()
        done.status, done.signal, done.ended, done.calls = int(status), int(signal), ended == "1", int(calls)
        done.failed, done.place = failed, place
        done.out = self.read("out")
        lines = self.read("err").decode("utf-8", "replace").splitlines()
        done.errors = [line for line in lines if not NOISE.match(line)]
        done.held = set(self.read("held").decode().splitlines()) if done.ended else set()
        return done

    def sites(self):
        """Returns (function, place) -> the numbers of its first and its last call, of the run without a failure."""
        lines = [line.split() for line in self.read("sites").decode().splitlines()]
        return {(name, place): (int(first), int(last)) for name, first, last, place in lines}

    def changes(self):
        """Returns the calls that have changed files in the last run without a failure: number, name, path, path or count
        of bytes."""
        lines = [line.split("\t") for line in self.read("files").decode().splitlines()]
        return [(int(number), *call) for number, *call in lines]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Ended:
    pass
