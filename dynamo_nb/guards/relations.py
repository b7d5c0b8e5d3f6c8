"""Guards over several values (who is whom, whose memory meets) and over torch's global state."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._device  # DEFAULT_DEVICE reads it, and torch imports it only on first use

from .. import native
from ..core.source import Source
from .content import Pattern, pattern
from .kinds import Kind, guard_kind


class Relation(Kind):
    """Base of kinds over several values: `others(payload)` are the sources beside the assumption's own."""

    scope = "values"

    def others(self, payload: tuple[Any, ...]) -> tuple[Source, ...]:
        raise NotImplementedError

    def slot_source(self, source: Source) -> Source:
        """The source whose value the native leaf needs for one of the guard's sources."""
        return source

    def native_form(self, kept: Any, slots: tuple[int, ...], sources: tuple[Source, ...]) -> tuple[Any, ...]:
        raise NotImplementedError

    def python_of(self, kept: Any, exprs: list[str]) -> str:
        raise NotImplementedError

    def reason_of(self, kept: Any, values: list[Any], labels: list[str]) -> str | None:
        raise NotImplementedError


@guard_kind("OBJECT_ALIASING")
class ObjectAliasing(Relation):
    """payload (other source, same): the two values are, or are not, one object."""

    def prepare(self, payload: tuple[Any, ...]) -> bool:
        return bool(payload[1])

    def others(self, payload: tuple[Any, ...]) -> tuple[Source, ...]:
        return (payload[0],)

    def native_form(self, kept: bool, slots: tuple[int, ...], sources: tuple[Source, ...]) -> tuple[Any, ...]:
        return ("alias", slots, kept)

    def python_of(self, kept: bool, exprs: list[str]) -> str:
        return f"{exprs[0]} {'is' if kept else 'is not'} {exprs[1]}"

    def reason_of(self, kept: bool, values: list[Any], labels: list[str]) -> str | None:
        if (values[0] is values[1]) == kept:
            return None
        return f"{labels[0]} and {labels[1]} are {'no longer' if kept else 'now'} the same object"


@guard_kind("NO_TENSOR_ALIASING", "NO_ALIASING")
class NoTensorAliasing(Relation):
    """payload (sources): all these values, with the assumption's own, are different objects."""

    def prepare(self, payload: tuple[Any, ...]) -> None:
        return None

    def others(self, payload: tuple[Any, ...]) -> tuple[Source, ...]:
        return tuple(payload[0])

    def native_form(self, kept: Any, slots: tuple[int, ...], sources: tuple[Source, ...]) -> tuple[Any, ...]:
        return ("no_aliasing", slots)

    def python_of(self, kept: Any, exprs: list[str]) -> str:
        return f"all_different({', '.join(exprs)})"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"all_different": lambda *values: len({_identity(v) for v in values}) == len(values)}

    def reason_of(self, kept: Any, values: list[Any], labels: list[str]) -> str | None:
        seen: dict[int, str] = {}
        for value, label in zip(values, labels, strict=True):
            first = seen.setdefault(_identity(value), label)
            if first is not label:
                return f"duplicate tensor found: {first} and {label} are now the same object"
        return None


def _identity(value: Any) -> int:
    return native.tensor_address(value) if isinstance(value, torch.Tensor) else id(value)


@guard_kind("STORAGE_OVERLAP")
class StorageOverlap(Relation):
    """payload (other sources, overlap): whether the tensor's memory meets that of each of the others."""

    def prepare(self, payload: tuple[Any, ...]) -> bool:
        return bool(payload[1])

    def others(self, payload: tuple[Any, ...]) -> tuple[Source, ...]:
        return (payload[0],) if isinstance(payload[0], Source) else tuple(payload[0])

    def native_form(self, kept: bool, slots: tuple[int, ...], sources: tuple[Source, ...]) -> tuple[Any, ...]:
        return ("overlap", slots, kept)

    def python_of(self, kept: bool, exprs: list[str]) -> str:
        return f"all(overlap({exprs[0]}, other) is {kept} for other in ({', '.join(exprs[1:])},))"

    def names(self, kept: bool) -> dict[str, Any]:
        return {"overlap": native.tensors_overlap}

    def reason_of(self, kept: bool, values: list[Any], labels: list[str]) -> str | None:
        for value, label in zip(values[1:], labels[1:], strict=True):
            if native.tensors_overlap(values[0], value) != kept:
                return f"memory of {labels[0]} and {label} {'no longer overlaps' if kept else 'now overlaps'}"
        return None


