"""A headless Chromium, driven over a pipe by its own protocol: the keys and clicks are real, and every message of the
console and every request is seen.  Needs nothing beyond Python.  Run by itself it fails where there is no browser."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "PageUp": 33,
        "PageDown": 34, "Tab": 9}
TIMEOUT = 60


def find():
    """Returns the browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page, with lists of its messages (`console`) and of its requests (`requests`) as texts."""

    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="clattn-browser-")
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # The browser takes the protocol's ends as descriptors 3 and 4, so these two must not be in their place.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, from_write)]
        self.process = subprocess.Popen(
            [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--user-data-dir=" + self.folder, "--window-size=1100,900",
             "--remote-debugging-pipe"],
            preexec_fn=lambda: [os.dup2(end, number) for number, end in enumerate(ends, 3)], pass_fds=(3, 4),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=dict(os.environ, HOME=self.folder))
        for end in ends:
            os.close(end)
        os.close(to_read)
        os.close(from_write)
        self.write_end, self.read_end = to_write, from_read
        self.pending, self.number, self.console, self.requests, self.session = b"", 0, [], [], None
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(domain + ".enable")

    def close(self):
        os.close(self.write_end)
        os.close(self.read_end)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, deadline):
        while b"\0" not in self.pending:
            if not select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read_end, 1 << 16)
            if not part:
                raise EOFError("the browser has ended")
            self.pending += part
        text, self.pending = self.pending.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value", each)) for each in about["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(about["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def call(self, method, **arguments):
        self.number += 1
        message = {"id": self.number, "method": method, "params": arguments}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.note(answer)

    def open(self, path):
        self.loaded = False
        self.console.clear()
        self.requests.clear()
        self.call("Page.navigate", url="file://" + path)
        deadline = time.monotonic() + TIMEOUT
        while not self.loaded:
            self.note(self.message(deadline))

    def ask(self, expression):
        """Returns the value of a JavaScript expression, converted from JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def key(self, name, control=False, shift=False):
        about = {"key": name, "modifiers": 2 * control + 8 * shift}
        if name in KEYS:
            about.update(windowsVirtualKeyCode=KEYS[name], code=name)
        else:
            about.update(windowsVirtualKeyCode=ord(name.upper()))
            if not control:
                about["text"] = name
        self.call("Input.dispatchKeyEvent", type="keyDown", **about)
        about.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def mouse(self, x, y, click=False):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, width=None, height=None):
        """Returns the page, or that much of it from its left and upper edge, as the bytes of a PNG file."""
        clip = {} if width is None else {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"])


if __name__ == "__main__":
    sys.exit(find() is None)
