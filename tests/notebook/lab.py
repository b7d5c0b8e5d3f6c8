"""JupyterLab on 127.0.0.1 for a test: own directories, own token, own kernel, gone afterwards.

`lab(folder)` starts it in `folder`; `open_notebook` opens a notebook in a page with its kernel ready;
`run_all` runs every cell and waits for the last one.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import dynamo_nb


class Lab(NamedTuple):
    url: str
    token: str

    def api(self, path: str, body: dict | None = None, method: str | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/{path}", data=data, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as reply:
            text = reply.read()
            return json.loads(text) if text else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(private: pathlib.Path) -> dict[str, str]:
    package_root = str(pathlib.Path(dynamo_nb.__path__[0]).parent)
    names = ("CONFIG", "DATA", "RUNTIME")
    return {
        **os.environ,
        **{f"JUPYTER_{name}_DIR": str(private / name.lower()) for name in names},
        "JUPYTERLAB_SETTINGS_DIR": str(private / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(private / "workspaces"),
        "IPYTHONDIR": str(private / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")])),
        "OMP_NUM_THREADS": "1",
    }


@contextlib.contextmanager
def lab(folder: pathlib.Path, private: pathlib.Path) -> Iterator[Lab]:
    """folder: what Lab shows; private: its configuration and log; ends with every kernel."""
    settings = private / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    port, token = _free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
               "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", "--LabApp.news_url=",
               "--LabApp.extension_manager=readonly", "--LabApp.expose_app_in_browser=True"]
    log = (private / "lab.log").open("w")
    process = subprocess.Popen(command, cwd=folder, env=_environment(private), stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    server = Lab(f"http://127.0.0.1:{port}", token)
    try:
        _wait_until_up(server, process, private / "lab.log")
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()


def _wait_until_up(server: Lab, process: subprocess.Popen, log: pathlib.Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended:\n{log.read_text()}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            server.api("status")
            return
        time.sleep(0.3)
    raise RuntimeError(f"JupyterLab did not answer:\n{log.read_text()}")


def shut_down_kernels(server: Lab) -> None:
    for session in server.api("sessions"):
        server.api(f"sessions/{session['id']}", method="DELETE")


def open_notebook(server: Lab, page: Any, name: str) -> None:
    """Open a notebook in the page; returns when its kernel is idle."""
    server.api("sessions", {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}})
    page.goto(f"{server.url}/doc/tree/{name}?token={server.token}&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=90_000)
    page.wait_for_function("document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')", timeout=90_000)


# What the notebook's model says, since Lab draws only the cells in view.
_CELLS = """() => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.cells;
  const codes = [...Array(cells.length).keys()].map((i) => cells.get(i)).filter((cell) => cell.type === 'code');
  return codes.map((cell) => ({ count: cell.executionCount, error: cell.outputs.toJSON().filter((o) => o.output_type === 'error')
    .map((o) => `${o.ename}: ${o.evalue}`).join() }));
}"""


def run_all(page: Any, timeout: float = 240) -> list[str]:
    """Run all cells of a notebook without outputs; returns the errors once every cell has its number."""
    page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells') && true")
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        cells = page.evaluate(_CELLS)
        errors = [cell["error"] for cell in cells if cell["error"]]
        if errors or all(cell["count"] for cell in cells):
            return errors
        time.sleep(0.5)
    raise TimeoutError(f"cells not finished: {cells}")
