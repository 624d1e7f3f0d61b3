"""A page in a real browser without a network: what it draws, complains of and asks for."""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

#: A Chromium of this machine, or None.
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
    *("--remote-allow-origins=*", "--host-resolver-rules=MAP * ~NOTFOUND"),
)
#: Events of the browser that tell of an error.
_TROUBLE = {"Runtime.exceptionThrown", "Log.entryAdded"}


@dataclass
class Tab:
    """One tab; `trouble` is what its console said, `requests` what it asked of a network."""

    socket: ClientConnection
    trouble: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _calls: int = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser to do something; its answer."""
        self._calls += 1
        self.socket.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv(timeout=120))
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event["method"], event.get("params", {})
        said = params["type"] if method == "Runtime.consoleAPICalled" else "log"
        if method in _TROUBLE or said not in ("log", "info", "debug"):
            self.trouble.append(json.dumps(params)[:1000])
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:", "about:")):
                self.requests.append(url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, page: Path, width: int = 1280, dark: bool = False) -> None:
        """Open a report with all its pictures, and wait until they are drawn."""
        phone = width < 600
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{page.resolve().as_uri()}#all")
        done = "document.documentElement.dataset.drawn || document.querySelector('#trouble')"
        look = f"setInterval(() => {{ const d = {done}; if (d?.textContent ?? d) r(1); }}, 50)"
        assert self.evaluate(f"new Promise(r => {look})"), "it was not drawn"


@contextlib.contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A browser of its own with one tab; `folder` holds its profile."""
    command = [str(CHROMIUM), *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    browser = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert browser.stderr is not None
        found = (re.search(r"ws://127\.0\.0\.1:(\d+)/", line) for line in browser.stderr)
        port = next(match[1] for match in found if match)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            (page,) = (its for its in json.load(answer) if its["type"] == "page")
        with connect(page["webSocketDebuggerUrl"], max_size=None) as socket:
            opened = Tab(socket)
            for domain in ("Page", "Runtime", "Log", "Network"):
                opened.call(f"{domain}.enable")
            yield opened
    finally:
        browser.terminate()
        browser.communicate(timeout=60)
