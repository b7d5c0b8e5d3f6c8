"""Counters and timings of the process."""

from __future__ import annotations

from typing import Any

from .core.settings import settings
from .core.state import state

counters = state.counters


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """Seconds spent in each stage of all compiles since reset(): a table, or with repr='csv' (names, lists)."""
    if repr == "csv":
        return list(state.times), [list(v) for v in state.times.values()]
    lines = ["TorchDynamo compilation metrics:", "Function, Runtimes (s)"]
    return "\n".join([*lines, *(f"{name}, {', '.join(f'{s:.4f}' for s in spent)}" for name, spent in state.times.items())])


def get_optimize_ddp_mode() -> str:
    """The chosen way of splitting graphs under DDP."""
    mode = settings.optimize_ddp
    if isinstance(mode, bool):
        return "ddp_optimizer" if mode else "no_optimization"
    return str(mode)


def same(a: Any, b: Any, tol: float = 1e-4, equal_nan: bool = True) -> bool:
    """Equal structure and values, floats within tol."""
    import torch

    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and bool(torch.allclose(a.to(b.dtype), b, atol=tol, rtol=tol, equal_nan=equal_nan))
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y, tol, equal_nan) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k], tol, equal_nan) for k in a)
    return bool(a == b)
