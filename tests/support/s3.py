"""An S3 server on 127.0.0.1, as a process of its own, with a bucket in it.

    python -m tests.support.s3 PORT FILE

moto keeps its objects in memory. This process writes each request that changes something to FILE
before it is carried out, and carries out what stands there before it listens: so what was
acknowledged outlives kill -9, and what was not may be there or not, as in any storage.
"""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import mlflow_server
from tests.support.ports import free_port

BUCKET = "checkpoints"
#: What every process is given that shall talk to it; the secret stands nowhere else.
KEY, SECRET = "AKIDEXAMPLE0123456789", "the-secret-that-is-written-nowhere"


def environment(port: int) -> dict[str, str]:
    """The variables by which S3 clients find the server, and themselves."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Server:
    """A server with the bucket `BUCKET`; with a file it keeps its objects there."""

    def __init__(self, file: Path | None = None) -> None:
        self.port = free_port()
        kept = ["tests.support.s3", str(self.port), str(file)]
        plain = ["moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._words = [sys.executable, "-m", *(plain if file is None else kept)]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        request.add_header(
            "Authorization", f"AWS4-HMAC-SHA256 Credential={KEY}/x/us-east-1/s3/aws4"
        )
        urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 our own

    def start(self) -> None:
        """Start it; then it answers."""
        self._process = subprocess.Popen(
            self._words,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **environment(self.port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        mlflow_server.await_health(self._process, self.port, "/moto-api/")

    def close(self) -> None:
        """End it by kill -9; what it keeps in a file stays."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def serving() -> Iterator[int]:
    """The port on which it answers, with the bucket `BUCKET`."""
    server = Server()
    try:
        yield server.port
    finally:
        server.close()


class _Kept:
    """A WSGI application that notes what changes something, then hands it on."""

    def __init__(self, application: Any, file: Path) -> None:
        self._application = application
        self._lock = threading.Lock()
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        for line in lines:
            if line.endswith(b"\n"):  # what was being written was not carried out
                self._again(json.loads(line))
        self._file = file.open("ab", buffering=0)

    def __call__(self, request: dict[str, Any], answer: Any) -> Iterable[bytes]:
        if request["REQUEST_METHOD"] in ("PUT", "POST", "DELETE"):
            body = request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
            request["wsgi.input"] = io.BytesIO(body)
            words = {key: value for key, value in request.items() if isinstance(value, str)}
            noted = {"request": words, "body": base64.b64encode(body).decode()}
            with self._lock:
                self._file.write(json.dumps(noted).encode() + b"\n")
        answered: Iterable[bytes] = self._application(request, answer)
        return answered

    def _again(self, noted: dict[str, Any]) -> None:
        body = io.BytesIO(base64.b64decode(noted["body"]))
        request = {**noted["request"], "wsgi.input": body, "wsgi.errors": sys.stderr}
        version = {"wsgi.version": (1, 0), "wsgi.multithread": True}
        more = {**version, "wsgi.multiprocess": False, "wsgi.run_once": False}
        b"".join(self._application({**request, **more}, lambda *_: None))


def _serve(port: int, file: Path) -> None:
    from moto.moto_server import werkzeug_app
    from werkzeug.serving import run_simple

    moto = werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app)
    handler = werkzeug_app.MotoRequestHandler
    run_simple("127.0.0.1", port, _Kept(moto, file), threaded=True, request_handler=handler)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
