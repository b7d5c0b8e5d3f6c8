"""dynamo_nb: TorchDynamo written anew, for notebooks and for reading.

`compile(fn)` is a drop-in for torch.compile(fn); `%load_ext dynamo_nb` adds `%%compile` to IPython.
"""

from __future__ import annotations

from typing import Any

from . import native  # noqa: F401  (checks Python, torch and the extension first, with one clear sentence)

# isort: split
from . import config, debug, decorators, exc, testing, utils
from .api.compile import cache_entries, compile, compile_in_place
from .api.explain import explain
from .api.export import export
from .api.lifecycle import OptimizedModule, optimize, optimize_assert, reset, reset_code_caches, run
from .api.logs import set_logs
from .api.marks import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    forbid_in_graph,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    skip,
)
from .backends import aot as _aot  # noqa: F401  (registers itself, as the next two)
from .backends import eager as _eager  # noqa: F401
from .backends import generated as _generated  # noqa: F401
from .backends import others as _others  # noqa: F401
from .backends.registry import list_backends, lookup_backend, register_backend
from .reports.run import report

__version__ = "0.1.0"


def load_ipython_extension(ipython: Any) -> None:
    """%load_ext dynamo_nb: hand over to the Jupyter side."""
    import kernel_ext

    kernel_ext.load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """%unload_ext dynamo_nb."""
    import kernel_ext

    kernel_ext.unload_ipython_extension(ipython)


__all__ = [
    "OptimizedModule", "allow_in_graph", "assume_constant_result", "cache_entries", "compile", "compile_in_place", "config", "debug", "decorators", "disable",
    "disallow_in_graph", "exc", "explain", "export", "forbid_in_graph", "graph_break", "is_compiling", "is_dynamo_compiling", "list_backends",
    "load_ipython_extension", "lookup_backend", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic",
    "optimize", "optimize_assert", "register_backend", "report", "reset", "reset_code_caches", "run", "set_logs", "skip", "testing",
    "unload_ipython_extension", "utils",
]
