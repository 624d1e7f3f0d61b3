"""A TCP relay that keeps every byte that goes through it."""

import contextlib
import socket
import threading


class Relay:
    """Leads connections to `port` on this machine; `seen` has both directions of all of them."""

    def __init__(self, port: int) -> None:
        self.seen = bytearray()
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._lead, args=pair, daemon=True).start()

    def _lead(self, source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                self.seen += part
                to.sendall(part)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
