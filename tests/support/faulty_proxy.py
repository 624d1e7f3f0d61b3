"""A TCP proxy that stands before a server and misbehaves on request."""

import socket
import threading
import time
from contextlib import suppress
from enum import StrEnum

#: By this a client asks to be told to send the rest.
_EXPECTS = b"\r\nExpect: 100-continue"
#: Bytes of an answer that arrive where it is cut in the middle.
CUT_AFTER = 60
#: Seconds by which a slow answer is late.
LATE_S = 0.3


class Fault(StrEnum):
    NONE = "none"
    REFUSES = "refuses"
    """Connections are closed at once, as where no server runs."""
    HANGS = "hangs"
    """Requests are taken and never answered."""
    SLOW = "slow"
    """Every answer is late."""
    ERROR = "answers 500"
    """The server never sees the request."""
    BUSY = "answers 503"
    """As S3 does where there are too many requests."""
    EXPIRED = "answers 400"
    """As S3 does when a credential is over."""
    LOST = "loses the answer"
    """The server has done what it was asked, and its answer does not arrive."""
    CUT = "cuts the answer"
    """The answer ends in the middle."""


#: What another server answers otherwise.
OF_S3 = frozenset({Fault.BUSY, Fault.EXPIRED})


class FaultyProxy:
    """Forwards connections to `port`; `fault` can be changed at any time."""

    def __init__(self, port: int) -> None:
        self.fault = Fault.NONE
        self.met = threading.Event()
        """Set when a connection met a fault."""
        self.asked = threading.Event()
        """Set when a connection brings a request."""
        self._target = port
        self._closed = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            with suppress(OSError):
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = _message(connection)
            fault = self.fault
            self.asked.set()
            if fault is not Fault.NONE:
                self.met.set()
            if fault is Fault.REFUSES:
                return
            if fault is Fault.HANGS:
                self._closed.wait(60)
            elif fault in _ANSWERS:
                connection.sendall(_answer(*_ANSWERS[fault]))
            else:
                self._forward(connection, request, fault)

    def _forward(self, connection: socket.socket, request: bytes, fault: Fault) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            server.sendall(request)
            answer = _message(server, has_body=not request.startswith(b"HEAD "))
        if fault is Fault.SLOW:
            time.sleep(LATE_S)
        if fault is Fault.LOST:
            return
        connection.sendall(answer[:CUT_AFTER] if fault is Fault.CUT else _closing(answer))


#: Fault → status, and the code and message of S3.
_ANSWERS = {
    Fault.ERROR: ("500 Oh", "", ""),
    Fault.BUSY: ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    Fault.EXPIRED: ("400 Bad Request", "ExpiredToken", "The provided token has expired."),
}


def _answer(status: str, code: str, message: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()


def _closing(answer: bytes) -> bytes:
    """The answer, with word that this connection takes no further request."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    lines = [x for x in head.split(b"\r\n") if not x.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close"]) + separator + body


def _message(connection: socket.socket, has_body: bool = True) -> bytes:
    """One request or answer of HTTP/1.1, to its end."""
    content = b""
    while b"\r\n\r\n" not in content:
        content += _some(connection)
    head, _, body = content.partition(b"\r\n\r\n")
    if not has_body:
        return content
    if _EXPECTS in head:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = head.replace(_EXPECTS, b"")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    length = int(fields.get(b"content-length", b"0"))
    while len(body) < length or (
        fields.get(b"transfer-encoding") == b"chunked" and not body.endswith(b"0\r\n\r\n")
    ):
        body += _some(connection)
    return head + b"\r\n\r\n" + body


def _some(connection: socket.socket) -> bytes:
    part = connection.recv(65536)
    if not part:
        raise ConnectionError("the other side is gone")
    return part
