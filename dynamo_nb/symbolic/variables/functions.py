"""Functions: from outside, made in the trace, bound as methods, partials."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from ...core.source import AttrSource, CellContentsSource, DictGetItemSource, GetItemSource, InstanceDictSource
from .base import NOTHING, VariableTracker
from .constant import NONE, ConstantVariable, boolean

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class CellVariable(VariableTracker):
    """A closure cell. contents None: empty."""

    mutable = True

    def __init__(self, contents: VariableTracker | None = None, source: Any = None, name: str = "") -> None:
        self.initial = contents
        self.source = source
        self.existing = source is not None
        self.name = name
        self.local_name: str | None = None      # set when it is a cell of the frame being compiled
        self.value: Any = NOTHING               # the real cell of an existing one

    def python_type(self) -> type:
        return types.CellType

    def load(self, tx: Tx) -> VariableTracker | None:
        written = tx.recorder.side_effects.cells
        return written.get(self, self.initial)

    def store(self, tx: Tx, value: VariableTracker | None) -> None:
        if self.existing:
            tx.recorder.side_effects.store_cell(self, value)
        else:
            tx.recorder.changed()
            self.initial = value

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        if name == "cell_contents":
            value = self.load(tx)
            if value is None:
                raise tx.raise_(ValueError, "Cell is empty")
            return value
        return None


class BaseFunctionVariable(VariableTracker):
    """What inlining needs: code, globals, closure cells, defaults."""

    def python_type(self) -> type:
        return types.FunctionType

    def get_code(self) -> types.CodeType:
        raise NotImplementedError

    def get_globals(self) -> dict[str, Any]:
        raise NotImplementedError

    def native_bool(self, tx: Tx) -> bool | None:
        return True


FUNCTION_FIELDS = ("__code__", "__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__dict__", "__builtins__")


class UserFunctionVariable(BaseFunctionVariable):
    def __init__(self, fn: types.FunctionType, source: Any = None) -> None:
        self.fn = fn
        self.source = source
        self.existing = True

    @property
    def value(self) -> Any:
        return self.fn

    @property
    def hashable_value(self) -> Any:
        return self.fn

    def get_code(self) -> types.CodeType:
        return self.fn.__code__

    def get_globals(self) -> dict[str, Any]:
        return self.fn.__globals__

    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            return value
        if name in self.fn.__dict__:
            source = DictGetItemSource(InstanceDictSource(self.source), name) if self.source else None
            return tx.lazy(self.fn.__dict__[name], source)
        return None

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        tx.recorder.side_effects.store_attr(self, name, value)

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        if name not in FUNCTION_FIELDS:
            return None
        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            return value
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__"):
            return ConstantVariable(getattr(self.fn, name))
        if name == "__globals__":
            return None
        return tx.lazy(getattr(self.fn, name), AttrSource(self.source, name) if self.source else None)

    def cells(self, tx: Tx) -> list[VariableTracker]:
        out = []
        for i, cell in enumerate(self.fn.__closure__ or ()):
            source = GetItemSource(AttrSource(self.source, "__closure__"), i) if self.source else None
            out.append(tx.cell(cell, source))
        return out

    def defaults(self, tx: Tx) -> tuple[list[VariableTracker], dict[str, VariableTracker]]:
        base = AttrSource(self.source, "__defaults__") if self.source else None
        positional = self.fn.__defaults__ or ()
        if base is not None and positional:
            tx.recorder.assume(tx, base, "SEQUENCE_LENGTH", len(positional), tuple)
        plain = [tx.lazy(v, GetItemSource(base, i) if base else None) for i, v in enumerate(positional)]
        named_base = AttrSource(self.source, "__kwdefaults__") if self.source else None
        named = {k: tx.lazy(v, DictGetItemSource(named_base, k) if named_base else None) for k, v in (self.fn.__kwdefaults__ or {}).items()}
        return plain, named

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import calls

        return calls.call_python_function(tx, self, args, kwargs)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        other = other.realize()
        if op in ("==", "!=") and isinstance(other, UserFunctionVariable):
            return boolean((self.fn is other.fn) == (op == "=="))
        return None

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return isinstance(other, UserFunctionVariable) and other.fn is self.fn

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__call__":
            return self.call_function(tx, args, kwargs)
        if name == "__get__":
            return self if len(args) > 1 and args[0].is_python_constant() and args[0].as_python_constant() is None else UserMethodVariable(self, args[0].realize())
        return super().call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return "UserFunctionVariable()"


class NestedUserFunctionVariable(BaseFunctionVariable):
    """A function made by MAKE_FUNCTION in the trace."""

    mutable = True

    def __init__(self, code: types.CodeType, globals_: dict[str, Any], closure: list[VariableTracker], defaults: list[VariableTracker] | None, kwdefaults: VariableTracker | None, annotations: VariableTracker | None, globals_owner: Any) -> None:
        self.code = code
        self.globals = globals_
        self.closure = closure
        self.default_values = defaults or []
        self.kwdefaults = kwdefaults
        self.annotations = annotations
        self.globals_owner = globals_owner
        self.names = {"__name__": code.co_name, "__qualname__": code.co_qualname, "__module__": globals_.get("__name__")}
        doc = code.co_consts[0] if code.co_consts and isinstance(code.co_consts[0], str) else None
        self.names["__doc__"] = doc

    def get_code(self) -> types.CodeType:
        return self.code

    def get_globals(self) -> dict[str, Any]:
        return self.globals

    def cells(self, tx: Tx) -> list[VariableTracker]:
        return self.closure

    def defaults(self, tx: Tx) -> tuple[list[VariableTracker], dict[str, VariableTracker]]:
        named: dict[str, VariableTracker] = {}
        if self.kwdefaults is not None:
            named = {k.as_python_constant(): v for k, v in self.kwdefaults.realize().items.values()}  # type: ignore[attr-defined]
        return self.default_values, named

    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        written, value = tx.recorder.side_effects.load_attr(self, name)
        return value if written else None

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        tx.recorder.side_effects.store_attr(self, name, value)

    def native_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> bool:
        if value is not None and name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
            tx.recorder.side_effects.store_attr(self, name, value)
            return True
        return False

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        from .mappings import ConstDictVariable
        from .sequences import TupleVariable

        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            return value
        if name in self.names:
            return ConstantVariable(self.names[name])
        if name == "__code__":
            return ConstantVariable(self.code)
        if name == "__defaults__":
            return TupleVariable(list(self.default_values)) if self.default_values else NONE
        if name == "__kwdefaults__":
            return self.kwdefaults or NONE
        if name == "__closure__":
            return TupleVariable(list(self.closure)) if self.closure else NONE
        if name in ("__dict__", "__annotations__"):
            table = ConstDictVariable({})
            if name == "__dict__":
                for key, item in tx.recorder.side_effects.attributes.get(self, {}).items():
                    if item is not None and not (key.startswith("__") and key != "__wrapped__"):
                        table.items[key] = (ConstantVariable(key), item)
                table.instance_dict_of = self  # type: ignore[attr-defined]
            elif self.annotations is not None:
                pairs = self.annotations.realize().items  # type: ignore[attr-defined]
                for i in range(0, len(pairs), 2):
                    table.items[pairs[i].as_python_constant()] = (pairs[i], pairs[i + 1])
            return table
        return None

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import calls

        return calls.call_python_function(tx, self, args, kwargs)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__call__":
            return self.call_function(tx, args, kwargs)
        if name == "__get__":
            return UserMethodVariable(self, args[0].realize())
        return super().call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return "NestedUserFunctionVariable()"


class UserMethodVariable(VariableTracker):
    """A bound method: fn may be any callable tracker."""

    def __init__(self, fn: VariableTracker, receiver: VariableTracker, source: Any = None) -> None:
        self.fn = fn
        self.receiver = receiver
        self.source = source

    def python_type(self) -> type:
        return types.MethodType

    def native_bool(self, tx: Tx) -> bool | None:
        return True

    def special_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from ..protocol import generic_getattr, getattr_

        if name == "__func__":
            return self.fn
        if name == "__self__":
            return self.receiver
        if name in ("__call__", "__eq__", "__hash__", "__get__"):
            return generic_getattr(tx, self, name)
        return getattr_(tx, self.fn, name)

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        tx.forward_boundary(self, self.fn)
        return self.fn.realize().call_function(tx, [self.receiver, *args], kwargs)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import compare, is_same, truth

        other = other.realize()
        if not isinstance(other, UserMethodVariable) or op not in ("==", "!="):
            return None
        same = is_same(tx, self.receiver, other.receiver) and truth(tx, compare(tx, "==", self.fn, other.fn))
        return boolean(same == (op == "=="))

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return False

    @property
    def hashable_value(self) -> Any:
        fn = getattr(self.fn, "value", NOTHING)
        return NOTHING if fn is NOTHING else ("method", fn, id(self.receiver))

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__call__":
            return self.call_function(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return f"UserMethodVariable({self.fn!r}, {self.receiver!r})"


class PartialVariable(VariableTracker):
    """functools.partial."""

    mutable = True

    def __init__(self, fn: VariableTracker, args: list[VariableTracker], keywords: dict[str, VariableTracker], source: Any = None) -> None:
        self.fn = fn
        self.args = args
        self.keywords = keywords
        self.source = source

    def python_type(self) -> type:
        return functools.partial

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        from .mappings import ConstDictVariable
        from .sequences import TupleVariable

        if name == "func":
            return self.fn
        if name == "args":
            return TupleVariable(list(self.args))
        if name == "keywords":
            return ConstDictVariable({k: (ConstantVariable(k), v) for k, v in self.keywords.items()})
        return None

    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        if name in ("func", "args", "keywords"):
            return self.native_getattr(tx, name)
        written, value = tx.recorder.side_effects.load_attr(self, name)
        return value if written else None

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        tx.recorder.side_effects.store_attr(self, name, value)

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        tx.forward_boundary(self, self.fn)
        return self.fn.realize().call_function(tx, [*self.args, *args], {**self.keywords, **kwargs})

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name == "__call__":
            return self.call_function(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)


__all__ = ["BaseFunctionVariable", "CellContentsSource", "CellVariable", "NestedUserFunctionVariable", "PartialVariable", "UserFunctionVariable", "UserMethodVariable"]
