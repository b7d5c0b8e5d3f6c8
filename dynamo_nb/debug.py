"""Looking into the cache: entries with their guards, an empty check, counts."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from . import native
from .api.compile import cache_entries, original_of
from .core.state import state


def _count(root: Any) -> tuple[int, int, dict[str, int]]:
    kinds: dict[str, int] = {}
    nodes, todo = 0, [root]
    while todo:
        node = todo.pop()
        nodes += 1
        for kind, _ in node.get_leaf_guards():
            kinds[kind] = kinds.get(kind, 0) + 1
        todo.extend(node.get_child_managers())
    for kind, _ in root.get_epilogue_lambda_guards():
        kinds[kind] = kinds.get(kind, 0) + 1
    return sum(kinds.values()), nodes, kinds


def entries(fn: Any) -> list[dict[str, Any]]:
    """One dict per cache entry of fn: guards, nodes, kinds, ok(locals) -> bool, cold(locals) -> µs after a cache flush."""
    space = getattr(original_of(fn), "__globals__", {})
    out = []
    for entry in cache_entries(fn):
        guards, nodes, kinds = _count(entry.guard_manager.root)
        root = entry.guard_manager.root
        out.append({"guards": guards, "nodes": nodes, "kinds": kinds, "ok": _checker(root, space), "cold": _cold(root, space)})
    return out


def _checker(root: Any, space: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    check = root.check
    return lambda values: check(values, space)


def _cold(root: Any, space: dict[str, Any]) -> Callable[[dict[str, Any]], float]:
    import time

    import numpy as np

    def measure(values: dict[str, Any]) -> float:
        np.zeros(1 << 22).sum()
        start = time.perf_counter()
        root.check(values, space)
        return (time.perf_counter() - start) * 1e6

    return measure


def empty_check() -> Callable[[dict[str, Any]], bool]:
    """A check without guards: what a call of the native check costs."""
    root = native.RootGuardManager()
    space = vars(builtins)
    return lambda values: root.check(values, space)


def graph_breaks() -> int:
    """Graph breaks since reset()."""
    return state.breaks


def all_guards() -> tuple[int, int]:
    """(guards, entries) over all code objects."""
    guards = count = 0
    for code in native.codes_with_state():
        for entry in native.get_entries(code):
            guards += _count(entry.guard_manager.root)[0]
            count += 1
    return guards, count