@guard_kind("NO_STORAGE_OVERLAP")
class NoStorageOverlap(Relation):
    """payload (sources): no two of these tensors, with the assumption's own, share memory."""

    def prepare(self, payload: tuple[Any, ...]) -> None:
        return None

    def others(self, payload: tuple[Any, ...]) -> tuple[Source, ...]:
        return tuple(payload[0])

    def native_form(self, kept: Any, slots: tuple[int, ...], sources: tuple[Source, ...]) -> tuple[Any, ...]:
        return ("no_overlap", slots)

    def python_of(self, kept: Any, exprs: list[str]) -> str:
        return f"no_overlap({', '.join(exprs)})"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"no_overlap": lambda *values: _first_overlap(values) is None}

    def reason_of(self, kept: Any, values: list[Any], labels: list[str]) -> str | None:
        pair = _first_overlap(values)
        return None if pair is None else f"memory of {labels[pair[0]]} and {labels[pair[1]]} now overlaps"


def _first_overlap(values: Any) -> tuple[int, int] | None:
    for j in range(len(values)):
        for i in range(j):
            if native.tensors_overlap(values[i], values[j]):
                return i, j
    return None


class State(Kind):
    """Base of kinds over no value of the frame."""

    scope = "state"


@guard_kind("GLOBAL_STATE", "GRAD_MODE", "TORCH_FUNCTION_STATE", "DETERMINISTIC_ALGORITHMS", "AUTOCAST")
class GlobalState(State):
    """no payload: grad mode, inference mode, autocast, determinism, default dtype, torch-function modes, dispatch keys."""

    def prepare(self, payload: tuple[Any, ...]) -> dict[str, Any]:
        return native.global_state()

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("global_state", None)

    def python(self, kept: Any, expr: str) -> str:
        return "check_global_state()"

    def text(self, kept: Any, expr: str) -> str:
        return f"check_global_state() against {kept}"

    def names(self, kept: Any) -> dict[str, Any]:
        return {"check_global_state": lambda: native.global_state() == kept}

    def reason(self, kept: Any, value: Any, label: str) -> str | None:
        now = native.global_state()
        changed = [f"{key} was {kept[key]}, is {now[key]}" for key in kept if kept[key] != now[key]]
        return f"GLOBAL_STATE changed: {'; '.join(changed)}" if changed else None


def current_default_device() -> Any:
    return torch.utils._device.CURRENT_DEVICE


@guard_kind("DEFAULT_DEVICE")
class DefaultDevice(State):
    """no payload: the device that torch.set_default_device chose, or None."""

    def prepare(self, payload: tuple[Any, ...]) -> Pattern:
        return pattern(current_default_device())

    def native(self, kept: Any) -> tuple[Any, ...]:
        return ("module_value", (vars(torch.utils._device), "CURRENT_DEVICE"), current_default_device())

    def python(self, kept: Pattern, expr: str) -> str:
        return "default_device_matches()"

    def text(self, kept: Pattern, expr: str) -> str:
        return f"torch.utils._device.CURRENT_DEVICE == {kept.text}"

    def names(self, kept: Pattern) -> dict[str, Any]:
        return {"default_device_matches": lambda: kept.check(current_default_device())}

    def reason(self, kept: Pattern, value: Any, label: str) -> str | None:
        now = current_default_device()
        return None if kept.check(now) else f"default device changed: expected {kept.text}, is {now}"
