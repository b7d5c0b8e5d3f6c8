"""Kernel sources as files and functions: Triton reads a kernel's text from its file, so every text gets one.

In: a TritonSource. Out: its `triton.jit` function, one for each text. `clear()` forgets the functions; files stay for the next process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from dynamo_nb.backends.triton_cpp.triton_printer import TritonSource

_functions: dict[str, Any] = {}
_lock = threading.Lock()


def folder() -> Path:
    """Where kernel files go: of this user alone, since what lies there is run."""
    base = os.environ.get("DYNAMO_NB_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "dynamo_nb")
    path = Path(base) / "triton"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise RuntimeError(f"kernel sources need a folder, and {path} can't be made ({error}); set DYNAMO_NB_CACHE_DIR to one you can write") from error
    return path


def write(source: TritonSource) -> Path:
    """The file of the text, complete at every moment another process may look."""
    digest = hashlib.sha256(source.text.encode()).hexdigest()
    path = folder() / f"{source.name[:80]}_{digest[:32]}.py"
    if not (path.exists() and path.read_text() == source.text):
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        with os.fdopen(handle, "w") as file:
            file.write(source.text)
        os.replace(partial, path)
    return path


def function(source: TritonSource) -> Any:
    """The kernel as a triton.jit function."""
    with _lock:
        if source.text not in _functions:
            path = write(source)
            spec = importlib.util.spec_from_file_location(f"dynamo_nb_triton_{path.stem}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            _functions[source.text] = getattr(module, source.name)
        return _functions[source.text]


def clear() -> None:
    with _lock:
        _functions.clear()
