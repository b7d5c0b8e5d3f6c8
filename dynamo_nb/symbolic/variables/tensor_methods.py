"""Attributes and methods of tensors: which are metadata, which become nodes, which break the graph."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import AutogradInFrame, UnsupportedOperation
from ...core.source import AttrSource
from .base import NOTHING, VariableTracker, const
from .constant import NONE, ConstantVariable, boolean
from .numeric import SymNodeVariable
from .sequences import ListVariable, SizeVariable, TupleVariable
from .tensor import METADATA, METADATA_METHODS, VIEWS, TensorVariable, is_graph_argument

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

Handler = Callable[..., VariableTracker | None]
METHODS: dict[str, Handler] = {}
ATTRIBUTES: dict[str, Callable[[Tx, TensorVariable], VariableTracker | None]] = {}


def method(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        METHODS.update(dict.fromkeys(names, handler))
        return handler

    return register


def attribute(*names: str) -> Callable[[Any], Any]:
    def register(handler: Any) -> Any:
        ATTRIBUTES.update(dict.fromkeys(names, handler))
        return handler

    return register


# -- attributes ---------------------------------------------------------------------------------
def getattr_(tx: Tx, x: TensorVariable, name: str) -> VariableTracker:
    from .misc import NativeMethodVariable

    if name in METADATA:
        if name == "is_leaf" and x.fake.requires_grad:
            raise StepUnsupported(UnsupportedOperation("tensor.is_leaf where a gradient is required"))
        return tx.wrap(getattr(x.fake, name))
    handler = ATTRIBUTES.get(name)
    if handler is not None:
        found = handler(tx, x)
        if found is not None:
            return found
    if name in VIEWS:
        return tx.recorder.call(tx, "call_function", getattr, (x, ConstantVariable(name)), {})
    python = _python_attribute(tx, x, name)
    if python is not None:
        return python
    found = _type_attribute(x.cls, name)
    if found is None:
        raise tx.raise_(AttributeError, f"'{x.cls.__name__}' object has no attribute '{name}'", name=name)
    if isinstance(found, (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType)):
        return NativeMethodVariable(x, name, found)
    if isinstance(found, property) and found.fget is not None and x.cls is not torch.Tensor:
        return tx.wrap(found.fget).call_function(tx, [x], {})
    if not hasattr(type(found), "__get__"):
        return tx.wrap(found)
    raise StepUnsupported(UnsupportedOperation(f"tensor.{name}"))


def _type_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _python_attribute(tx: Tx, x: TensorVariable, name: str) -> VariableTracker | None:
    """An attribute a program put on the tensor object."""
    if x.real is None or x.source is None:
        return None
    stored = x.real.__dict__
    if name in stored:
        return tx.lazy(stored[name], AttrSource(x.source, name))
    if _type_attribute(x.cls, name) is None:
        tx.recorder.assume(tx, x.source, "NO_HASATTR", name)
    return None


@attribute("__class__")
def _class(tx: Tx, x: TensorVariable) -> VariableTracker:
    return x.class_variable(tx)


@attribute("shape")
def _shape(tx: Tx, x: TensorVariable) -> VariableTracker:
    return SizeVariable([tx.recorder.wrap_size(tx, s) for s in x.fake.size()])


@attribute("grad")
def _grad(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    if x.source is None or x.real is None:
        if not x.fake.requires_grad:
            return NONE
        raise StepUnsupported(AutogradInFrame("tensor.grad of an intermediate"))
    return tx.lazy(x.real.grad, AttrSource(x.source, "grad"))


@attribute("grad_fn")
def _grad_fn(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    if not x.fake.requires_grad:
        return NONE
    raise StepUnsupported(AutogradInFrame("tensor.grad_fn"))


@attribute("data")
def _data(tx: Tx, x: TensorVariable) -> VariableTracker:
    return tx.recorder.call(tx, "call_function", getattr, (x, ConstantVariable("data")), {})


@attribute("nbytes")
def _nbytes(tx: Tx, x: TensorVariable) -> VariableTracker:
    from .numeric import wrap_number

    return wrap_number(x.fake.numel() * x.fake.element_size())


@attribute("_backward_hooks")
def _backward_hooks(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    if x.real is not None and x.real._backward_hooks is not None:
        raise StepUnsupported(AutogradInFrame("tensor._backward_hooks"))
    return NONE


def setattr_(tx: Tx, x: TensorVariable, name: str, value: VariableTracker | None) -> None:
    found = _type_attribute(x.cls, name)
    if found is not None and hasattr(type(found), "__set__") and name != "grad":
        raise StepUnsupported(UnsupportedOperation(f"assignment to tensor.{name}"))
    if name == "grad" and x.source is None:
        raise StepUnsupported(UnsupportedOperation("assignment to tensor.grad of an intermediate"))
    tx.recorder.side_effects.store_attr(x, name, value)


# -- methods ------------------------------------------------------------------------------------
def call(tx: Tx, x: TensorVariable, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    handler = METHODS.get(name)
    if handler is not None:
        found = handler(tx, x, *args, **kwargs)
        if found is not None:
            return found
    if name in METADATA_METHODS and not kwargs and not args:
        return tx.wrap(getattr(x.fake, name)())
    if _type_attribute(x.cls, name) is None:
        raise tx.raise_(AttributeError, f"'{x.cls.__name__}' object has no attribute '{name}'", name=name)
    for arg in (*args, *kwargs.values()):
        if not is_graph_argument(arg):
            raise StepUnsupported(UnsupportedOperation(f"tensor.{name}() with a {arg.describe()} operand"))
    return tx.recorder.call(tx, "call_method", name, (x, *args), kwargs)


@method("size")
def _size(tx: Tx, x: TensorVariable, dim: VariableTracker | None = None) -> VariableTracker:
    if dim is None or const(dim) is None:
        return _shape(tx, x)
    index = tx.concrete_int(dim)
    try:
        return tx.recorder.wrap_size(tx, x.fake.size(index))
    except IndexError as err:
        raise tx.raise_(IndexError, str(err)) from None


@method("stride")
def _stride(tx: Tx, x: TensorVariable, dim: VariableTracker | None = None) -> VariableTracker:
    if dim is None or const(dim) is None:
        return TupleVariable([tx.recorder.wrap_size(tx, s) for s in x.fake.stride()])
    return tx.recorder.wrap_size(tx, x.fake.stride(tx.concrete_int(dim)))


@method("numel", "nelement")
def _numel(tx: Tx, x: TensorVariable) -> VariableTracker:
    return tx.recorder.wrap_size(tx, x.fake.numel())


@method("storage_offset")
def _storage_offset(tx: Tx, x: TensorVariable) -> VariableTracker:
    tx.recorder.assume_storage_offset(tx, x.fake)
    return tx.recorder.wrap_size(tx, x.fake.storage_offset())


@method("__len__")
def _len(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    return x.native_len(tx)


@method("__iter__")
def _iter(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    return x.native_iter(tx)


@method("is_contiguous")
def _is_contiguous(tx: Tx, x: TensorVariable, memory_format: VariableTracker | None = None) -> VariableTracker:
    fmt = torch.contiguous_format if memory_format is None else const(memory_format)
    return boolean(bool(x.fake.is_contiguous(memory_format=fmt)))


@method("type")
def _type(tx: Tx, x: TensorVariable, dtype: VariableTracker | None = None, **kwargs: VariableTracker) -> VariableTracker | None:
    if dtype is None:
        return ConstantVariable(torch.empty(0, dtype=x.fake.dtype).type()) if x.fake.device.type == "cpu" else None
    value = const(dtype)
    if value is NOTHING and isinstance(getattr(dtype.realize(), "value", None), type):
        kind = dtype.realize().value  # type: ignore[attr-defined]
        return tx.recorder.call(tx, "call_method", "to", (x, ConstantVariable(kind.dtype)), {}) if hasattr(kind, "dtype") else None
    return None


@method("item", "__int__", "__float__", "__index__", "__bool__", "__complex__")
def _item(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    shapes = tx.recorder.shapes
    if shapes.shape_env.allow_scalar_outputs and x.fake.dtype is not torch.bool and not x.fake.dtype.is_complex:
        return tx.recorder.call(tx, "call_method", "item", (x,), {})
    raise x.scalar("Tensor.item()")


@method("tolist")
def _tolist(tx: Tx, x: TensorVariable) -> VariableTracker | None:
    shapes = tx.recorder.shapes
    if not shapes.shape_env.allow_scalar_outputs or x.fake.dtype is torch.bool or x.fake.dtype.is_complex:
        raise x.scalar("Tensor.tolist()")
    if x.fake.dim() == 0:
        return _item(tx, x)
    rows = x.native_iter(tx)
    assert rows is not None
    return ListVariable([_tolist(tx, row) for row in rows.items])  # type: ignore[attr-defined,arg-type,misc]


@method("data_ptr", "untyped_storage", "storage", "_typed_storage", "share_memory_", "__array__", "__dlpack__", "set_", "swap_tensors", "__reduce_ex__", "__deepcopy__", "__setstate__", "register_post_accumulate_grad_hook", "module_load")
def _opaque(tx: Tx, x: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("a tensor method that needs the real storage or object"))


@method("backward", "register_hook", "retain_grad")
def _backward(tx: Tx, x: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(AutogradInFrame("Tensor.backward() or a gradient hook"))


@method("requires_grad_")
def _requires_grad(tx: Tx, x: TensorVariable, requires_grad: VariableTracker | None = None) -> VariableTracker | None:
    wanted = True if requires_grad is None else const(requires_grad)
    if wanted == x.fake.requires_grad:
        return x
    raise StepUnsupported(AutogradInFrame("Tensor.requires_grad_() that changes the flag"))


@method("numpy")
def _numpy(tx: Tx, x: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    from .numpy_array import from_tensor

    return from_tensor(tx, x, *args, **kwargs)


@method("as_subclass")
def _as_subclass(tx: Tx, x: TensorVariable, cls: VariableTracker) -> VariableTracker | None:
    if getattr(cls.realize(), "value", None) is torch.Tensor and x.cls is torch.Tensor:
        return None
    raise StepUnsupported(UnsupportedOperation("Tensor.as_subclass()"))


@method("new", "new_tensor")
def _new(tx: Tx, x: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker | None:
    if args and isinstance(args[0].realize(), SymNodeVariable):
        return None
    return None


@method("__torch_function__", "__torch_dispatch__")
def _overrides(tx: Tx, x: TensorVariable, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(UnsupportedOperation("an explicit __torch_function__ call"))


@method("__contains__")
def _contains(tx: Tx, x: TensorVariable, item: VariableTracker) -> VariableTracker | None:
    return x.native_contains(tx, item)


@method("__getitem__")
def _getitem(tx: Tx, x: TensorVariable, key: VariableTracker) -> VariableTracker | None:
    return x.native_getitem(tx, key)


@method("__setitem__")
def _setitem(tx: Tx, x: TensorVariable, key: VariableTracker, value: VariableTracker) -> VariableTracker | None:
    x.native_setitem(tx, key, value)
    return NONE
