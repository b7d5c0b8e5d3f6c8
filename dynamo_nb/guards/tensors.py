"""TENSOR_MATCH: everything about a tensor input that a graph was compiled for."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import torch

from .. import native
from .content import Held, describe
from .kinds import Kind, guard_kind

Dims = tuple[int | None, ...] | None

_DTYPE_NAMES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.bool: "Bool",
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def dtype_name(dtype: torch.dtype) -> str:
    """torch's C++ name of a dtype, as its messages have it."""
    return _DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def key_names(keys: int) -> str:
    """A tensor's dispatch keys as `DispatchKeySet(CPU, ...)`, without those that autocast adds to every backend."""
    full = torch._C.DispatchKeySet.from_raw_repr(keys) | torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect)
    names = str(full).removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    return f"DispatchKeySet({', '.join(n for n in names if not n.startswith('Autocast'))})"


@dataclasses.dataclass(frozen=True)
class TensorMeta:
    """What TENSOR_MATCH compares. A None in size or stride is a dynamic dim; size or stride None: not compared."""

    type: type
    keys: int
    dtype: torch.dtype
    scalar_type: int
    device_type: int
    device_index: int | None
    requires_grad: bool
    size: Dims
    stride: Dims

    @classmethod
    def of(cls, tensor: torch.Tensor, dynamic_sizes: Collection[int] = (), dynamic_strides: Collection[int] = ()) -> TensorMeta:
        """The metadata of a real tensor; the listed dims are left open."""
        keys, scalar, device_type, index, requires_grad, size, stride = native.tensor_meta(tensor)
        opened = None if size is None else tuple(None if i in dynamic_sizes else n for i, n in enumerate(size))
        strides = None if stride is None else tuple(None if i in dynamic_strides else n for i, n in enumerate(stride))
        return cls(type(tensor), keys, tensor.dtype, scalar, device_type, None if index < 0 else index, requires_grad, opened, strides)


@dataclasses.dataclass(frozen=True)
class _Kept:
    type: Held
    type_name: str
    meta: TensorMeta  # its `type` is replaced by torch.Tensor


def _shown(dims: Dims) -> str:
    return "None" if dims is None else f"[{', '.join(map(str, dims))}]"


def _mismatch(what: str, expected: Dims, actual: Dims, label: str) -> str | None:
    if expected is None:
        return None
    if actual is None or len(expected) != len(actual):
        return f"tensor '{label}' rank mismatch. expected {len(expected)}, actual {'none' if actual is None else len(actual)}"
    for i, (want, have) in enumerate(zip(expected, actual, strict=True)):
        if want is not None and want != have:
            return f"tensor '{label}' {what} mismatch at index {i}. expected {want}, actual {have}"
    return None


@guard_kind("TENSOR_MATCH")
class TensorMatch(Kind):
    """payload (TensorMeta): class, dispatch keys, dtype, device, requires_grad, sizes and strides."""

    rank = 1

    def prepare(self, payload: tuple[Any, ...]) -> _Kept:
        (meta,) = payload
        if not isinstance(meta, TensorMeta):
            raise TypeError(f"TENSOR_MATCH needs a TensorMeta, got {describe(type(meta))}")
        return _Kept(Held(meta.type), meta.type.__name__, dataclasses.replace(meta, type=torch.Tensor))

    def native_of(self, kept: _Kept, payload: tuple[Any, ...]) -> tuple[Any, ...]:
        m = payload[0]
        index = -1 if m.device_index is None else m.device_index
        return ("tensor", (m.type, m.keys, m.scalar_type, m.device_type, index, m.requires_grad, m.size, m.stride))

    def python(self, kept: _Kept, expr: str) -> str:
        m = kept.meta
        return (
            f"check_tensor({expr}, {kept.type_name}, {key_names(m.keys)}, {m.dtype}, device={m.device_index}, "
            f"requires_grad={m.requires_grad}, size={_shown(m.size)}, stride={_shown(m.stride)})"
        )

    def names(self, kept: _Kept) -> dict[str, Any]:
        def check_tensor(value: Any, kind: Any, keys: Any, dtype: Any, device: Any, requires_grad: bool, size: Any, stride: Any) -> bool:
            if not kept.type.is_(type(value)):
                return False
            index = value.device.index
            same = (keys, dtype, device, requires_grad) == (
                key_names(native.tensor_meta(value)[0]),
                value.dtype,
                index,
                value.requires_grad,
            )
            return same and _fits(size, value.size) and _fits(stride, value.stride)

        return {"check_tensor": check_tensor, "torch": torch, "DispatchKeySet": lambda *names: f"DispatchKeySet({', '.join(names)})"}

    def reason(self, kept: _Kept, value: Any, label: str) -> str | None:
        m = kept.meta
        if not kept.type.is_(type(value)):
            if isinstance(value, torch.Tensor):
                return f"expected type of '{label}' to be {kept.type.text}, found {describe(type(value))}"
            return f"expected type of '{label}' to be a tensor type, {kept.type.text}, but found {describe(type(value))}"
        keys, scalar, _, number, requires_grad, size, stride = native.tensor_meta(value)
        index = None if number < 0 else number
        if keys != m.keys:
            return f"tensor '{label}' dispatch key set mismatch. expected {key_names(m.keys)}, actual {key_names(keys)}"
        if scalar != m.scalar_type:
            return f"tensor '{label}' dtype mismatch. expected {dtype_name(m.dtype)}, actual {dtype_name(value.dtype)}"
        if index != m.device_index:
            return f"tensor '{label}' device index mismatch. expected device index to be {m.device_index}, actual {index}"
        if requires_grad != m.requires_grad:
            return f"tensor '{label}' requires_grad mismatch. expected requires_grad={int(m.requires_grad)}"
        return _mismatch("size", m.size, size, label) or _mismatch("stride", m.stride, stride, label)


def _fits(expected: Any, read: Any) -> bool:
    if expected is None:
        return True
    actual = tuple(read())
    return len(actual) == len(expected) and all(want is None or want == have for want, have in zip(expected, actual, strict=True))
