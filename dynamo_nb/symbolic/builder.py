"""`VariableBuilder`: a Python object from outside becomes a tracker, with the guards that it needs (chapter 12.9, 12.34).

`SourcelessBuilder` does the same for values the tracer computed itself, without guards. Both keep one
tracker per object; an object reached a second way is guarded to be the same one.
"""

from __future__ import annotations

import collections
import enum
import functools
import re
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core import trace_rules
from ..core.reasons import DisabledFunction, SkippedFunction, UnsupportedOperation
from ..core.source import (
    AttrSource,
    DictGetItemSource,
    DictKeySource,
    DictValueSource,
    GetItemSource,
    InstanceDictSource,
    Source,
    WeakRefCallSource,
)
from ..cpython.classes import is_python_class
from .variables.base import VariableTracker
from .variables.builtin import BuiltinVariable, SkipFunctionVariable, TorchInGraphFunctionVariable
from .variables.classes import UserDefinedClassVariable
from .variables.constant import EXACT, ConstantVariable, is_constant_value
from .variables.exceptions import ExceptionVariable
from .variables.functions import PartialVariable, UserFunctionVariable, UserMethodVariable
from .variables.mappings import ConstDictVariable, MappingProxyVariable, SetVariable
from .variables.misc import OpaqueVariable, PythonModuleVariable
from .variables.nn_module import NNModuleVariable, UnspecializedBuiltinNNModuleVariable, UnspecializedNNModuleVariable, is_builtin_module
from .variables.sequences import DequeVariable, ListVariable, NamedTupleVariable, RangeVariable, SizeVariable, SliceVariable, TupleVariable
from .variables.user_defined import UserDefinedObjectVariable

if TYPE_CHECKING:
    Tx = Any

C_FUNCTIONS = (types.BuiltinFunctionType, types.BuiltinMethodType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType)
TORCH_C_PREFIXES = ("torch._C", "torch._VF", "torch.ops")
SINGLE_REFERENCE_TYPES = (torch.Tensor, list, dict, set, collections.deque, types.CellType)


def is_torch_operation(value: Any) -> bool:
    """A C function of torch, an operator of torch.ops, or a Python function that becomes one node."""
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    module = getattr(value, "__module__", None) or ""
    if isinstance(value, C_FUNCTIONS):
        owner = getattr(value, "__self__", None)
        if isinstance(owner, type) and owner.__module__.startswith("torch"):
            return True
        return module.startswith("torch") or type(owner).__name__ == "_VariableFunctionsClass"
    return False


