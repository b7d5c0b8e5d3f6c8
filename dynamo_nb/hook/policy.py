"""Frame policy (chapter 12.2, 12.11, 12.25): is there anything to compile, and may another entry be made?"""

from __future__ import annotations

import enum
import types
from typing import Any

import numpy as np
import torch

from ..core import trace_rules
from ..core.settings import settings
from ..native import DEFAULT, RUN_ONLY, SKIP, SKIP_RECURSIVE, code_data, get_entries

PLAIN = (type(None), bool, int, float, complex, str, bytes)


class FrameAction(enum.IntEnum):
    """What the hook does with the frames of a code object."""

    DEFAULT = DEFAULT
    SKIP = SKIP
    RUN_ONLY = RUN_ONLY
    SKIP_RECURSIVE = SKIP_RECURSIVE


def is_tensor_like(value: Any, depth: int = 3) -> bool:
    if isinstance(value, (torch.Tensor, torch.nn.Module, np.ndarray, np.generic, torch.optim.Optimizer)):
        return True
    if depth == 0:
        return False
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(is_tensor_like(v, depth - 1) for v in list(value)[:64])
    if isinstance(value, dict):
        return any(is_tensor_like(v, depth - 1) for v in list(value.values())[:64])
    table = getattr(value, "__dict__", None)
    if isinstance(table, dict) and not isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return any(is_tensor_like(v, depth - 1) for v in list(table.values())[:64])
    if isinstance(value, types.MethodType):
        return is_tensor_like(value.__self__, depth - 1)
    return False


def _is_torch_name(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.split(".")[0] in ("torch", "numpy")
    return (getattr(value, "__module__", None) or "").split(".")[0] == "torch" if isinstance(getattr(value, "__module__", None), str) else False


def has_tensor_in_frame(code: types.CodeType, globals_: dict[str, Any], locals_: tuple[Any, ...], closure: tuple[Any, ...] | None) -> bool:
    """Do the arguments, free variables or referenced globals of a frame hold anything of torch?"""
    if any(is_tensor_like(v) for v in locals_):
        return True
    for cell in closure or ():
        try:
            contents = cell.cell_contents
        except ValueError:
            continue
        if is_tensor_like(contents) or _is_torch_name(contents):
            return True
    for name in code.co_names:
        value = globals_.get(name)
        if value is not None and (_is_torch_name(value) or is_tensor_like(value, 1)):
            return True
    return False


def is_plain_frame(code: types.CodeType, globals_: dict[str, Any], locals_: tuple[Any, ...], closure: tuple[Any, ...] | None) -> bool:
    """Does a frame that was compiled by name work on nothing but numbers and text?"""
    if closure or any(name in globals_ for name in code.co_names):
        return False
    return all(_is_plain(v) for v in locals_) and not has_tensor_in_frame(code, globals_, locals_, closure)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_is_plain(v) for v in value)
    if isinstance(value, dict):
        return all(_is_plain(v) for v in value.values())
    return isinstance(value, PLAIN)


def why_skipped(code: types.CodeType, globals_: dict[str, Any]) -> str | None:
    return trace_rules.should_skip_frame(code, globals_.get("__name__"))


def over_limit(code: types.CodeType, region: Any) -> str | None:
    """The name of the limit that forbids another entry; None if there is room."""
    entries = [e for e in get_entries(code) if e.region is region]
    limit = settings.recompile_limit
    if len(entries) >= limit:
        return f"config.recompile_limit ({limit})"
    total = code_data(code).get("compiles", 0)
    if total >= settings.accumulated_recompile_limit:
        return f"config.accumulated_recompile_limit ({settings.accumulated_recompile_limit})"
    return None
