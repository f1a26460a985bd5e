"""Headless Chromium, driven by its DevTools protocol over a pipe: nothing but Python's library."""

import json
import os
import shutil
import subprocess
import tempfile

DEADLINE_SECONDS = 120  # for a browser that hangs; answers take milliseconds


class Browser:
    """One page. Use it as a context manager; `problems` holds what a console would show as errors."""

    def __enter__(self):
        program = shutil.which("chromium")
        if program is None:
            raise RuntimeError("chromium is missing: tools/setup --tests installs it")
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, program, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--window-size=1280,900",
             f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.answers = os.fdopen(self.from_browser, "rb")
        self.sent, self.session, self.buffer = 0, None, b""
        self.problems, self.events = [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call(
            "Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        self.answers.close()
        self.profile.cleanup()

    def _read(self):
        while b"\0" not in self.buffer:
            data = os.read(self.answers.fileno(), 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _take(self, message):
        name = message.get("method")
        if name == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"]))
        elif name == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.problems.append(message["params"]["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
            self.problems.append(json.dumps(message["params"]["args"]))
        self.events.append(name)

    def call(self, method, **params):
        self.sent += 1
        request = {"id": self.sent, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(request).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self.sent:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._take(message)

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._take(self._read())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def colour_scheme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])
