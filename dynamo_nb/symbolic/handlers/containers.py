"""Building, extending and unpacking containers; f-strings; structural pattern matching."""

from __future__ import annotations

import collections.abc
from typing import TYPE_CHECKING, Any

from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.constant import NONE, ConstantVariable, boolean
from ..variables.hashing import hash_key
from ..variables.mappings import ConstDictVariable, SetVariable
from ..variables.sequences import ListVariable, TupleVariable

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction


class ContainerHandlers:
    stack: list[Any]
    recorder: Any

    def _made(self, value: VariableTracker) -> None:
        value.step = self.recorder.step
        self.stack.append(value)

    def BUILD_TUPLE(self, inst: Instruction) -> None:
        self._made(TupleVariable(self.popn(inst.arg)))  # type: ignore[attr-defined]

    def BUILD_LIST(self, inst: Instruction) -> None:
        self._made(ListVariable(self.popn(inst.arg)))  # type: ignore[attr-defined]

    def BUILD_SET(self, inst: Instruction) -> None:
        made = SetVariable({})
        for item in self.popn(inst.arg):  # type: ignore[attr-defined]
            made.call_method(self, "add", [item], {})  # type: ignore[arg-type]
        self._made(made)

    def BUILD_MAP(self, inst: Instruction) -> None:
        flat = self.popn(2 * inst.arg)  # type: ignore[attr-defined,operator]
        made = ConstDictVariable({})
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            made.store(self, key, value)  # type: ignore[arg-type]
        self._made(made)

    def BUILD_CONST_KEY_MAP(self, inst: Instruction) -> None:
        keys = self.stack.pop().items
        values = self.popn(inst.arg)  # type: ignore[attr-defined]
        self._made(ConstDictVariable({hash_key(self, k): (k, v) for k, v in zip(keys, values, strict=True)}))  # type: ignore[arg-type]

    def LIST_APPEND(self, inst: Instruction) -> None:
        value = self.stack.pop()
        target = self.stack[-inst.arg].realize()  # type: ignore[operator]
        target.call_method(self, "append", [value], {})

    def SET_ADD(self, inst: Instruction) -> None:
        value = self.stack.pop()
        self.stack[-inst.arg].realize().call_method(self, "add", [value], {})  # type: ignore[operator]

    def MAP_ADD(self, inst: Instruction) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-inst.arg].realize().store(self, key, value)  # type: ignore[operator]

    def LIST_EXTEND(self, inst: Instruction) -> None:
        values = self.stack.pop()
        self.stack[-inst.arg].realize().call_method(self, "extend", [values], {})  # type: ignore[operator]

    def SET_UPDATE(self, inst: Instruction) -> None:
        values = self.stack.pop()
        self.stack[-inst.arg].realize().call_method(self, "update", [values], {})  # type: ignore[operator]

    def DICT_UPDATE(self, inst: Instruction) -> None:
        values = self.stack.pop()
        self.stack[-inst.arg].realize().call_method(self, "update", [values], {})  # type: ignore[operator]

    def DICT_MERGE(self, inst: Instruction) -> None:
        """For calls: a repeated key is an error."""
        values = self.stack.pop().realize()
        target = self.stack[-inst.arg].realize()  # type: ignore[operator]
        before = set(target.items)
        count = len(target.items)
        fresh = ConstDictVariable({})
        fresh.call_method(self, "update", [values], {})  # type: ignore[arg-type]
        repeated = [k for k in fresh.items if k in before]
        if repeated or any(not isinstance(k, str) for k in fresh.items):
            raise self.call_failed_text(f"call with repeated or non-string keyword arguments {repeated}")  # type: ignore[attr-defined]
        target.call_method(self, "update", [fresh], {})
        assert len(target.items) == count + len(fresh.items)

    def LIST_TO_TUPLE(self, inst: Instruction) -> None:
        self.stack.append(TupleVariable(list(self.stack.pop().realize().items)))

    def UNPACK_SEQUENCE(self, inst: Instruction) -> None:
        items = protocol.unpack_exactly(self, self._unpackable(self.stack.pop()), inst.arg)  # type: ignore[arg-type]
        self.stack.extend(reversed(items))

    def _unpackable(self, value: VariableTracker) -> VariableTracker:
        value = value.realize()
        if protocol.type_lookup(value.python_type(), "__iter__") in (protocol.MISSING, None) and not protocol.is_python_override(value.python_type(), "__getitem__"):
            raise self.raise_(TypeError, f"cannot unpack non-iterable {value.python_type().__name__} object")  # type: ignore[attr-defined]
        return value

    def UNPACK_EX(self, inst: Instruction) -> None:
        before, after = inst.arg & 0xFF, inst.arg >> 8  # type: ignore[operator]
        items = protocol.unpack(self, self._unpackable(self.stack.pop()))  # type: ignore[arg-type]
        if len(items) < before + after:
            raise self.raise_(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})")  # type: ignore[attr-defined]
        middle = ListVariable(items[before:len(items) - after])
        middle.step = self.recorder.step
        self.stack.extend(reversed([*items[:before], middle, *items[len(items) - after:]]))

    # -- f-strings ----------------------------------------------------------------------------------
    def FORMAT_VALUE(self, inst: Instruction) -> None:
        from ..builtins.strings import ascii_of, format_of, repr_of, str_of

        spec = self.stack.pop() if inst.arg & 4 else ConstantVariable("")  # type: ignore[operator]
        value = self.stack.pop()
        convert = {0: None, 1: str_of, 2: repr_of, 3: ascii_of}[inst.arg & 3]  # type: ignore[operator]
        if convert is not None:
            value = convert(self, value)
        self.stack.append(format_of(self, value, spec))

    def BUILD_STRING(self, inst: Instruction) -> None:
        parts = self.popn(inst.arg)  # type: ignore[attr-defined]
        self.stack.append(ConstantVariable("".join(const(p) for p in parts)))

    # -- pattern matching -----------------------------------------------------------------------------
    def GET_LEN(self, inst: Instruction) -> None:
        self.stack.append(protocol.len_(self, self.stack[-1]))  # type: ignore[arg-type]

    def MATCH_SEQUENCE(self, inst: Instruction) -> None:
        cls = self.stack[-1].realize().python_type()
        self.stack.append(boolean(issubclass(cls, collections.abc.Sequence) and not issubclass(cls, (str, bytes, bytearray))))

    def MATCH_MAPPING(self, inst: Instruction) -> None:
        self.stack.append(boolean(issubclass(self.stack[-1].realize().python_type(), collections.abc.Mapping)))

    def MATCH_KEYS(self, inst: Instruction) -> None:
        keys, subject = self.stack[-1].realize(), self.stack[-2].realize()
        values = []
        getter = protocol.getattr_(self, subject, "get")  # type: ignore[arg-type]
        sentinel = self.wrap(object())  # type: ignore[attr-defined]
        for key in keys.items:
            found = getter.call_function(self, [key, sentinel], {})  # type: ignore[arg-type]
            if found is sentinel:
                self.stack.append(NONE)
                return
            values.append(found)
        self.stack.append(TupleVariable(values))

    def MATCH_CLASS(self, inst: Instruction) -> None:
        names = [const(n) for n in self.stack.pop().items]
        cls, subject = self.stack.pop().realize(), self.stack.pop().realize()
        from ..builtins.types_ import isinstance_of

        if not isinstance_of(self, subject, cls.value):  # type: ignore[arg-type]
            self.stack.append(NONE)
            return
        self.stack.append(self._match_class_attributes(subject, cls.value, inst.arg, names))  # type: ignore[arg-type]

    def _match_class_attributes(self, subject: Any, cls: type, count: int, names: list[Any]) -> VariableTracker:
        values = []
        if count:
            if cls in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple):
                values.append(subject)
            else:
                match_args = getattr(cls, "__match_args__", ())
                if count > len(match_args):
                    raise self.raise_(TypeError, f"{cls.__name__}() accepts {len(match_args)} positional sub-pattern{'' if len(match_args) == 1 else 's'} ({count} given)")  # type: ignore[attr-defined]
                names = [*match_args[:count], *names]
        for name in names:
            if not protocol.hasattr_(self, subject, name):  # type: ignore[arg-type]
                return NONE
            values.append(protocol.getattr_(self, subject, name))  # type: ignore[arg-type]
        return TupleVariable(values)
