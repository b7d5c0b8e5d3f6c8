"""How each `Source` is read: its native accessor, and the same in Python.

One table entry per source class. `native` gives the arguments of `GuardManager.child`; `read`
fetches the value from the parent's value in Python (for reasons, strict mode, trace-time values).
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..core import source as s

PROPERTIES = {"size": 0, "stride": 1, "storage_offset": 2}
Native = tuple[str, Any, str]  # fetch, key, text shown as accessed_by


class Missing(LookupError):
    """The source can't be read: the value it names is not there."""


@dataclasses.dataclass
class Scope:
    """The values of one call. `cells`: closure cells by free variable name (their contents may also stand in `locals`)."""

    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    builtins: Mapping[str, Any]
    cells: Mapping[str, types.CellType] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_flat(
        cls,
        arg_names: tuple[str, ...],
        free_names: tuple[str, ...],
        values: tuple[Any, ...],
        globals: Mapping[str, Any],
        builtins: Any,
        closure: tuple[types.CellType, ...] | None,
    ) -> Scope:
        """From a unit's flat locals and closure."""
        cells = dict(zip(free_names, closure or (), strict=False))
        space = builtins if isinstance(builtins, Mapping) else vars(builtins)
        return cls(dict(zip(arg_names, values, strict=False)), globals, space, cells)


@dataclasses.dataclass(frozen=True)
class Names:
    """Argument names in the order of the flat locals, and free variable names in closure order."""

    args: tuple[str, ...]
    free: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Accessor:
    native: Callable[[Any, Names], Native]
    read: Callable[[Any, Any, Scope], Any]


_table: dict[type[s.Source], Accessor] = {}


def _register(kind: type[s.Source], native: Callable[[Any, Names], Native], read: Callable[[Any, Any, Scope], Any]) -> None:
    _table[kind] = Accessor(native, read)


def accessor(source: s.Source) -> Accessor:
    try:
        return _table[type(source)]
    except KeyError:
        raise TypeError(f"no accessor for {type(source).__name__} ({source.name}): register one in guards/accessors.py") from None


def resolve(source: s.Source, scope: Scope) -> Any:
    """The value a source names in this scope; Missing (or what user code raised) when it can't be read."""
    source = source.plain
    parent = source.parent
    base = None if parent is None else resolve(parent, scope)
    return accessor(source).read(source, base, scope)


def _local_native(source: Any, names: Names) -> Native:
    name = source.local_name
    if isinstance(source, s.LocalCellSource):
        return "free_cell", (name, names.free.index(name)), f"ClosureCellGuardAccessor({name!r})"
    if name in names.args:
        index = names.args.index(name)
        return "local", (name, index), f"LocalGuardAccessor(key={name!r}, index={index})"
    if name in names.free:
        return "free", (name, names.free.index(name)), f"FreeVariableGuardAccessor({name!r})"
    raise ValueError(f"{source.name}: {name!r} is neither an argument nor a free variable of the frame")


def _local_read(source: Any, base: Any, scope: Scope) -> Any:
    name = source.local_name
    if isinstance(source, s.LocalCellSource):
        if name in scope.cells:
            return scope.cells[name]
        return types.CellType(scope.locals[name])
    if name in scope.locals:
        return scope.locals[name]
    if name in scope.cells:
        try:
            return scope.cells[name].cell_contents
        except ValueError:
            raise Missing(f"free variable {name!r} is empty") from None
    raise Missing(f"no local {name!r}")


def _global_read(source: Any, base: Any, scope: Scope) -> Any:
    if source.global_name not in scope.globals:
        raise Missing(f"no global {source.global_name!r}")
    return scope.globals[source.global_name]


def _builtin_read(source: Any, base: Any, scope: Scope) -> Any:
    if source.builtin_name in scope.globals:
        raise Missing(f"builtin {source.builtin_name!r} is shadowed by a global")
    return scope.builtins[source.builtin_name]


def _dict_of(value: Any) -> Any:
    kind = type(value)
    for owner in kind.__mro__:
        descriptor = owner.__dict__.get("__dict__")
        if isinstance(descriptor, types.GetSetDescriptorType):
            return descriptor.__get__(value, kind)
    raise Missing(f"a {kind.__name__} has no instance __dict__")