class VariableBuilder:
    def __init__(self, tx: Tx, source: Source | None) -> None:
        self.tx = tx
        self.source = source

    def __call__(self, value: Any) -> VariableTracker:
        recorder = self.tx.recorder
        known = recorder.objects.get(id(value))
        if known is not None and not is_constant_value(value):
            self._same_object(known, value)
            return known
        made = self._wrap(value)
        if made.source is None and self.source is not None:
            made.source = self.source
        made.existing = True
        if not isinstance(made, ConstantVariable):
            self.tx.remember(value, made)
            recorder.outside.append(made)
        return made

    def _same_object(self, known: VariableTracker, value: Any) -> None:
        """Reached through a second source: at the next call both must again give one object."""
        if self.source is None or known.source == self.source:
            return
        self.tx.recorder.merged.add((known.source, self.source))
        if known.source is None:      # met before where no expression names it
            if isinstance(value, (type, types.FunctionType)):
                self._wrap(value)
                known.source = self.source
            return
        if isinstance(value, (types.FunctionType, type, types.ModuleType, *C_FUNCTIONS)):
            self._wrap(value)
            return
        self.guard("OBJECT_ALIASING", known.source, True)

    def guard(self, kind: str, *payload: Any, source: Source | None = None) -> None:
        target = source or self.source
        if target is not None:
            self.tx.recorder.assume(self.tx, target, kind, *payload)

    def item(self, value: Any, source: Source | None) -> VariableTracker:
        return self.tx.lazy(value, source)

    # -- dispatch ---------------------------------------------------------------------------------
    def _wrap(self, value: Any) -> VariableTracker:
        cls = type(value)
        exact = EXACT_BUILDERS.get(cls)
        if exact is not None:
            return exact(self, value)
        for base, build in BASE_BUILDERS:
            if isinstance(value, base):
                found = build(self, value)
                if found is not None:
                    return found
        return self.wrap_object(value)

    # -- constants --------------------------------------------------------------------------------
    def wrap_constant(self, value: Any) -> VariableTracker:
        if self.source is not None:
            if value is None or value is True or value is False or value is Ellipsis or value is NotImplemented:
                self.guard("CONSTANT_MATCH", value)
            else:
                self.guard("EQUALS_MATCH", value)
        return ConstantVariable(value, self.source)

    def wrap_number(self, value: int | float) -> VariableTracker:
        shapes = self.tx.recorder.shapes
        if self.source is not None and shapes.number_is_dynamic(value, self.source):
            from .variables.numeric import SymNodeVariable

            self.guard("TYPE_MATCH", type(value))
            made = SymNodeVariable(shapes.symbolic_number(value, self.source), None, self.source)
            return made
        return self.wrap_constant(value)

    # -- containers -------------------------------------------------------------------------------
    def _sequence(self, value: Any, kind: type) -> list[VariableTracker]:
        self.guard("SEQUENCE_LENGTH", len(value), kind)
        return [self.item(v, GetItemSource(self.source, i) if self.source else None) for i, v in enumerate(value)]

    def wrap_list(self, value: list[Any]) -> VariableTracker:
        made = ListVariable([], self.source)
        self.tx.remember(value, made)
        made.items = self._sequence(value, list)
        return made

    def wrap_tuple(self, value: tuple[Any, ...]) -> VariableTracker:
        return TupleVariable(self._sequence(value, tuple), self.source)

    def wrap_size(self, value: torch.Size) -> VariableTracker:
        return SizeVariable(self._sequence(value, torch.Size), self.source)

    def wrap_deque(self, value: collections.deque[Any]) -> VariableTracker:
        self.guard("TYPE_MATCH", collections.deque)
        if self.source is not None:
            self.guard("EQUALS_MATCH", value.maxlen, source=AttrSource(self.source, "maxlen"))
        return DequeVariable(self._sequence(value, collections.deque), value.maxlen, self.source)

    def wrap_namedtuple(self, value: Any) -> VariableTracker | None:
        cls = type(value)
        if cls.__new__ is tuple.__new__ or not hasattr(cls, "_fields"):
            return None
        self.guard("TYPE_MATCH", cls)
        items = [self.item(v, GetItemSource(self.source, i) if self.source else None) for i, v in enumerate(tuple.__iter__(value))]
        storage = NamedTupleVariable(items, cls, self.source)
        if cls.__dictoffset__ == 0:
            return storage
        return UserDefinedObjectVariable(value, cls, self.source, storage)

    def _dict_items(self, value: dict[Any, Any], made: ConstDictVariable) -> None:
        keys = list(dict.keys(value))
        self.guard("DICT_KEYS", tuple(keys))
        for i, key in enumerate(keys):
            if is_constant_value(key) or (isinstance(key, tuple) and all(is_constant_value(k) for k in key)):
                key_vt: VariableTracker = self.tx.wrap(key)
                source = DictGetItemSource(self.source, key) if self.source else None
            else:
                key_vt = self.item(key, DictKeySource(self.source, i) if self.source else None)
                source = DictValueSource(self.source, i) if self.source else None
            from .variables.hashing import hash_key

            made.items[hash_key(self.tx, key_vt)] = (key_vt, self.item(dict.__getitem__(value, key), source))

    def wrap_dict(self, value: dict[Any, Any]) -> VariableTracker:
        self.guard("TYPE_MATCH", type(value))
        if value is self.tx.recorder.root_globals or "__builtins__" in value:
            return OpaqueVariable(value, self.source, UnsupportedOperation("the globals of a module as a dict"))
        made = ConstDictVariable({}, type(value), self.source)
        self.tx.remember(value, made)
        if isinstance(value, collections.defaultdict):
            made.factory = self.item(value.default_factory, AttrSource(self.source, "default_factory") if self.source else None)
        self._dict_items(value, made)
        return made

    def wrap_set(self, value: Any) -> VariableTracker:
        from .variables.hashing import hash_key

        self.guard("TYPE_MATCH", type(value))
        self.guard("SET_CONTENTS", frozenset(value))
        items = {}
        for member in value:
            vt = self.tx.wrap(member)
            items[hash_key(self.tx, vt)] = vt
        made = SetVariable(items, type(value), self.source, mirror=set(items) if type(value) is set else set(items))
        order = list(value)
        source = self.source

        def guard_order(tx: Any) -> None:
            tx.recorder.assume(tx, source, "CALLBACK", lambda s: list(s) == order, f"list({source}) == {order!r}")

        made.mirror = _Ordered(items) if list(set(items)) != list(items) else set(items)
        made.order_guard = guard_order if source is not None else None
        return made

    def wrap_slice(self, value: slice) -> VariableTracker:
        self.guard("TYPE_MATCH", slice)
        parts = [(n, getattr(value, n)) for n in ("start", "stop", "step")]
        return SliceVariable([self.item(v, AttrSource(self.source, n) if self.source else None) for n, v in parts], self.source)

    def wrap_range(self, value: range) -> VariableTracker:
        self.guard("EQUALS_MATCH", value)
        return RangeVariable(value, self.source)

    def wrap_mapping_proxy(self, value: Any) -> VariableTracker:
        copied = dict(value)
        made = ConstDictVariable({}, dict, None)
        self.guard("TYPE_MATCH", types.MappingProxyType)
        builder = VariableBuilder(self.tx, None)
        builder._dict_items(copied, made)
        if self.source is not None:
            self.guard("CALLBACK", lambda m, want=copied: dict(m) == want, f"dict({self.source}) == {copied!r}")
        return MappingProxyVariable(made, self.source)

    # -- callables --------------------------------------------------------------------------------
    def wrap_function(self, value: types.FunctionType) -> VariableTracker:
        self.guard("FUNCTION_MATCH", value)
        return wrap_python_function(value, self.source)

    def wrap_c_function(self, value: Any) -> VariableTracker:
        if not isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType)):
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, (types.ModuleType, type)) and not is_torch_operation(value):
                return self.wrap_bound_c_method(value)
            self.guard("EQUALS_MATCH" if not _weak(value) else "ID_MATCH", value)
        elif isinstance(value, types.MethodWrapperType):
            return OpaqueVariable(value, self.source)
        else:
            self.guard("EQUALS_MATCH", value)
        return wrap_c_callable(value, self.source)

    def wrap_bound_c_method(self, value: Any) -> VariableTracker:
        """`[].append` stored somewhere: the receiver is reached through __self__."""
        from .variables.misc import NativeMethodVariable

        self.guard("TYPE_MATCH", type(value))
        if self.source is None:
            return OpaqueVariable(value, None)
        self.guard("EQUALS_MATCH", value.__name__, source=AttrSource(self.source, "__name__"))
        receiver = self.item(value.__self__, AttrSource(self.source, "__self__"))
        descriptor = getattr(type(value.__self__), value.__name__, None)
        return NativeMethodVariable(receiver.realize(), value.__name__, descriptor)

    def wrap_method(self, value: types.MethodType) -> VariableTracker:
        self.guard("TYPE_MATCH", types.MethodType)
        fn = self.item(value.__func__, AttrSource(self.source, "__func__") if self.source else None)
        receiver = self.item(value.__self__, AttrSource(self.source, "__self__") if self.source else None)
        return UserMethodVariable(fn.realize(), receiver.realize(), self.source)

    def wrap_partial(self, value: functools.partial[Any]) -> VariableTracker:
        self.guard("TYPE_MATCH", functools.partial)
        base = self.source
        fn = self.item(value.func, AttrSource(base, "func") if base else None)
        args_source = AttrSource(base, "args") if base else None
        if args_source is not None:
            self.guard("SEQUENCE_LENGTH", len(value.args), tuple, source=args_source)
            self.guard("DICT_KEYS", tuple(value.keywords), source=AttrSource(base, "keywords"))
        args = [self.item(v, GetItemSource(args_source, i) if args_source else None) for i, v in enumerate(value.args)]
        named = {k: self.item(v, DictGetItemSource(AttrSource(base, "keywords"), k) if base else None) for k, v in value.keywords.items()}
        return PartialVariable(fn, args, named, self.source)

    def wrap_class(self, value: type) -> VariableTracker:
        if self.source is not None:
            self.guard("ID_MATCH", value)
            if not trace_rules.is_trusted_module(value.__module__):
                self.tx.recorder.class_sources.setdefault(value, self.source)
        return UserDefinedClassVariable(value, self.source)

    def wrap_module(self, value: types.ModuleType) -> VariableTracker:
        self.guard("ID_MATCH", value)
        return PythonModuleVariable(value, self.source)

    def wrap_compiled_function(self, value: Any) -> VariableTracker:
        """A function that is itself compiled is followed as its original."""
        original = value._torchdynamo_orig_callable
        source = AttrSource(self.source, "_torchdynamo_orig_callable") if self.source else None
        self.guard("TYPE_MATCH", type(value))
        return VariableBuilder(self.tx, source)(original)

    # -- tensors ----------------------------------------------------------------------------------
    def wrap_tensor(self, value: torch.Tensor) -> VariableTracker:
        from . import tensor_inputs

        return tensor_inputs.wrap(self, value)

    def wrap_numpy_dtype(self, value: Any) -> VariableTracker:
        from .variables.numpy_array import NumpyDtypeVariable

        self.guard("EQUALS_MATCH", value)
        return NumpyDtypeVariable(value, self.source)

    def wrap_numpy(self, value: Any) -> VariableTracker:
        from .variables import numpy_array

        return numpy_array.wrap_input(self, value)

    # -- objects ----------------------------------------------------------------------------------
    def wrap_nn_module(self, value: torch.nn.Module) -> VariableTracker:
        cls = type(value)
        if not self.tx.recorder.config["inline_inbuilt_nn_modules"]:
            self.guard("ID_MATCH", value)
            return NNModuleVariable(value, cls, self.source)
        self.guard("TYPE_MATCH", cls)
        kind = UnspecializedBuiltinNNModuleVariable if is_builtin_module(cls) else UnspecializedNNModuleVariable
        return kind(value, cls, self.source)

    def wrap_exception(self, value: BaseException) -> VariableTracker:
        self.guard("TYPE_MATCH", type(value))
        args_source = AttrSource(self.source, "args") if self.source else None
        if args_source is not None:
            self.guard("SEQUENCE_LENGTH", len(value.args), tuple, source=args_source)
        args = [self.item(a, GetItemSource(args_source, i) if args_source else None) for i, a in enumerate(value.args)]
        attrs = {n: self.item(v, AttrSource(self.source, n) if self.source else None) for n, v in value.__dict__.items()}
        made = ExceptionVariable(type(value), args, self.source, attrs)
        made.value = value
        for name in ("__cause__", "__context__", "__suppress_context__"):
            made.fields[name] = self.item(getattr(value, name), AttrSource(self.source, name) if self.source else None)
        return made

    def wrap_weakref(self, value: Any) -> VariableTracker:
        from .variables.weak import WeakRefVariable

        self.guard("TYPE_MATCH", type(value))
        return WeakRefVariable(self.item(value(), WeakRefCallSource(self.source) if self.source else None), self.source)

    def wrap_object(self, value: Any) -> VariableTracker:
        cls = type(value)
        if is_python_class(cls):
            self.guard("TYPE_MATCH", cls)
            storage = self._storage(value)
            if storage is NotImplemented:
                return OpaqueVariable(value, self.source, UnsupportedOperation(f"an instance of {cls.__name__}, whose base is implemented in C"))
            made = UserDefinedObjectVariable(value, cls, self.source, storage)
            if storage is not None:
                storage.existing, storage.owner = True, made
            return made
        if callable(value) and not isinstance(value, type):
            if cls.__module__.split(".")[0] == "numpy":
                self.guard("CALLBACK", lambda v: v is value, f"{self.source} is {getattr(value, '__name__', cls.__name__)}")      # ufuncs can't be held weakly
            else:
                self.guard("TYPE_MATCH", cls)
            wrapped = getattr(value, "__wrapped__", None)
            if cls is functools._lru_cache_wrapper and isinstance(wrapped, types.FunctionType):
                from .variables.weak import CachedFunctionVariable

                return CachedFunctionVariable(value, self.source, VariableBuilder(self.tx, AttrSource(self.source, "__wrapped__") if self.source else None)(wrapped))
            return SkipFunctionVariable(value, self.source, SkippedFunction(f"call of {getattr(value, '__name__', None) or cls.__name__}"))
        self.guard("TYPE_MATCH", cls)
        return OpaqueVariable(value, self.source)

    def _storage(self, value: Any) -> Any:
        """The inherited C state of an instance of a Python class: None, a container tracker, NotImplemented."""
        for base, build in STORAGE_BUILDERS:
            if isinstance(value, base):
                return build(self, value)
        for owner in type(value).__mro__:
            if not is_python_class(owner):
                if owner is object or owner.__module__ in ("abc", "typing", "_abc") or owner.__basicsize__ == object.__basicsize__:
                    return None
                return NotImplemented
        return None

    def _list_storage(self, value: list[Any]) -> VariableTracker:
        self.guard("SEQUENCE_LENGTH", list.__len__(value), type(value))
        return ListVariable([self.item(v, GetItemSource(self.source, i) if self.source else None) for i, v in enumerate(list.__iter__(value))])

    def _tuple_storage(self, value: tuple[Any, ...]) -> VariableTracker:
        self.guard("SEQUENCE_LENGTH", tuple.__len__(value), type(value))
        return NamedTupleVariable([self.item(v, GetItemSource(self.source, i) if self.source else None) for i, v in enumerate(tuple.__iter__(value))], type(value))

    def _dict_storage(self, value: dict[Any, Any]) -> VariableTracker:
        kind = next(k for k in (collections.OrderedDict, collections.defaultdict, dict) if isinstance(value, k))
        made = ConstDictVariable({}, kind)
        if isinstance(value, collections.defaultdict):
            made.factory = self.item(value.default_factory, AttrSource(self.source, "default_factory") if self.source else None)
        self._dict_items(value, made)
        return made

    def _set_storage(self, value: Any) -> VariableTracker:
        built = VariableBuilder.wrap_set(VariableBuilder(self.tx, None), (set if isinstance(value, set) else frozenset)(value))
        self.guard("SET_CONTENTS", frozenset(value))
        return built

    def _deque_storage(self, value: Any) -> VariableTracker:
        self.guard("SEQUENCE_LENGTH", len(value), type(value))
        return DequeVariable([self.item(v, GetItemSource(self.source, i) if self.source else None) for i, v in enumerate(collections.deque.__iter__(value))], value.maxlen)


