"""Serve MLflow's page of a store until the parent process ends.

    python -m sweep.operations.mlflow.page_server PARENT STORE_URL HOST PORT

It is MLflow's own server with one change: its assistant, a chat that covers a third of the page on
the first visit, starts closed. MLflow has no setting for that. The assistant's button opens it.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

#: Environment variables that MLflow's command sets for its server.
STORES = ("_MLFLOW_SERVER_FILE_STORE", "_MLFLOW_SERVER_REGISTRY_STORE")
ARTIFACTS = {"_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/", "_MLFLOW_SGI_NAME": "uvicorn"}
#: Script that closes the assistant once; if the user opens it later, it stays open.
ASSISTANT_CLOSED = """<script>
if (!localStorage.getItem("sweep.assistantClosed")) {
  localStorage.setItem("sweep.assistantClosed", "true");
  localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
  localStorage.removeItem("mlflow.assistant.panelOpen_v1");
}
</script>"""


def main(arguments: Sequence[str]) -> None:
    """Run MLflow's server until a signal arrives or the parent process ends.

    `arguments` are the parent's process id, the URL of the store, host and port.
    """
    parent, store, host, port = arguments
    threading.Thread(target=_exit_with_parent, args=(int(parent),), daemon=True).start()
    os.environ.update(dict.fromkeys(STORES, store) | ARTIFACTS)
    import uvicorn  # MLflow checks for this module to detect that it runs in a server
    from mlflow.server import app, fastapi_app

    app.view_functions["serve"] = page(app.view_functions["serve"])
    uvicorn.run(fastapi_app.app, host=host, port=int(port), log_level="warning")


def page(serve: Callable[[], object]) -> Callable[[], object]:
    """Return a function that serves MLflow's start page with `ASSISTANT_CLOSED` inserted.

    It calls `serve`, MLflow's own function for that page, if the page's file is not found.
    """

    def served() -> object:
        """Return MLflow's page without its assistant; as MLflow serves it, if it has no file."""
        import mlflow.server

        file = Path(mlflow.server.__file__).parent / "js" / "build" / "index.html"
        if not file.is_file():
            return serve()
        return file.read_text(encoding="utf-8").replace("<head>", f"<head>{ASSISTANT_CLOSED}", 1)

    return served


def _exit_with_parent(parent: int) -> None:
    """Wait until the process with the id `parent` has ended, then kill this process (SIGKILL).

    If `parent` is not the parent of this process, that has ended already.
    """
    try:
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([descriptor], [], [])
    except ProcessLookupError:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