def _need(value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise Missing(f"a {type(value).__name__} is no {kinds.__name__ if isinstance(kinds, type) else 'sequence'}")
    return value


def _item_read(source: Any, base: Any, scope: Scope) -> Any:
    containers: tuple[Any, ...] = (tuple, list, collections.deque)
    for kind in containers:
        if isinstance(base, kind):
            return kind.__getitem__(base, source.index)
    raise Missing(f"a {type(base).__name__} has no items by position")


def _nth(iterable: Any, index: int) -> Any:
    for item in itertools.islice(iterable, index, None):
        return item
    raise Missing(f"no item at position {index}")


def _ordered(base: Any) -> Any:
    kind: Any = collections.OrderedDict if isinstance(base, collections.OrderedDict) else dict
    return kind.keys(_need(base, dict))


_ABSENT = object()


def _dict_read(base: Any, key: Any) -> Any:
    """The value under a key, past any overridden `__getitem__` and `__missing__`."""
    value = base.get(key, _ABSENT) if isinstance(base, types.MappingProxyType) else dict.get(_need(base, dict), key, _ABSENT)
    if value is _ABSENT:
        raise Missing(f"no key {key!r}")
    return value


def _property_read(source: Any, base: Any, scope: Scope) -> Any:
    if source.prop == "storage_offset":
        return base.storage_offset()
    return getattr(base, source.prop)()[source.index]


def _weakref_read(source: Any, base: Any, scope: Scope) -> Any:
    return _need(base, weakref.ref)()


def numpy_to_tensor(value: Any) -> torch.Tensor:
    """A tensor over the array's memory; a NumPy scalar becomes a tensor without dimensions."""
    return torch.as_tensor(value)


_register(s.LocalSource, _local_native, _local_read)
_register(s.LocalCellSource, _local_native, _local_read)
_register(s.GlobalSource, lambda x, n: ("global", x.global_name, f"GlobalGuardAccessor({x.global_name!r})"), _global_read)
_register(s.GlobalsSource, lambda x, n: ("globals", None, "GlobalsGuardAccessor"), lambda x, base, scope: scope.globals)
_register(s.BuiltinSource, lambda x, n: ("builtin", x.builtin_name, f"BuiltinGuardAccessor({x.builtin_name!r})"), _builtin_read)
_register(
    s.ModuleSource,
    lambda x, n: ("module", x.module_name, f"ModuleGuardAccessor({x.module_name!r})"),
    lambda x, base, scope: sys.modules[x.module_name],
)
_register(
    s.AttrSource, lambda x, n: ("attr", x.member, f"GetAttrGuardAccessor({x.member})"), lambda x, base, scope: getattr(base, x.member)
)
_register(s.InstanceDictSource, lambda x, n: ("instance_dict", None, "GetInstanceDictGuardAccessor"), lambda x, base, scope: _dict_of(base))
_register(s.TypeSource, lambda x, n: ("type", None, "TypeGuardAccessor"), lambda x, base, scope: type(base))
_register(
    s.TypeDictSource,
    lambda x, n: ("type_dict", None, "TypeDictGuardAccessor"),
    lambda x, base, scope: type.__dict__["__dict__"].__get__(_need(base, type)),
)
_register(
    s.TypeMROSource,
    lambda x, n: ("mro", x.index, f"TypeMROGuardAccessor({x.index})"),
    lambda x, base, scope: type.__dict__["__mro__"].__get__(_need(base, type))[x.index],
)
_register(s.GetItemSource, lambda x, n: ("item", x.index, f"GetItemGuardAccessor({x.index})"), _item_read)
_register(
    s.DictGetItemSource,
    lambda x, n: ("dict_item", x.key, f"DictGetItemGuardAccessor({x.key!r})"),
    lambda x, base, scope: _dict_read(base, x.key),
)
_register(
    s.DictKeySource,
    lambda x, n: ("dict_key", x.index, f"DictKeyGuardAccessor({x.index})"),
    lambda x, base, scope: _nth(_ordered(base), x.index),
)
_register(
    s.DictValueSource,
    lambda x, n: ("dict_value", x.index, f"DictValueGuardAccessor({x.index})"),
    lambda x, base, scope: _dict_read(base, _nth(_ordered(base), x.index)),
)
_register(
    s.CellContentsSource,
    lambda x, n: ("cell", None, "CellContentsGuardAccessor"),
    lambda x, base, scope: _need(base, types.CellType).cell_contents,
)
_register(s.WeakRefCallSource, lambda x, n: ("weakref", None, "WeakRefCallGuardAccessor"), _weakref_read)
_register(
    s.TensorPropertySource,
    lambda x, n: ("tensor_prop", (PROPERTIES[x.prop], x.index), f"TensorPropertyGuardAccessor({x.prop}, {x.index})"),
    _property_read,
)
_register(
    s.NumpyTensorSource,
    lambda x, n: ("call", numpy_to_tensor, "NumpyTensorGuardAccessor"),
    lambda x, base, scope: numpy_to_tensor(base),
)
