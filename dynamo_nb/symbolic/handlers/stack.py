"""Stack shuffling, constants, and instructions that do nothing to values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..variables.constant import ConstantVariable
from ..variables.misc import NullVariable

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction


class StackHandlers:
    stack: list[Any]

    def RESUME(self, inst: Instruction) -> None: ...

    def NOP(self, inst: Instruction) -> None: ...

    def CACHE(self, inst: Instruction) -> None: ...

    def EXTENDED_ARG(self, inst: Instruction) -> None: ...

    def MAKE_CELL(self, inst: Instruction) -> None:
        """Cells are made when the frame is set up."""

    def COPY_FREE_VARS(self, inst: Instruction) -> None:
        """Free variables are bound when the frame is set up."""

    def POP_TOP(self, inst: Instruction) -> None:
        if self.recorder.owned is not None:
            self.recorder.owned.dropping(self, self.stack[-1])  # type: ignore[arg-type]
        self.stack.pop()

    def PUSH_NULL(self, inst: Instruction) -> None:
        self.stack.append(NullVariable())

    def COPY(self, inst: Instruction) -> None:
        self.stack.append(self.stack[-inst.arg])  # type: ignore[operator]

    def SWAP(self, inst: Instruction) -> None:
        i = -inst.arg  # type: ignore[operator]
        self.stack[-1], self.stack[i] = self.stack[i], self.stack[-1]

    def LOAD_CONST(self, inst: Instruction) -> None:
        value = inst.argval
        if isinstance(value, (tuple, frozenset)):
            self.stack.append(self.wrap(value))  # type: ignore[attr-defined]
        else:
            self.stack.append(ConstantVariable(value))
