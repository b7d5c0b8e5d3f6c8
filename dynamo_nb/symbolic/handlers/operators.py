"""Unary, binary, in-place and comparison operators; subscripts."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from .. import protocol
from ..variables.constant import boolean
from ..variables.sequences import SliceVariable

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction

# the numbers of CPython's NB_* operators, in their order
_binary_op_lookup = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^", "+=", "&=", "//=", "<<=", "@=", "*=", "%=", "|=", "**=", ">>=", "-=", "/=", "^=")


def stack_op(fn: Any) -> Any:
    """The handler of an opcode that stood for one binary operator before 3.11 (chapter 12.14)."""
    symbol = next(s for s, entry in protocol.BINARY.items() if entry[0] is fn)

    def handler(self: Any, inst: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        self.stack.append(protocol.binary(self, symbol, left, right))

    return handler


class OperatorHandlers:
    stack: list[Any]

    def BINARY_OP(self, inst: Instruction) -> None:
        symbol = _binary_op_lookup[inst.arg]  # type: ignore[index]
        right, left = self.stack.pop(), self.stack.pop()
        apply = protocol.inplace if symbol[-1] == "=" else protocol.binary
        self.stack.append(apply(self, symbol, left, right))  # type: ignore[arg-type]

    BINARY_ADD = stack_op(operator.add)
    BINARY_MULTIPLY = stack_op(operator.mul)
    BINARY_SUBTRACT = stack_op(operator.sub)

    def BINARY_SUBSCR(self, inst: Instruction) -> None:
        key, obj = self.stack.pop(), self.stack.pop()
        self.stack.append(protocol.getitem(self, obj, key))  # type: ignore[arg-type]

    def STORE_SUBSCR(self, inst: Instruction) -> None:
        key, obj, value = self.stack.pop(), self.stack.pop(), self.stack.pop()
        protocol.setitem(self, obj, key, value)  # type: ignore[arg-type]

    def DELETE_SUBSCR(self, inst: Instruction) -> None:
        key, obj = self.stack.pop(), self.stack.pop()
        protocol.delitem(self, obj, key)  # type: ignore[arg-type]

    def UNARY_NEGATIVE(self, inst: Instruction) -> None:
        self.stack.append(protocol.unary(self, "-", self.stack.pop()))  # type: ignore[arg-type]

    def UNARY_POSITIVE(self, inst: Instruction) -> None:
        self.stack.append(protocol.unary(self, "+", self.stack.pop()))  # type: ignore[arg-type]

    def UNARY_INVERT(self, inst: Instruction) -> None:
        self.stack.append(protocol.unary(self, "~", self.stack.pop()))  # type: ignore[arg-type]

    def UNARY_NOT(self, inst: Instruction) -> None:
        self.stack.append(boolean(not protocol.truth(self, self.stack.pop())))  # type: ignore[arg-type]

    def COMPARE_OP(self, inst: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        self.stack.append(protocol.compare(self, inst.argval, left, right))  # type: ignore[arg-type]

    def IS_OP(self, inst: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        self.stack.append(boolean(protocol.is_same(self, left, right) != bool(inst.arg)))  # type: ignore[arg-type]

    def CONTAINS_OP(self, inst: Instruction) -> None:
        container, item = self.stack.pop(), self.stack.pop()
        self.stack.append(boolean(protocol.contains(self, container, item) != bool(inst.arg)))  # type: ignore[arg-type]

    def BUILD_SLICE(self, inst: Instruction) -> None:
        from ..variables.constant import NONE

        parts = self.popn(inst.arg)  # type: ignore[attr-defined]
        self.stack.append(SliceVariable([p.realize() for p in [*parts, NONE, NONE][:3]]))
