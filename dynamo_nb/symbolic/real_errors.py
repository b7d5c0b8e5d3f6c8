"""Which exception eager would raise: an operation that failed on fake tensors is run on small real ones.

Only the type of the error is trusted; its text comes from eager itself when it matters.
"""

from __future__ import annotations

from typing import Any

import torch

LIMIT = 1 << 20


class TooLarge(Exception):
    """The operands are too large to be worth a trial."""


def eager_error_type(target: Any, op: str, args: Any, kwargs: dict[str, Any]) -> type[Exception] | None:
    """The type of the exception eager raises on operands of the same metadata; None if it raises none or cannot tell."""
    if op == "call_module":
        return None
    run = target if op == "call_function" else lambda *a, **k: getattr(a[0], target)(*a[1:], **k)
    state = torch.get_rng_state()
    try:
        real_args, real_kwargs = _real(args), _real(kwargs)
    except Exception:
        return None
    try:
        run(*real_args, **real_kwargs)
    except Exception as err:
        return type(err)
    finally:
        torch.set_rng_state(state)
    return None


def _real(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        size = [_number(s) for s in value.size()]
        stride = [_number(s) for s in value.stride()]
        extent = sum((n - 1) * s for n, s in zip(size, stride, strict=True) if n > 0) + 1
        if extent > LIMIT or value.device.type not in ("cpu", "meta"):
            raise TooLarge
        made = torch.zeros(extent, dtype=value.dtype).as_strided(size, stride)
        return made.requires_grad_(value.requires_grad) if value.dtype.is_floating_point else made
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _number(value)
    if isinstance(value, slice):
        return slice(_real(value.start), _real(value.stop), _real(value.step))
    if isinstance(value, (list, tuple)):
        return tuple(_real(v) for v in value) if isinstance(value, tuple) else [_real(v) for v in value]
    if isinstance(value, dict):
        return {k: _real(v) for k, v in value.items()}
    return value


def _number(value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value