class _Ordered(set):  # type: ignore[type-arg]
    """A set that iterates in the order its members had in the original."""

    def __init__(self, members: Any) -> None:
        super().__init__(members)
        self.order = list(members)

    def __iter__(self) -> Any:
        return iter([m for m in self.order if m in self] + [m for m in set.__iter__(self) if m not in self.order])


def _weak(value: Any) -> bool:
    try:
        weakref.ref(value)
    except TypeError:
        return False
    return True


def wrap_python_function(value: types.FunctionType, source: Source | None) -> VariableTracker:
    from . import builtins as table

    original = trace_rules.behind_torch_dynamo(value)
    if original is not value:
        return wrap_python_function(original, None)
    rule = trace_rules.classify(value)
    if rule is trace_rules.Rule.IN_GRAPH:
        return TorchInGraphFunctionVariable(value, source)
    if rule is trace_rules.Rule.DISABLED:
        message = value.__dict__.get("_torchdynamo_disable_msg")
        return SkipFunctionVariable(value, source, DisabledFunction(f"call of the disabled function {value.__qualname__}" + (f" ({message})" if message else "")))
    if rule is trace_rules.Rule.SKIP and table.handler_of(value) is None:
        return SkipFunctionVariable(value, source, SkippedFunction(f"call of {value.__module__}.{value.__qualname__}, which is not traced"))
    return UserFunctionVariable(value, source)


