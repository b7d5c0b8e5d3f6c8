"""reset() and the older spelling optimize()."""

from __future__ import annotations

import functools
from typing import Any

from .. import native
from ..backends.registry import DEFAULT_BACKEND
from ..core import events
from ..core.state import state
from ..cpython import assemble
from ..graph.resume import parents
from .compile import compile, make_options, region_for
from .modules import CompiledModuleMixin

OptimizedModule = CompiledModuleMixin


def reset() -> None:
    """Forget every compiled frame, count and warning; the next call of a compiled function compiles anew."""
    with native.compile_lock():
        native.reset_all()
        native.pool_clear()
        state.reset()
        assemble.clear_cache()
        parents.clear()
        events.emit("reset", None)


reset_code_caches = reset


class OptimizeContext:
    """`optimize(backend)`: call it on a function, or enter it to compile the frames called inside."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.regions: list[Any] = []

    def __call__(self, fn: Any = None) -> Any:
        return compile(fn, **self.options)

    def __enter__(self) -> OptimizeContext:
        chosen = {k: v for k, v in self.options.items() if k != "disable"}
        region = region_for(make_options(chosen["backend"], None, None, chosen["fullgraph"], chosen["dynamic"]))
        region.enter()
        self.regions.append(region)
        return self

    def __exit__(self, *exc: Any) -> None:
        self.regions.pop().exit()


def optimize(backend: Any = DEFAULT_BACKEND, *, nopython: bool = False, dynamic: bool | None = None, disable: bool = False, **_: Any) -> OptimizeContext:
    """`optimize(backend)(fn)`, or `with optimize(backend): …`: the form of 2022; nopython is fullgraph."""
    return OptimizeContext({"backend": backend, "fullgraph": nopython, "dynamic": dynamic, "disable": disable})


def optimize_assert(backend: Any, **kwargs: Any) -> OptimizeContext:
    """optimize with fullgraph=True."""
    return optimize(backend, nopython=True, **kwargs)


class RunOnly:
    """`run()`: inside, compiled code runs where its guards hold, nothing new is compiled. Also a decorator."""

    def __call__(self, fn: Any) -> Any:
        @functools.wraps(fn)
        def only(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return only

    def __enter__(self) -> RunOnly:
        state.run_only += 1
        return self

    def __exit__(self, *exc: Any) -> None:
        state.run_only -= 1


def run(fn: Any = None) -> Any:
    """Use what has been compiled, compile nothing new."""
    return RunOnly() if fn is None else RunOnly()(fn)
