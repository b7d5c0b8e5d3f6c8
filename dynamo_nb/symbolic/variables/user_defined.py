"""`UserDefinedObjectVariable`: an instance of a class written in Python.

Attributes live in the side-effects table over the real object's (or nothing, for a new one). An
instance of a subclass of list, dict, set, tuple or deque carries the inherited state in `storage`.
"""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ...core.source import AttrSource, InstanceDictSource
from .base import VariableTracker
from .constant import NONE
from .mappings import ConstDictVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

MISSING: Any = object()


class UserDefinedObjectVariable(VariableTracker):
    mutable = True

    def __init__(self, value: Any, cls: type, source: Any = None, storage: VariableTracker | None = None) -> None:
        self.value = value
        self.cls = cls
        self.source = source
        self.existing = value is not MISSING
        self.storage = storage
        self.new_args: list[VariableTracker] = []
        if isinstance(storage, ConstDictVariable):
            storage.owner = self

    def python_type(self) -> type:
        return self.cls

    # -- attributes -----------------------------------------------------------------------------
    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            return value
        if not self.existing:
            return None
        return self.outside_attr(tx, name)

    def outside_attr(self, tx: Tx, name: str) -> VariableTracker | None:
        """The attribute the real object has at trace time; guards where it has none."""
        from ..protocol import type_lookup

        table = getattr(self.value, "__dict__", None)
        if isinstance(table, dict) and name in table:
            found = tx.lazy(table[name], AttrSource(self.source, name) if self.source else None)
            if self.source is not None:
                tx.recorder.needs_presence(tx, found, InstanceDictSource(self.source), "DICT_CONTAINS", name, True)
            return found
        slot = type_lookup(self.cls, name)
        if isinstance(slot, types.MemberDescriptorType):
            try:
                found = slot.__get__(self.value, self.cls)
            except AttributeError:
                if self.source is not None:
                    tx.recorder.assume(tx, self.source, "NO_HASATTR", name)
                return None
            read = tx.lazy(found, AttrSource(self.source, name) if self.source else None)
            tx.recorder.needs_presence(tx, read, self.source, "HASATTR", name)
            return read
        if isinstance(table, dict) and self.source is not None and self.guards_absence(name):
            tx.recorder.assume(tx, InstanceDictSource(self.source), "DICT_CONTAINS", name, False)
        return None

    def guards_absence(self, name: str) -> bool:
        return not (name.startswith("__") and name.endswith("__"))

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        from ..protocol import attribute_error_text, type_lookup

        if value is None and self.instance_getattr(tx, name) is None:
            raise tx.raise_(AttributeError, name if not hasattr(self.cls, "__slots__") else attribute_error_text(self, name))
        if not isinstance(type_lookup(self.cls, name), types.MemberDescriptorType) and not self.has_dict():
            raise tx.raise_(AttributeError, attribute_error_text(self, name), name=name)
        tx.recorder.side_effects.store_attr(self, name, value)

    def has_dict(self) -> bool:
        return self.cls.__dictoffset__ != 0

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        if name == "__dict__" and self.has_dict():
            return InstanceDictVariable(self)
        if self.storage is not None:
            found = self.storage.native_getattr(tx, name)
            if found is None:
                positioned = getattr(self.storage, "descriptor_value", None)
                found = positioned(name) if positioned is not None else None
            return found
        return None

    # -- inherited C behaviour ------------------------------------------------------------------
    def _storage_call(self, method: str, tx: Tx, *args: Any) -> Any:
        return None if self.storage is None else getattr(self.storage, method)(tx, *args)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import instances

        found = instances.object_method(tx, self, name, args, kwargs)
        if found is not None:
            return found
        if self.storage is not None:
            return self.storage.call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        return self._storage_call("binary", tx, op, storage_of(other), reflected)

    def inplace(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        native = getattr(self.storage, "inplace", None)
        result = native(tx, op, other) if native is not None else None
        return self if result is self.storage and result is not None else result

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        return self._storage_call("compare", tx, op, storage_of(other))

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        return self._storage_call("unary", tx, op)

    def native_bool(self, tx: Tx) -> bool | None:
        return self._storage_call("native_bool", tx)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return self._storage_call("native_len", tx)

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return self._storage_call("native_iter", tx)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        return self._storage_call("native_contains", tx, item)

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        return self._storage_call("native_getitem", tx, key)

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        return bool(self._storage_call("native_setitem", tx, key, value))

    def native_delitem(self, tx: Tx, key: VariableTracker) -> bool:
        return bool(self._storage_call("native_delitem", tx, key))

    def known_items(self, tx: Tx) -> list[VariableTracker] | None:
        known = getattr(self.storage, "known_items", None)
        return known(tx) if known is not None else None

    def debug_repr(self) -> str:
        return f"{type(self).__name__}({self.cls.__name__})"


def storage_of(vt: VariableTracker) -> VariableTracker:
    vt = vt.realize()
    storage = getattr(vt, "storage", None)
    return storage if storage is not None else vt


class InstanceDictVariable(ConstDictVariable):
    """`obj.__dict__`: a dict whose items are the object's attributes."""

    def __init__(self, obj: UserDefinedObjectVariable) -> None:
        super().__init__({})
        self.obj = obj
        self.listed = False

    def _list(self, tx: Tx) -> None:
        from .constant import ConstantVariable

        if self.obj.existing and not self.listed and self.obj.source is not None:
            tx.recorder.assume(tx, InstanceDictSource(self.obj.source), "DICT_KEYS", tuple(self.obj.value.__dict__))
        self.listed = True
        names = dict.fromkeys(self.obj.value.__dict__) if self.obj.existing else {}
        for name, value in tx.recorder.side_effects.attributes.get(self.obj, {}).items():
            if value is None:
                names.pop(name, None)
            else:
                names.setdefault(name)
        self.items = {n: (ConstantVariable(n), self.obj.instance_getattr(tx, n)) for n in names}  # type: ignore[misc]

    def known_items(self, tx: Tx) -> list[VariableTracker]:
        self._list(tx)
        return super().known_items(tx)

    def native_bool(self, tx: Tx) -> bool | None:
        self._list(tx)
        return super().native_bool(tx)

    def native_len(self, tx: Tx) -> VariableTracker | None:
        self._list(tx)
        return super().native_len(tx)

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        from .constant import boolean

        return boolean(self.lookup(tx, item) is not None)

    def lookup(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        return self.obj.instance_getattr(tx, key.as_python_constant())

    def store_hashed(self, tx: Tx, hashed: Hashable, key: VariableTracker, value: VariableTracker) -> None:
        tx.recorder.side_effects.store_attr(self.obj, key.as_python_constant(), value)

    def native_delitem(self, tx: Tx, key: VariableTracker) -> bool:
        if self.lookup(tx, key) is None:
            raise tx.raise_from(KeyError, [key])
        tx.recorder.side_effects.store_attr(self.obj, key.as_python_constant(), None)
        return True

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "pop":
            found = self.lookup(tx, args[0])
            if found is None:
                if len(args) > 1:
                    return args[1]
                raise tx.raise_from(KeyError, [args[0]])
            tx.recorder.side_effects.store_attr(self.obj, args[0].as_python_constant(), None)
            return found
        if name == "setdefault" and args:
            found = self.lookup(tx, args[0])
            if found is None:
                found = args[1] if len(args) > 1 else NONE
                tx.recorder.side_effects.store_attr(self.obj, args[0].as_python_constant(), found)
            return found
        if name in ("clear", "popitem"):
            raise self.unsupported(f"__dict__.{name}()")
        if name not in ("get", "update"):
            self._list(tx)
        return super().call_method(tx, name, args, kwargs)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        self._list(tx)
        return super().compare(tx, op, other)
