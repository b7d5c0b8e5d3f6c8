"""Marks on functions and tensors: disable, allow_in_graph, graph_break, mark_dynamic and their kin."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from .. import native
from ..core.exc import StepUnsupported
from ..core.reasons import RequestedBreak
from ..symbolic import builtins as handlers
from ..symbolic.builtins.torch_state import register_fixed
from ..symbolic.variables.base import NOTHING, VariableTracker, const


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Never compile fn; with recursive (the default) nor what it calls. Also a decorator with arguments."""
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    inner = fn._torchdynamo_orig_callable if isinstance(fn, native.CompiledFunction) else fn
    if not callable(inner):
        raise TypeError(f"disable() takes a callable, not {type(fn).__name__}")

    @functools.wraps(inner)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return native.call_disabled(inner, *args, **kwargs)

    if not recursive and isinstance(inner, types.FunctionType):
        native.set_action(inner.__code__, native.SKIP)

        @functools.wraps(inner)
        def plain(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

    plain._torchdynamo_disable = True  # type: ignore[attr-defined]
    plain._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    plain._torchdynamo_orig_callable = inner  # type: ignore[attr-defined]
    return plain


def graph_break(msg: str = "") -> None:
    """Break the graph here; nothing when run eagerly."""


@handlers.handles(graph_break)
def _graph_break(tx: Any, msg: VariableTracker | None = None) -> VariableTracker:
    text = const(msg) if msg is not None else ""
    raise StepUnsupported(RequestedBreak("call of graph_break()" + (f": {text}" if text and text is not NOTHING else "")))


def allow_in_graph(fn: Any) -> Any:
    """Put calls of fn into the graph as one opaque node. Also takes a list or tuple of functions."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    if not callable(fn):
        raise TypeError(f"allow_in_graph() takes a callable, not {type(fn).__name__}")
    if isinstance(fn, types.FunctionType):
        fn._dynamo_nb_in_graph = True  # type: ignore[attr-defined]
    else:
        _as_node(fn)
    return fn


def _as_node(fn: Any) -> None:
    @handlers.handles(fn)
    def node(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        return tx.recorder.call(tx, "call_function", fn, tuple(args), kwargs)


def disallow_in_graph(fn: Any) -> Any:
    """Calls of fn break the graph."""
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(f) for f in fn]

    @handlers.handles(fn)
    def refused(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        raise StepUnsupported(RequestedBreak(f"call of {getattr(fn, '__name__', fn)}, which disallow_in_graph() forbids"))

    return fn


forbid_in_graph = disallow_in_graph


def skip(fn: Any = None) -> Any:
    """Do not compile the frames of fn; what it calls may be compiled."""
    return disable(fn, recursive=False)


def assume_constant_result(fn: Any) -> Any:
    """The result of fn is the same at every call: it is computed while tracing and not guarded."""

    @handlers.handles(fn)
    def constant(tx: Any, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
        plain, named = [const(a) for a in args], {k: const(v) for k, v in kwargs.items()}
        if NOTHING in plain or NOTHING in named.values():
            plain = [getattr(a.realize(), "value", NOTHING) if p is NOTHING else p for a, p in zip(args, plain, strict=True)]
            if NOTHING in plain or NOTHING in named.values():
                return None
        return tx.fold(fn, plain, named)

    return fn


# -- shapes -------------------------------------------------------------------------------------------
def _indices(index: Any) -> list[int]:
    return list(index) if isinstance(index, (list, tuple)) else [index]


def _mark(t: torch.Tensor, attribute: str, index: Any) -> None:
    chosen: set[int] = getattr(t, attribute, set())
    for i in _indices(index):
        if not -t.dim() <= i < t.dim():
            raise IndexError(f"dimension {i} is out of range for a tensor of {t.dim()} dimensions")
        chosen.add(i % t.dim())
    setattr(t, attribute, chosen)


def mark_dynamic(
    t: torch.Tensor, index: Any, *, min: int | None = None, max: int | None = None, hint_override: int | None = None, specialize_on: Any = None
) -> None:
    """Make a dimension symbolic from the first compile; specialising it becomes an error. min, max: its range."""
    _mark(t, "_dynamo_dynamic_indices", index)
    if min is not None or max is not None:
        ranges: set[Any] = getattr(t, "_dynamo_dynamic_range", set())
        ranges |= {(i % t.dim(), min, max) for i in _indices(index)}
        t._dynamo_dynamic_range = ranges  # type: ignore[attr-defined]


def maybe_mark_dynamic(t: torch.Tensor, index: Any) -> None:
    """Make a dimension symbolic unless the code specialises it."""
    _mark(t, "_dynamo_weak_dynamic_indices", index)


def mark_static(t: Any, index: Any = None) -> None:
    """Keep a dimension (by default all) static."""
    if isinstance(t, torch.Tensor):
        _mark(t, "_dynamo_static_indices", list(range(t.dim())) if index is None else index)


def mark_unbacked(t: torch.Tensor, index: Any, **_: Any) -> None:
    """Treat a dimension as unknown while tracing: no guard may depend on it."""
    _mark(t, "_dynamo_unbacked_indices", index)


def mark_static_address(t: torch.Tensor, guard: bool = True) -> None:
    """Promise that the tensor's memory does not move."""
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"  # type: ignore[attr-defined]


def is_compiling() -> bool:
    """False when run eagerly; True in code that is being compiled."""
    return False


is_dynamo_compiling = is_compiling
register_fixed(is_compiling, True)
