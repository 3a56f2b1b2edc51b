# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by its DevTools protocol over a pair of pipes. Standard library only."""
import base64
import collections
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_browser():
    """The path of a Chromium, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One browser with a profile of its own, gone on close(). Messages are JSON, each ended by a NUL."""

    def __init__(self, path):
        self._profile = tempfile.TemporaryDirectory(prefix="atoll-browser-")
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        # The browser's ends are 3 and 4, by way of numbers that are neither.
        reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (from_us, to_us))
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes} {reads}<&- {writes}>&-', "bash", path,
             "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}",
             # Neither the sandbox nor /dev/shm is to be had for root in a container.
             "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-extensions", "--hide-scrollbars", "about:blank"],
            pass_fds=(reads, writes), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        for fd in (from_us, to_us, reads, writes):
            os.close(fd)
        self._to, self._from = to_browser, from_browser
        self._bytes, self._count, self._answers = b"", 0, {}
        self.events = collections.deque()  # of all pages, in order: (session, method, parameters)

    def close(self):
        os.close(self._to)  # which ends it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        for _ in range(50):  # its own children may still be writing there
            try:
                self._profile.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    def _read(self, seconds):
        """Takes in what arrives within so many seconds, if anything does."""
        if not select.select([self._from], [], [], max(seconds, 0))[0]:
            return
        got = os.read(self._from, 1 << 20)
        if not got:
            raise RuntimeError(f"the browser has ended with code {self._process.poll()}")
        *messages, self._bytes = (self._bytes + got).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append((message.get("sessionId"), message["method"], message["params"]))

    def call(self, method, parameters=None, session=None, seconds=30):
        self._count += 1
        number, end = self._count, time.monotonic() + seconds
        message = {"id": number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data):]
        while number not in self._answers:
            if time.monotonic() > end:
                raise TimeoutError(f"no answer to {method} in {seconds} s")
            self._read(end - time.monotonic())
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self, url, width, height, dark=False):
        return Page(self, url, width, height, dark)


class Page:
    """One tab."""

    def __init__(self, browser, url, width, height, dark):
        self._browser = browser
        self._target = browser.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = browser.call(
            "Target.attachToTarget", {"targetId": self._target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.call("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        self.call("Page.navigate", {"url": url})

    def call(self, method, parameters=None):
        return self._browser.call(method, parameters, self._session)

    def evaluate(self, expression):
        """The value of a JavaScript expression, as JSON has it."""
        result = self.call("Runtime.evaluate",
                           {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=20):
        """Until the expression is true; returns its value."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {seconds} s: {expression}; the page says: "
                                   + self.evaluate("document.body ? document.body.innerText : ''"))
            time.sleep(0.05)
        return value

    def choose_files(self, selector, *paths):
        """As if somebody had chosen these files in an <input type="file">."""
        found = self.call("Runtime.evaluate", {"expression": f"document.querySelector({selector!r})"})
        self.call("DOM.setFileInputFiles", {"objectId": found["result"]["objectId"], "files": [str(path) for path in paths]})

    def complaints(self):
        """What the console has about this page since the last call: errors, warnings, exceptions."""
        self.evaluate("0")  # takes in what has been sent
        found, others = [], []
        for session, method, parameters in self._browser.events:
            if session != self._session:
                others.append((session, method, parameters))
            elif method == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(parameters["args"])
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"])
        self._browser.events = collections.deque(others)
        return found

    def screenshot(self):
        """The whole page, as PNG."""
        return base64.b64decode(
            self.call("Page.captureScreenshot", {"captureBeyondViewport": True})["data"])

    def close(self):
        self._browser.call("Target.closeTarget", {"targetId": self._target})
