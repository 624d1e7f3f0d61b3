"""Serves MLflow's page of a store, until the process ends that wanted it, however it ends.

python -m sweep.operations.mlflow.page_server PARENT STORE_URL HOST PORT

It is MLflow's own server, but for one line in the page: MLflow opens its assistant, a chat with a
language model, over a third of the page of everybody who comes for the first time, and has no
setting against it but what the browser remembers. Whoever wants it opens it with its button.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

#: MLflow's names of what its command hands to its server.
STORES = ("_MLFLOW_SERVER_FILE_STORE", "_MLFLOW_SERVER_REGISTRY_STORE")
ARTIFACTS = {"_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/", "_MLFLOW_SGI_NAME": "uvicorn"}
#: Has the browser remember that the assistant was open once; what a person opened later stays.
ASSISTANT_CLOSED = """<script>
if (!localStorage.getItem("sweep.assistantClosed")) {
  localStorage.setItem("sweep.assistantClosed", "true");
  localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
  localStorage.removeItem("mlflow.assistant.panelOpen_v1");
}
</script>"""


def main(arguments: Sequence[str]) -> None:
    """Serve until a signal, or until the parent is gone."""
    parent, store, host, port = arguments
    threading.Thread(target=_watch, args=(int(parent),), daemon=True).start()
    os.environ.update(dict.fromkeys(STORES, store) | ARTIFACTS)
    import uvicorn  # MLflow finds out by its being there that it is a server
    from mlflow.server import app, fastapi_app

    app.view_functions["serve"] = page(app.view_functions["serve"])
    uvicorn.run(fastapi_app.app, host=host, port=int(port), log_level="warning")


def page(serve: Callable[[], object]) -> Callable[[], object]:
    """MLflow's page with `ASSISTANT_CLOSED`; as it is where it is not found."""

    def served() -> object:
        import mlflow.server

        file = Path(mlflow.server.__file__).parent / "js" / "build" / "index.html"
        if not file.is_file():
            return serve()
        return file.read_text(encoding="utf-8").replace("<head>", f"<head>{ASSISTANT_CLOSED}", 1)

    return served


def _watch(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([descriptor], [], [])
    except ProcessLookupError:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
