# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium driven over the DevTools protocol on pipes; standard library only."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """One page. `events` collects what the page logged, threw and asked for."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="report-browser-")
        to_browser, self.writer = os.pipe()
        self.reader, from_browser = os.pipe()
        self.buffer = b""
        self.count = 0
        self.events = []

        def place():  # the protocol is spoken on descriptors 3 and 4
            fds = [os.dup(to_browser), os.dup(from_browser)]
            os.dup2(fds[0], 3)
            os.dup2(fds[1], 4)

        self.process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-extensions",
                "--hide-scrollbars",
                "--mute-audio",
                "--user-data-dir=" + self.profile,
                "about:blank",
            ],
            pass_fds=(3, 4),
            preexec_fn=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def read_message(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.time()
            if left <= 0 or not select.select([self.reader], [], [], left)[0]:
                raise TimeoutError("the browser did not answer")
            data = os.read(self.reader, 1 << 20)
            if not data:
                raise RuntimeError("the browser closed its pipe")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        deadline = time.time() + 60
        while True:
            answer = self.read_message(deadline)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(method + ": " + answer["error"]["message"])
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width, dark):
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        deadline = time.time() + 60
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.read_message(deadline))

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:500])
        return result["result"].get("value")

    def complaints(self):
        """What the page logged or threw."""
        wanted = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [json.dumps(e["params"])[:300] for e in self.events if e.get("method") in wanted]

    def requests(self, path):
        """Addresses asked for, other than the page itself and data: addresses."""
        own = "file://" + os.path.abspath(path)
        urls = [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]
        return [u for u in urls if u != own and not u.startswith("data:")]

    def screenshot(self, path, selector=None, height=None):
        """The whole page, one element, or the page's first `height` pixels."""
        box = self.value(
            "(()=>{const r=document.querySelector(%s).getBoundingClientRect();"
            "return [r.x+scrollX,r.y+scrollY,r.width,r.height]})()" % json.dumps(selector or "html")
        )
        clip = dict(zip(("x", "y", "width", "height"), box), scale=1)
        clip["height"] = height or clip["height"]
        data = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        with open(path, "wb") as out:
            out.write(base64.b64decode(data["data"]))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, TimeoutError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.writer)
        os.close(self.reader)
        shutil.rmtree(self.profile, ignore_errors=True)
