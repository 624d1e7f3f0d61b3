"""A language model's client: the package's own, over pipes, with a real server process."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.command_line import environment


class Refused(Exception):
    """The error of a tool; its text is the one line that the model reads."""


class Agent:
    """Calls tools as a model does."""

    def __init__(self, portal: BlockingPortal, client: Client, log: Path) -> None:
        self._portal = portal
        self._client = client
        self.log = log
        """Standard error of the server."""

    def tools(self) -> list[types.Tool]:
        return self._portal.call(self._client.list_tools).tools

    @property
    def instructions(self) -> str:
        return self._client.instructions or ""

    def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool as data."""
        answer = self._portal.call(self._client.call_tool, tool, arguments)
        (content,) = answer.content
        assert isinstance(content, types.TextContent)
        if answer.is_error:
            raise Refused(content.text)
        found: dict[str, Any] = answer.structured_content
        return found

    def refused(self, tool: str, /, **arguments: Any) -> str:
        """The one line with which a tool refuses."""
        try:
            answer = self(tool, **arguments)
        except Refused as error:
            (line,) = str(error).splitlines()
            return line
        raise AssertionError(f"it was granted: {answer}")


@contextlib.contextmanager
def connected(root: Path, *words: object) -> Iterator[Agent]:
    """A client of ``sweep mcp WORDS --root ROOT``, until the end of the block."""
    command = ["-m", "sweep", "mcp", *map(str, words), "--root", str(root)]
    parameters = StdioServerParameters(
        command=sys.executable, args=command, env=environment(), cwd=root.parent
    )
    log = root.parent / "server.log"
    with log.open("a") as errors, start_blocking_portal() as portal:
        client = Client(stdio_client(parameters, errlog=errors))
        open_client = portal.wrap_async_context_manager(client)
        open_client.__enter__()
        try:
            yield Agent(portal, client, log)
        finally:  # a failure of the block would be wrapped in groups
            open_client.__exit__(None, None, None)
