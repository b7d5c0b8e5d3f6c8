"""`InstructionTranslatorBase`: executes bytecode on trackers, one handler per opcode (chapter 12.4, 12.14).

Comes in: a code object with its locals, cells and globals as trackers. The loop is `run()`; `step()`
takes one instruction and looks its handler up by opcode number. Handlers live in `handlers/`, named
like their opcode. What stops a trace travels as an exception: ReturnValueOp, ObservedException (user
code raises), StepUnsupported (break here), RestartAnalysis (break earlier), SkipFrame.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.exc import ObservedException, ReturnValueOp, StepUnsupported, YieldValueOp
from ..core.reasons import BudgetExceeded, UnsupportedInstruction
from ..core.source import Source
from ..cpython.assemble import decode
from .handlers.calls import CallHandlers
from .handlers.containers import ContainerHandlers
from .handlers.exceptions import ExceptionHandlers
from .handlers.jumps import JumpHandlers
from .handlers.names import NameHandlers
from .handlers.operators import OperatorHandlers, _binary_op_lookup
from .handlers.stack import StackHandlers
from .services import TranslatorServices
from .variables.base import VariableTracker

if TYPE_CHECKING:
    from ..cpython.instruction import Instruction
    from .recorder import Recorder


class BreakAt(Exception):
    """The trace reached the step at which it was told to break."""

    def __init__(self, frames: list[Any]) -> None:
        super().__init__()
        self.frames = frames


class InstructionTranslatorBase(
    StackHandlers, NameHandlers, OperatorHandlers, ContainerHandlers, JumpHandlers, CallHandlers, ExceptionHandlers, TranslatorServices
):
    dispatch_table: ClassVar[list[Any]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = {number: name for name, number in dis.opmap.items()}
        cls.dispatch_table = [getattr(cls, names[i], cls._missing) if i in names else cls._missing for i in range(256)]

    def __init__(self, recorder: Recorder, code: types.CodeType, locals_: dict[str, VariableTracker], cells: dict[str, Any], globals_: dict[str, Any], globals_source: Source | None, builtins_: dict[str, Any], parent: InstructionTranslatorBase | None) -> None:
        self.recorder = recorder
        self.code = code
        decoded = decode(code)
        self.instructions = decoded.instructions
        self.exceptions = decoded.exceptions
        self.locals = locals_
        self.cells = cells
        self.globals = globals_
        self.globals_source = globals_source
        self.globals_owner: Any = None      # for inlined functions: the tracker the globals are read from
        self.builtins = builtins_
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.stack: list[VariableTracker] = []
        self.ip = 0
        self.kw_names: tuple[str, ...] = ()
        self.exc_stack: list[VariableTracker] = []
        self.boundary: Any = None
        self.clean = parent is None
        self.start_step = 0
        self.start_version = 0
        self.start_stack: list[VariableTracker] = []
        self.group_start = 0
        self.result: VariableTracker | None = None
        self.lines = recorder.traced_lines.setdefault(code.co_filename, set())
        self.loop_marks: dict[int, int] = {}
        self.function: Any = None

    # -- the loop ---------------------------------------------------------------------------------
    def run(self) -> None:
        """Until the frame returns or yields; the value is in `result`."""
        self.recorder.frames.append(self)
        try:
            while self.step():
                pass
        finally:
            self.recorder.frames.pop()

    def step(self) -> bool:
        inst = self.instructions[self.ip]
        recorder = self.recorder
        self.current = inst
        if inst.opname not in PART_OF_CALL:
            self._begin(inst)
        self.ip += 1
        try:
            self.dispatch_table[inst.opcode](self, inst)
        except (ReturnValueOp, YieldValueOp):
            return False
        except ObservedException as raised:
            self.handle_exception(raised)
        except StepUnsupported as err:
            if not hasattr(err, "frames"):
                err.frames = list(recorder.frames)  # type: ignore[attr-defined]
            raise
        return True

    def _begin(self, inst: Instruction) -> None:
        recorder = self.recorder
        recorder.step += 1
        recorder.guards.step = recorder.step
        recorder.instructions += 1
        self.start_step = recorder.step
        self.start_version = recorder.version
        self.start_stack = self.stack.copy()
        self.group_start = inst.index
        if inst.positions is not None and inst.positions[0] is not None:
            self.lines.add(inst.positions[0])
        if recorder.trace_log is not None:
            recorder.trace_log(self, inst)
        if recorder.step == recorder.break_at:
            raise BreakAt(list(recorder.frames))
        if recorder.instructions > recorder.config["max_traced_instructions"]:
            raise StepUnsupported(BudgetExceeded("too many instructions traced"))

    @staticmethod
    def _missing(tx: InstructionTranslatorBase, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction(f"instruction {inst.opname}"))

    # -- the stack --------------------------------------------------------------------------------
    def push(self, value: VariableTracker) -> None:
        self.stack.append(value)

    def pop(self) -> VariableTracker:
        return self.stack.pop()

    def popn(self, n: int) -> list[VariableTracker]:
        if n == 0:
            return []
        taken = self.stack[-n:]
        del self.stack[-n:]
        return taken

    # -- where we are -------------------------------------------------------------------------------
    def user_position(self) -> tuple[str, int]:
        line = self.current.positions[0] if self.current.positions else None
        return self.code.co_filename, line or self.code.co_firstlineno

    def position_key(self) -> Any:
        return [(f.code, f.current.index) for f in self.recorder.frames]

    def break_path(self) -> Any:
        return [(f.code, f.current.index, f.start_step, f.clean) for f in self.recorder.frames]

    # -- call boundaries ------------------------------------------------------------------------------
    def forward_boundary(self, outer: VariableTracker, inner: VariableTracker) -> None:
        """`inner` is called in tail position by `outer`: its result is the instruction's."""
        if self.boundary is outer:
            self.boundary = inner.realize()


__all__ = ["BreakAt", "InstructionTranslator", "InstructionTranslatorBase", "_binary_op_lookup"]
PART_OF_CALL = frozenset({"PRECALL", "CALL"})


class InstructionTranslator(InstructionTranslatorBase):
    """The frame being compiled."""

    def RETURN_VALUE(self, inst: Instruction) -> None:
        self.result = self.pop()
        raise ReturnValueOp
