"""What fake tensors can't say of errors: an operation is run on small real tensors.

`eager_error_type`: which exception eager would raise where fake tensors raise one; its text comes from eager itself when it matters.
`eager_says`: does eager refuse what fake tensors accept, as it does for dtypes that an operator has no kernel for, and of which dtypes are
its results? Asked once for operands of the same metadata.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import torch

from .op_facts import tensors

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


# ---- operands that eager refuses ----
SURE = (torch.float32, torch.float64)        # dtypes that every operator of numbers takes
ASKED = frozenset(f"torch{part}" for part in ("", "._tensor", ".functional", ".nn.functional", "._C._nn", "._C._special", "._C._linalg", "._C._fft", "._ops.aten")) | {"_operator"}
SMALL = 1 << 14
CAP = 4
PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...))


class Unasked(Exception):
    """These operands can't be made small and real."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """refusal: why eager raises on any operands of this metadata on the CPU, '' where it doesn't or nobody can tell; dtypes: None if unknown."""

    refusal: str = ""
    dtypes: tuple[torch.dtype, ...] | None = None

    def differs(self, fake: Any) -> str:
        """What is wrong with the result that fake tensors give."""
        if self.refusal:
            return f"eager refuses it: {self.refusal}"
        given = tuple(t.dtype for t in tensors(fake))
        return f"its results are {self.dtypes}, which fake tensors take for {given}" if self.dtypes not in (None, given) else ""


NO_ANSWER = Answer()


def eager_says(op: str, target: Any, args: Any, kwargs: dict[str, Any], by_values: bool) -> Answer:
    """Asked only where fake tensors may be wrong: not of operands in float32 and float64, which every operator of numbers takes.

    by_values: it raises on some values, so that only a missing kernel is a refusal.
    """
    if op == "call_function" and getattr(target, "__module__", "") not in ASKED:      # code of a user's isn't run while tracing
        return NO_ANSWER
    sure = all(t.dtype in SURE for t in tensors((args, kwargs))) and not any(isinstance(a, (bool, torch.SymBool)) for a in args)
    if sure or op not in ("call_function", "call_method"):
        return NO_ANSWER
    try:
        operands = _described((args, kwargs))
    except Unasked:
        return NO_ANSWER
    try:
        return _asked(op, target, operands, by_values, _modes())
    except TypeError:       # a target that isn't hashable
        return NO_ANSWER


def _modes() -> tuple[Any, ...]:
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return torch.are_deterministic_algorithms_enabled(), autocast, torch.get_default_dtype()


@functools.lru_cache(maxsize=4096)
def _asked(op: str, target: Any, operands: Any, by_values: bool, modes: Any) -> Answer:
    run = target if op == "call_function" else lambda *a, **k: getattr(a[0], target)(*a[1:], **k)
    small = not any(d[0] == "t" and _numel(d[2]) > SMALL for d in _leaves(operands))
    errors = []
    for fill in (torch.zeros, torch.ones):      # what depends on values seldom fails on both
        try:
            args, kwargs = _made(operands, functools.partial(fill, device="cpu"), small)
        except Exception:       # not every dtype can be filled
            return NO_ANSWER
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                return Answer(dtypes=tuple(t.dtype for t in tensors(run(*args, **kwargs))))
        except torch._C._LinAlgError:
            return NO_ANSWER
        except Exception as err:
            if isinstance(err, NotImplementedError) and "not implemented for" in str(err):
                return Answer(str(err))
            if by_values or not small:
                return NO_ANSWER
            errors.append(err)
    return Answer(str(errors[0]).split("\n")[0]) if type(errors[0]) is type(errors[1]) else NO_ANSWER


def _described(value: Any) -> Any:
    """The operands' metadata, hashable."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_conj() or value.is_neg() or value.is_quantized:
            raise Unasked
        return ("t", value.dtype, tuple(_known(s) for s in value.size()), tuple(_known(s) for s in value.stride()))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return ("v", type(_known(value)), _known(value))
    if isinstance(value, slice):
        return ("slice", *(_described(v) for v in (value.start, value.stop, value.step)))
    if isinstance(value, (list, tuple)):
        return ("list" if isinstance(value, list) else "tuple", *(_described(v) for v in value))
    if isinstance(value, dict):
        return ("dict", *((k, _described(v)) for k, v in value.items()))
    if isinstance(value, PLAIN):
        return ("v", type(value), value)
    raise Unasked


def _known(value: Any) -> Any:
    known = _number(value)
    if known is None:
        raise Unasked
    return known


def _leaves(described: Any) -> Iterator[Any]:
    kind = described[0]
    if kind in ("t", "v"):
        yield described
    else:
        for part in described[1:]:
            yield from _leaves(part[1] if kind == "dict" else part)


def _made(described: Any, fill: Any, exact: bool) -> Any:
    kind, *rest = described
    if kind == "v":
        return rest[1]
    if kind == "t":
        dtype, size, stride = rest
        if not exact:
            return fill([min(n, CAP) for n in size], dtype=dtype)
        extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if _numel(size) else 0
        return fill(extent, dtype=dtype).as_strided(size, stride) if extent <= LIMIT else fill(size, dtype=dtype)
    if kind == "slice":
        return slice(*(_made(v, fill, exact) for v in rest))
    if kind == "dict":
        return {k: _made(v, fill, exact) for k, v in rest}
    parts = [_made(v, fill, exact) for v in rest]
    return parts if kind == "list" else tuple(parts)


def _numel(size: tuple[int, ...]) -> int:
    return functools.reduce(lambda a, b: a * b, size, 1)
