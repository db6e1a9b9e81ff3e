"""Two network namespaces and a link between them that delays and loses packets.

The link is two TUN devices and a thread that hands each packet from one to the other.  Unlike tc's netem it needs no module of the kernel,
only the right to make namespaces (CAP_SYS_ADMIN and CAP_NET_ADMIN) and /dev/net/tun."""

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import threading
import time

IFF_TUN, IFF_NO_PI, TUNSETIFF = 1, 0x1000, 0x400454CA  # of <linux/if_tun.h>
MOST_BYTES = 65536  # of a packet


class CannotMake(Exception):
    """Why this machine has no such network."""


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMake(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """A context.  `addresses` are those of the two ends, which `inside` runs commands at; `passed` and `lost` count packets."""

    def __init__(self, delay, loss, seed=1):
        self.delay, self.loss, self.random = delay, loss, random.Random(seed)
        self.spaces = [f"clattn-{os.getpid()}-{end}" for end in range(2)]
        self.addresses = [f"10.99.0.{end + 1}" for end in range(2)]
        self.devices, self.passed, self.lost = [], 0, 0
        self.ends, self.thread = threading.Event(), None

    def __enter__(self):
        for word in ("ip", "unshare", "hostname"):
            if not shutil.which(word):
                raise CannotMake(f"no {word} here")
        try:
            for end in range(2):
                self.make(end)
        except OSError as error:
            self.__exit__()
            raise CannotMake(f"no TUN device: {error}") from error
        except CannotMake:
            self.__exit__()
            raise
        self.thread = threading.Thread(target=self.relay)
        self.thread.start()
        return self

    def make(self, end):
        space, name = self.spaces[end], f"clattn{end}"
        ip("netns", "add", space)
        self.devices.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
        # A name with %d is completed by the kernel, which writes the whole name back.
        made = fcntl.ioctl(self.devices[end], TUNSETIFF, struct.pack("16sH14x", b"clattn%d", IFF_TUN | IFF_NO_PI))
        ip("link", "set", made[:16].rstrip(b"\0").decode(), "netns", space, "name", name)
        ip("-n", space, "link", "set", "lo", "up")
        ip("-n", space, "address", "add", f"{self.addresses[end]}/24", "dev", name)
        ip("-n", space, "link", "set", name, "up")

    def __exit__(self, *_):
        self.ends.set()
        if self.thread:
            self.thread.join()
        for device in self.devices:
            os.close(device)
        self.end_processes()
        for space in self.made():
            ip("netns", "delete", space)

    def made(self):
        return [space for space in ip("netns", "list").split() if space in self.spaces]

    def end_processes(self):
        """Ends what runs at both ends."""
        for space in self.made():
            for process in ip("netns", "pids", space).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)

    def relay(self):
        """Each packet leaves `delay` seconds after it has come, or never."""
        waiting, count = [], 0
        while not self.ends.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(waiting)
                try:
                    os.write(device, packet)
                except OSError:  # the device is down
                    self.lost += 1
            ready, _, _ = select.select(self.devices, [], [], max(0, waiting[0][0] - now) if waiting else 0.1)
            for device in ready:
                packet = os.read(device, MOST_BYTES)
                if self.random.random() < self.loss:
                    self.lost += 1
                    continue
                self.passed += 1
                count += 1
                to = self.devices[1 - self.devices.index(device)]
                heapq.heappush(waiting, (time.monotonic() + self.delay, count, to, packet))

    def inside(self, end, *command):
        """The command at one end, which has a host's name of its own."""
        script = 'hostname "$0" && exec "$@"'
        return ["ip", "netns", "exec", self.spaces[end], "unshare", "--uts", "sh", "-c", script, self.spaces[end], *command]

    def cut(self):
        """Takes the link down at one end."""
        ip("-n", self.spaces[0], "link", "set", "clattn0", "down")
