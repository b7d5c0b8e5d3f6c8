"""Jumps, loops and iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.exc import ObservedException, RestartAnalysis, StepUnsupported
from ...core.reasons import BudgetExceeded, UnsupportedInstruction
from .. import protocol
from ..variables.base import const

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction


def generic_jump(expected: bool, pop: bool) -> Any:
    """A jump taken when the truth of the top of the stack is `expected`; pop: whether it always pops."""

    def handler(self: Any, inst: Instruction) -> None:
        taken = protocol.truth(self, self.stack[-1]) is expected
        if pop or not taken:
            self.stack.pop()
        if taken:
            self._jump(inst)

    return handler


def none_jump(expected: bool) -> Any:
    def handler(self: Any, inst: Instruction) -> None:
        value = self.stack.pop()
        if (const(value) is None) is expected:
            self._jump(inst)

    return handler


class JumpHandlers:
    stack: list[Any]
    recorder: Any
    ip: int
    loop_marks: dict[int, Any]

    def _jump(self, inst: Instruction) -> None:
        target = inst.target.index  # type: ignore[union-attr]
        if target <= inst.index:
            self._loop_back(target)
        self.ip = target

    def _loop_back(self, head: int) -> None:
        """A loop that grows the graph past the budget is cut at its head, before its first round."""
        recorder = self.recorder
        marks = self.loop_marks
        if head not in marks:
            marks[head] = [recorder.step, self.break_path(), recorder.operation_count(), 0]  # type: ignore[attr-defined]
        mark = marks[head]
        mark[3] += 1
        if recorder.operation_count() - mark[2] > recorder.config["max_unrolled_ops"]:
            raise RestartAnalysis(mark[0], BudgetExceeded(f"a loop of more than {mark[3]} rounds"), mark[1])

    JUMP_FORWARD = JUMP_BACKWARD = JUMP_BACKWARD_NO_INTERRUPT = JUMP_ABSOLUTE = _jump
    POP_JUMP_FORWARD_IF_TRUE = POP_JUMP_BACKWARD_IF_TRUE = POP_JUMP_IF_TRUE = generic_jump(True, True)
    POP_JUMP_FORWARD_IF_FALSE = POP_JUMP_BACKWARD_IF_FALSE = POP_JUMP_IF_FALSE = generic_jump(False, True)
    JUMP_IF_TRUE_OR_POP = generic_jump(True, False)
    JUMP_IF_FALSE_OR_POP = generic_jump(False, False)
    POP_JUMP_FORWARD_IF_NONE = POP_JUMP_BACKWARD_IF_NONE = none_jump(True)
    POP_JUMP_FORWARD_IF_NOT_NONE = POP_JUMP_BACKWARD_IF_NOT_NONE = none_jump(False)

    def GET_ITER(self, inst: Instruction) -> None:
        value = self.stack.pop()
        made = protocol.iter_(self, value)  # type: ignore[arg-type]
        if made.step == 0:
            made.step = self.recorder.step
        self.stack.append(made)

    def FOR_ITER(self, inst: Instruction) -> None:
        iterator = self.stack[-1].realize()
        try:
            item = protocol.next_(self, iterator)  # type: ignore[arg-type]
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), StopIteration):
                raise
            self.exception_handled(raised)  # type: ignore[attr-defined]
            self.stack.pop()
            self.ip = inst.target.index  # type: ignore[union-attr]
            return
        self.stack.append(item)

    def GET_YIELD_FROM_ITER(self, inst: Instruction) -> None:
        value = self.stack[-1].realize()
        from ..variables.iterators import GeneratorVariable

        if not isinstance(value, GeneratorVariable):
            self.stack[-1] = protocol.iter_(self, value)  # type: ignore[arg-type]

    def SEND(self, inst: Instruction) -> None:
        value = self.stack.pop()
        receiver = self.stack[-1].realize()
        try:
            if const(value) is None:
                sent = protocol.next_(self, receiver)  # type: ignore[arg-type]
            else:
                sent = protocol.getattr_(self, receiver, "send").call_function(self, [value], {})  # type: ignore[arg-type]
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), StopIteration):
                raise
            self.exception_handled(raised)  # type: ignore[attr-defined]
            from ..variables.constant import NONE

            args = raised.value.args
            self.stack[-1] = args[0] if args else NONE
            self.ip = inst.target.index  # type: ignore[union-attr]
            return
        self.stack.append(sent)

    def _suspending(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction(f"instruction {inst.opname}"))

    RETURN_GENERATOR = YIELD_VALUE = ASYNC_GEN_WRAP = GET_AWAITABLE = GET_AITER = GET_ANEXT = END_ASYNC_FOR = BEFORE_ASYNC_WITH = _suspending
