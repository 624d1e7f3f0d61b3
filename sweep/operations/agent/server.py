"""A server of the Model Context Protocol on standard input and output, with the package `mcp`.

Only messages of the protocol go to standard output: while the server runs, file descriptor 1 is
standard error, so whatever else is printed goes there.
"""

import functools
import json
import signal
import traceback
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from sweep.core.errors import Mistakes, SweepError, first_line, shorten_message, without_password
from sweep.core.version import __version__
from sweep.operations.agent.tools import Tool, Toolbox
from trainables.errors import TrainableError, printable

#: Text for the language model, sent when it connects.
_INSTRUCTIONS = """sweep searches hyperparameters of reinforcement-learning trainers. A person
allowed these specs: {specs}; {trials} trials in all, one sweep at a time. Call validate to see the
space of a spec and what a sweep costs, run to start one, status until it has ended, then results,
best and explain. To search more closely, run again with narrow."""


def serve(box: Toolbox) -> None:
    """Answer the model's calls on standard input until it ends; Ctrl-C ends the process at once."""
    # Python's own handler would wait for the thread that reads standard input.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve, box)


async def _serve(box: Toolbox) -> None:
    """Run the protocol's server: list the tools, and answer each call in a thread of its own.

    Calls of tools that train wait for each other.
    """

    async def listed(_context: Any, _params: Any) -> types.ListToolsResult:
        """Return the descriptions of all tools."""
        return types.ListToolsResult(tools=[_describe(tool, specs) for tool in box.tools.values()])

    async def called(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool in a thread and return its result."""
        work = functools.partial(_call, box, params.name, params.arguments or {})
        tool = box.tools.get(params.name)
        limiter = training if tool is not None and tool.trains else None
        return await anyio.to_thread.run_sync(work, limiter=limiter)

    training = anyio.CapacityLimiter(1)  # waiting calls hold no thread that others need
    specs = list(box.allowed.files)
    instructions = _INSTRUCTIONS.format(specs=", ".join(specs), trials=box.allowed.trials)
    server = Server(
        "sweep",
        version=__version__,
        instructions=instructions,
        on_list_tools=listed,
        on_call_tool=called,
    )
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def _describe(tool: Tool, specs: Sequence[str]) -> types.Tool:
    """Return the protocol's description of a tool; its argument `spec` may be one of `specs`."""
    hints = types.ToolAnnotations(
        read_only_hint=tool.read_only, destructive_hint=tool.is_final, open_world_hint=False
    )
    schema = tool.arguments.model_json_schema()
    if "spec" in schema["properties"]:
        schema["properties"]["spec"]["enum"] = list(specs)
    return types.Tool(
        name=tool.name, description=tool.description, input_schema=schema, annotations=hints
    )


def _call(box: Toolbox, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    """Call a tool by its name; return its answer, or the message of its error in one line.

    The answer is JSON, as text and as data. The traceback of an unexpected error goes to standard
    error; nothing is raised.
    """
    try:
        answer = box.find(name).call(arguments)
    except (SweepError, TrainableError, OSError) as error:
        mistakes = error.mistakes if isinstance(error, Mistakes) else [error]
        return _result("; ".join(map(str, mistakes)))
    except Exception as error:  # noqa: BLE001 the server continues with the next call
        traceback.print_exc()
        return _result(f"internal error: {type(error).__name__}: {first_line(error)}")
    text = types.TextContent(type="text", text=json.dumps(answer, indent=1))
    return types.CallToolResult(content=[text], structured_content=answer)


def _result(refusal: str) -> types.CallToolResult:
    """Return the result of a failed call: an error's message, shortened and on one line.

    Passwords in it are removed.
    """
    line = shorten_message(without_password(" ".join(printable(refusal).split())))
    return types.CallToolResult(content=[types.TextContent(type="text", text=line)], is_error=True)
