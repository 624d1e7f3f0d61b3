"""A headless Chromium that a test opens a page in, by the DevTools protocol over two pipes."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Seconds that a page may take on a busy machine.
PATIENCE_S = 120.0
#: Starts Chromium, which reads descriptor 3 and writes descriptor 4.
START = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reading, 3), os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def path() -> str | None:
    """Where Chromium lies, if it is installed; RuntimeError where the tests must have it."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None and "SWEEP_TESTS_NEED_A_BROWSER" in os.environ:
        raise RuntimeError("Chromium is not installed (apt-get install chromium)")
    return found


#: Events of a page that tell of an error.
_TROUBLE = {"Runtime.exceptionThrown", "Log.entryAdded"}


class Browser:
    """One page; `evaluate` runs JavaScript in it.

    `trouble` is what its console complained of, `requests` what it asked of a network.
    """

    def __init__(self, write: int, read: int) -> None:
        self.trouble: list[str] = []
        self.requests: list[str] = []
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def go(self, url: str) -> None:
        """Open an address."""
        self._call("Page.navigate", url=url)

    def printed(self) -> bytes:
        """The page as PDF, as a person prints it who has changed nothing."""
        return base64.b64decode(self._call("Page.printToPDF")["data"])

    def open_drawn(
        self, page: Path, width: int = 1280, dark: bool = False, every: bool = True
    ) -> None:
        """Open a report with `every` picture, or those in sight; wait until they are drawn."""
        phone = width < 600
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.go("about:blank")
        self.go(f"{page.resolve().as_uri()}{'#all' if every else ''}")
        trouble = "document.querySelector('#trouble')?.textContent"
        self.until(f"document.documentElement?.dataset.drawn || {trouble} || 0")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, a promise's when it is kept."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self._call("Runtime.evaluate", expression=script, **options)
        return answer["result"].get("value")

    def text(self) -> str:
        """Everything that can be read on the page."""
        return self.evaluate("document.body ? document.body.innerText : ''") or ""

    def until(self, script: str) -> Any:
        """The first true value of an expression; TimeoutError with the page's text after all."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if value := self.evaluate(script):
                return value
            time.sleep(0.2)
        raise TimeoutError(f"never true: {script}; the page says: {self.text()[:2000]}")

    def screenshot(self, to: Path) -> None:
        """Write what is seen as PNG."""
        to.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                piece = os.read(self._read, 1 << 16)
                if not piece:
                    raise RuntimeError(f"Chromium ended during {method}")
                self._buffer += piece
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self._note(answer["method"], answer.get("params", {}))

    def _note(self, event: str, params: dict[str, Any]) -> None:
        said = params["type"] if event == "Runtime.consoleAPICalled" else "log"
        if event in _TROUBLE or said not in ("log", "info", "debug"):
            self.trouble.append(json.dumps(params)[:1000])
        if event == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:", "about:")):
                self.requests.append(url)


@contextmanager
def opened(program: str, *flags: str, size: tuple[int, int] = (1600, 1000)) -> Iterator[Browser]:
    """A browser with a profile of its own, as a person has who opens a page for the first time."""
    read_here, write_there = os.pipe()
    read_there, write_here = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        options = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-dev-shm-usage", "--disable-background-networking"),
            f"--window-size={size[0]},{size[1]}",
            f"--user-data-dir={profile}",
            *flags,
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(read_there), str(write_there), program, *options],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_there)
        os.close(write_there)
        try:
            yield Browser(write_here, read_here)
        finally:
            os.close(write_here)
            os.close(read_here)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
