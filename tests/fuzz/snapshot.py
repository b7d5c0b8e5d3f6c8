"""Deep snapshots of everything a program can see, and their comparison.

In: a dict of roots (result, arguments, state, globals, ...). Out: plain tuples that keep values, types, order, object
identity and shared storage, and a list of differences between two of them. Used by `runner`.
"""

from __future__ import annotations

import enum
import math
import types
from dataclasses import dataclass
from typing import Any

import torch

from .program import MODULE

Snap = Any
SKIPPED = (types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.CodeType)


@dataclass
class Diff:
    """One difference: its kind (result, args, globals, stdout, ...), where it is, and both sides."""

    kind: str
    path: str
    eager: str
    compiled: str

    def __str__(self) -> str:
        return f"[{self.kind}] {self.path}: eager {self.eager} / compiled {self.compiled}"


class Snapshotter:
    """Turns objects into comparable tuples; identity and storage are numbered by first occurrence."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.keep: list[object] = []

    def number(self, obj: object) -> int | None:
        """The object's number if it was met before; None the first time."""
        known = self.seen.get(id(obj))
        if known is None:
            self.seen[id(obj)] = len(self.seen)
            self.keep.append(obj)
        return known

    def take(self, obj: Any, depth: int = 0) -> Snap:
        """Snapshot of one object."""
        if obj is None or obj is Ellipsis or (isinstance(obj, (bool, int, str, bytes)) and not isinstance(obj, enum.Enum)):
            return ("const", type(obj).__name__, obj) if type(obj) in (bool, int, str, bytes) else ("const", type(obj).__name__, repr(obj))
        if isinstance(obj, (float, complex)):
            return ("float", type(obj).__name__, obj)
        if isinstance(obj, (torch.dtype, torch.device, torch.Size, range, slice, enum.Enum)):
            return ("const", type(obj).__name__, repr(obj))
        if isinstance(obj, SKIPPED):
            return ("opaque", type(obj).__name__, getattr(obj, "__name__", ""))
        if depth > 40:
            return ("deep",)
        known = self.number(obj)
        if known is not None:
            return ("ref", known)
        if isinstance(obj, torch.Tensor):
            return self.tensor(obj, depth)
        if isinstance(obj, (list, tuple)):
            extra = self.attributes(obj, depth) if type(obj) not in (list, tuple) and not isinstance(obj, tuple) else ()
            return ("seq", type(obj).__name__, [self.take(v, depth + 1) for v in obj], extra)
        if isinstance(obj, dict):
            return ("map", type(obj).__name__, [(self.take(k, depth + 1), self.take(v, depth + 1)) for k, v in obj.items()])
        if isinstance(obj, (set, frozenset)):
            return ("set", type(obj).__name__, list(obj))
        if isinstance(obj, types.FunctionType):
            return self.function(obj, depth)
        if isinstance(obj, types.MethodType):
            return ("method", obj.__func__.__qualname__, self.take(obj.__self__, depth + 1))
        if isinstance(obj, BaseException):
            return ("exc", type(obj).__name__, [self.take(a, depth + 1) for a in obj.args])
        if isinstance(obj, type):
            return self.klass(obj, depth)
        return ("obj", type(obj).__qualname__, self.attributes(obj, depth))

    def tensor(self, t: torch.Tensor, depth: int) -> Snap:
        """Values, metadata, storage number, gradient."""
        plain = t.detach()
        storage = plain.untyped_storage()
        key = storage._cdata
        if key not in self.storages:
            self.storages[key] = len(self.storages)
            self.keep.append(storage)
        grad = self.take(t.grad, depth + 1) if t.is_leaf and t.requires_grad else None
        meta = (type(t).__name__, str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad, t.is_leaf, str(t.device))
        return ("tensor", meta, self.storages[key], plain.clone(), grad)

    def attributes(self, obj: object, depth: int) -> Snap:
        """`__dict__` in order plus slots."""
        found: list[tuple[str, Snap]] = []
        for name, value in list(getattr(obj, "__dict__", {}).items()):
            if not (isinstance(obj, torch.nn.Module) and name.startswith("_") and ("hook" in name or name == "_is_torch_compile")):
                found.append((name, self.take(value, depth + 1)))
        for cls in type(obj).__mro__:
            for name in cls.__dict__.get("__slots__", ()):
                if isinstance(name, str) and name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                    found.append((name, self.take(getattr(obj, name), depth + 1)))
        return ("attrs", found)

    def function(self, fn: types.FunctionType, depth: int) -> Snap:
        """Name, defaults, cells; library functions by name only."""
        if not fn.__code__.co_filename.startswith("<fuzz"):
            return ("opaque", "function", fn.__qualname__)
        cells = []
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            try:
                cells.append((name, self.take(cell.cell_contents, depth + 1)))
            except ValueError:
                cells.append((name, ("empty",)))
        return ("function", fn.__qualname__, self.take(fn.__defaults__, depth + 1), self.take(fn.__kwdefaults__, depth + 1),
                ("attrs", cells))

    def klass(self, cls: type, depth: int) -> Snap:
        """Data attributes of classes the program made."""
        if cls.__module__ != MODULE:
            return ("opaque", "type", cls.__qualname__)
        data = [(k, self.take(v, depth + 1)) for k, v in cls.__dict__.items() if isinstance(v, (int, float, str, list,
                                                                                                dict)) and not k.startswith("__")]
        return ("class", cls.__qualname__, ("attrs", data))