def wrap_c_callable(value: Any, source: Source | None) -> VariableTracker:
    if is_torch_operation(value):
        return TorchInGraphFunctionVariable(value, source)
    return BuiltinVariable(value, source)


B = VariableBuilder
EXACT_BUILDERS: dict[type, Callable[[VariableBuilder, Any], VariableTracker]] = {
    **dict.fromkeys(EXACT, B.wrap_constant), int: B.wrap_number, float: B.wrap_number,
    list: B.wrap_list, tuple: B.wrap_tuple, torch.Size: B.wrap_size, dict: B.wrap_dict, collections.OrderedDict: B.wrap_dict,
    collections.defaultdict: B.wrap_dict, set: B.wrap_set, frozenset: B.wrap_set, collections.deque: B.wrap_deque,
    slice: B.wrap_slice, range: B.wrap_range, types.MappingProxyType: B.wrap_mapping_proxy,
    types.FunctionType: B.wrap_function, types.MethodType: B.wrap_method, functools.partial: B.wrap_partial,
    weakref.ReferenceType: B.wrap_weakref, **dict.fromkeys(C_FUNCTIONS, B.wrap_c_function),
}
BASE_BUILDERS: list[tuple[Any, Callable[[VariableBuilder, Any], VariableTracker | None]]] = [
    (re.Pattern, B.wrap_constant), (re.Match, B.wrap_constant), (torch.Tensor, B.wrap_tensor), (torch.nn.Module, B.wrap_nn_module), (enum.Enum, B.wrap_constant), (types.ModuleType, B.wrap_module),
    (type, B.wrap_class), (BaseException, B.wrap_exception), ((np.ndarray, np.generic), B.wrap_numpy), (np.dtype, B.wrap_numpy_dtype), (tuple, B.wrap_namedtuple),
    ((torch._ops.OpOverload, torch._ops.OpOverloadPacket), B.wrap_c_function),
]
STORAGE_BUILDERS: list[tuple[type | tuple[type, ...], Callable[[VariableBuilder, Any], Any]]] = [
    (dict, B._dict_storage), (list, B._list_storage), (tuple, B._tuple_storage), ((set, frozenset), B._set_storage), (collections.deque, B._deque_storage),
    ((int, float, str, bytes, complex), lambda self, value: NotImplemented),
]


def register_exact(cls: type, build: Callable[[VariableBuilder, Any], VariableTracker]) -> None:
    """Add a type known by its exact class; used for types of the native part, which this layer does not import by name."""
    EXACT_BUILDERS[cls] = build


class SourcelessBuilder(VariableBuilder):
    """For values without a source: constants and containers of them, functions, classes, modules."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx, None)

    def __call__(self, value: Any) -> VariableTracker:
        if is_constant_value(value):
            return ConstantVariable(value)
        if isinstance(value, VariableTracker):
            return value
        known = self.tx.recorder.objects.get(id(value))
        if known is not None:
            return known
        if type(value) in (list, tuple, dict, set, frozenset, torch.Size, range, slice):
            made = self._wrap(value)
            made.existing = False
            self.tx.recorder.objects.pop(id(value), None)
            return made
        made = self._wrap(value)
        self.tx.remember(value, made)
        return made


__all__ = ["InstanceDictSource", "SourcelessBuilder", "VariableBuilder"]
