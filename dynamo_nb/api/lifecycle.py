"""reset() and the older spelling optimize()."""

from __future__ import annotations

import functools
from typing import Any

from .. import native
from ..core import events
from ..core.state import state
from ..cpython import assemble
from ..graph.resume import parents
from .compile import compile
from .modules import CompiledModuleMixin

OptimizedModule = CompiledModuleMixin


def reset() -> None:
    """Forget every compiled frame, count and warning; the next call of a compiled function compiles anew."""
    with native.compile_lock():
        native.reset_all()
        state.reset()
        assemble.clear_cache()
        parents.clear()
        events.emit("reset", None)


reset_code_caches = reset


def optimize(backend: Any = "aot_eager", *, nopython: bool = False, dynamic: bool | None = None, disable: bool = False, **_: Any) -> Any:
    """`optimize(backend)(fn)`: the form of 2022; nopython is fullgraph."""
    return functools.partial(compile, backend=backend, fullgraph=nopython, dynamic=dynamic, disable=disable)


def optimize_assert(backend: Any, **kwargs: Any) -> Any:
    """optimize with fullgraph=True."""
    return optimize(backend, nopython=True, **kwargs)