def short(value: object, limit: int = 160) -> str:
    """One line of text for a side of a difference."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def floats_equal(a: complex, b: complex, rtol: float) -> bool:
    """Equal including the sign of zero; NaN equals NaN."""
    if isinstance(a, complex) or isinstance(b, complex):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return math.copysign(1.0, a) == math.copysign(1.0, b)
    return math.isclose(a, b, rel_tol=rtol, abs_tol=rtol)


def tensors_equal(a: torch.Tensor, b: torch.Tensor, rtol: float) -> bool:
    """Exact for ints and bools; floats to tolerance, with NaN positions and signs of exact zeros."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    if not torch.allclose(a.double(), b.double(), rtol=rtol, atol=rtol, equal_nan=True):
        return False
    zero = (a == 0) & (b == 0)
    return bool((torch.signbit(a) == torch.signbit(b))[zero].all())


def compare(kind: str, path: str, a: Snap, b: Snap, out: list[Diff], rtol: float) -> None:
    """Append the differences between two snapshots, at most ten."""
    if len(out) >= 10:
        return
    if type(a) is tuple and type(b) is tuple and a and b and a[0] == b[0]:
        tag = a[0]
        if tag == "tensor":
            _compare_tensor(kind, path, a, b, out, rtol)
            return
        if tag == "float" and a[1] == b[1]:
            if not floats_equal(a[2], b[2], rtol):
                out.append(Diff(kind, path, short(a[2]), short(b[2])))
            return
        if tag == "attrs":
            _compare_attrs(kind, path, a[1], b[1], out, rtol)
            return
        if tag == "const":
            if a != b:
                out.append(Diff(kind, path, short(a[2]), short(b[2])))
            return
    if type(a) in (tuple, list) and type(a) is type(b):
        if len(a) != len(b):
            out.append(Diff(kind, path + " (length)", short(a), short(b)))
            return
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            compare(kind, f"{path}[{i}]" if type(a) is list else path, x, y, out, rtol)
        return
    if type(a) is not type(b) or a != b:
        out.append(Diff(kind, path, short(a), short(b)))


def _compare_tensor(kind: str, path: str, a: Snap, b: Snap, out: list[Diff], rtol: float) -> None:
    if a[1] != b[1]:
        out.append(Diff(kind, path + " (tensor metadata)", short(a[1]), short(b[1])))
        return
    if a[2] != b[2]:
        out.append(Diff("aliasing", f"{kind}.{path} (storage)", short(a[2]), short(b[2])))
    if not tensors_equal(a[3], b[3], rtol):
        out.append(Diff(kind, path + " (tensor values)", short(a[3].flatten()[:8].tolist()), short(b[3].flatten()[:8].tolist())))
    compare(kind, path + ".grad", a[4], b[4], out, rtol)


def _compare_attrs(kind: str, path: str, a: list[tuple[str, Snap]], b: list[tuple[str, Snap]], out: list[Diff], rtol: float) -> None:
    if [k for k, _ in a] != [k for k, _ in b]:
        out.append(Diff(kind, path + " (names)", short([k for k, _ in a]), short([k for k, _ in b])))
        return
    for (k, x), (_, y) in zip(a, b, strict=True):
        compare(kind, f"{path}.{k}", x, y, out, rtol)
