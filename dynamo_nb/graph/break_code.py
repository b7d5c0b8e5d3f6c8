"""Code for a graph break: run one instruction eagerly, beneath one real frame per inlined caller, then go on.

Each frame on the way to the break gets the same shape: restore its stack, do its step (the eager
instruction in the innermost frame, a call of the next frame's fragment in the others), store what the
step left, hand over to the resume code of its rest. The frame being compiled does so in its own code;
an inlined frame in a fragment with that function's name, file, lines and globals.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ..core.exc import SkipFrame
from ..cpython.analysis import exception_entry_at, live_locals_all, stack_depths
from ..cpython.assemble import CodeOptions
from ..cpython.instruction import ExceptionEntry, Instruction, create
from ..cpython.resume import make_fragment
from ..native import run_fragment, tail_call
from ..symbolic.variables.base import VariableTracker
from ..symbolic.variables.constant import ConstantVariable
from ..symbolic.variables.misc import NullVariable, PreviousExceptionVariable
from .codegen import PyCodegen, settle
from .output_graph import OutputGraph, argument_names, dataclass_replace, emit_tail_call
from .resume import ContinueExecutionCache, original_code

NULL = "NULL"


class FrameState:
    """One frame at the break: its stack before its step, bound locals, instructions of the step."""

    def __init__(self, frame: Any, innermost: bool) -> None:
        self.frame = frame
        self.code = frame.code
        self.innermost = innermost
        self.stack = [settle(v) for v in (frame.start_stack if innermost else frame.stack)]
        first = frame.group_start if innermost else frame.current.index
        last = first
        while frame.instructions[last].opname in ("KW_NAMES", "PRECALL"):
            last += 1
        self.group = frame.instructions[first:last + 1]
        self.last = self.group[-1]
        self.locals = dict(frame.locals)
        self.cells = [frame.cells[n] for n in cell_order(self.code)]
        self.live = live_locals_all(frame.instructions, frame.exceptions)
        self.kept = len(self.stack) - touched_slots(self)
        peeked = max(0, min(self.kept, len(self.stack) - seen_slots(self)))
        # what lies below the operands on the real stack: saved exceptions, and what the step looks at
        self.below = [v for v in self.stack[:peeked] if isinstance(v, PreviousExceptionVariable)] + self.stack[peeked:self.kept]
        self.stored: str | None = None
        self.null_pushed = innermost and (self.last.opname == "LOAD_METHOD" or (self.last.opname == "LOAD_GLOBAL" and self.last.push_null))

    def values(self) -> list[VariableTracker]:
        return [*self.stack, *self.locals_at().values(), *self.cells]

    def locals_at(self) -> dict[str, VariableTracker]:
        """Locals that some continuation needs, and the first parameter, which super() may read."""
        wanted: set[str] = set()
        for target in self.targets():
            wanted |= self.live[target.index]
        wanted |= self.live[self.group[0].index] if self.innermost else set()
        wanted.update(first_parameter(self.code))
        return {n: v for n, v in self.locals.items() if n in wanted}

    def targets(self) -> list[Instruction]:
        """Where the frame may go on: after its step, at its jump, at its exception handler."""
        out = [self.frame.instructions[self.last.index + 1]] if self.last.opname != "RAISE_VARARGS" and not _never_falls(self.last) else []
        if self.last.target is not None:
            out.append(self.last.target)
        entry = exception_entry_at(self.frame.exceptions, self.last)
        return [*out, *([entry.target] if entry is not None else [])]


UNCONDITIONAL = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
# A NULL can be stored in no local: these leave it out, and the resume code pushes it again.
WITHOUT_NULL: dict[str, tuple[str, int | None]] = {"LOAD_METHOD": ("LOAD_ATTR", None), "LOAD_GLOBAL": ("LOAD_GLOBAL", 0)}


def _never_falls(inst: Instruction) -> bool:
    return inst.opname in ("RERAISE", "RETURN_VALUE", *UNCONDITIONAL)


def cell_order(code: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*code.co_cellvars, *code.co_freevars)))


class BreakWriter:
    def __init__(self, output: OutputGraph, frames: list[Any]) -> None:
        self.output = output
        self.states = [FrameState(f, f is frames[-1]) for f in frames]
        self.region = output.region

    def values(self) -> list[VariableTracker]:
        return [v for state in self.states for v in state.values()]

    def write(self, cg: PyCodegen) -> None:
        """Append the break to the code of the frame being compiled."""
        self._step(cg, 0)

    # -- one frame ------------------------------------------------------------------------------------
    def _step(self, cg: PyCodegen, depth: int) -> None:
        state = self.states[depth]
        saved = cg.positions
        cg.positions = state.last.positions or cg.positions
        self._show_locals(cg, state)
        if state.innermost:
            self._enter(cg)
        self._push_stack(cg, state.below, state.stack[state.kept:])
        start = cg.nop()
        jump: Instruction | None = None
        if state.innermost:
            jump = self._eager(cg, state)
        else:
            self._call_fragment(cg, depth + 1)
        end = cg.instructions[-1]
        if jump is not None and state.last.opname in UNCONDITIONAL:
            self._leave(cg, state)
            self._go_on(cg, state, state.last.target, state.stack, [])
        elif jump is not None:
            self._both_ways(cg, state, jump)
        elif not _never_falls(state.last) and state.last.opname != "RAISE_VARARGS":
            after = state.frame.instructions[state.last.index + 1]
            self._continue(cg, state, after)
        self._handler(cg, state, start, end)
        cg.positions = saved

    def _show_locals(self, cg: PyCodegen, state: FrameState) -> None:
        """The frame's variables under their own names, for code that looks at the calling frame."""
        arguments = argument_names(state.code) if cg.in_root else ()
        for name, value in state.locals_at().items():
            if name not in cg.cell_names and name not in arguments:
                cg.load(value)
                cg.emit("STORE_FAST", argval=name)

    def _enter(self, cg: PyCodegen) -> None:
        cg.push_callable(self.region.enter)
        cg.call(0)
        cg.emit("POP_TOP")

    def _exit(self, cg: PyCodegen) -> None:
        cg.push_callable(self.region.exit)
        cg.call(0)
        cg.emit("POP_TOP")

    def _push_stack(self, cg: PyCodegen, below: list[VariableTracker], operands: list[VariableTracker]) -> None:
        for value in below:
            cg.load(ConstantVariable(None) if isinstance(value, NullVariable) else value)
            if isinstance(value, PreviousExceptionVariable):
                cg.emit("PUSH_EXC_INFO")
                cg.emit("POP_TOP")
        cg.load_many(operands)

    def _eager(self, cg: PyCodegen, state: FrameState) -> Instruction | None:
        """The instructions of the step as they are; returns the jump if the step is one."""
        jump = None
        for inst in state.group:
            if inst.opname in UNCONDITIONAL:
                return inst
            if inst.target is not None:
                jump = create(inst.opname, inst.arg, target=create("NOP", positions=inst.positions), positions=inst.positions)
                cg.instructions.append(jump)
                continue
            made = create(*WITHOUT_NULL.get(inst.opname, (inst.opname, inst.arg)), argval=inst.argval, positions=inst.positions)
            if inst.opname == "STORE_FAST":
                made.argval = state.stored = cg.temp()
            elif inst.opname == "LOAD_GLOBAL" and not inst.push_null:
                state.null_pushed = False
            cg.instructions.append(made)
        return jump

    def _call_fragment(self, cg: PyCodegen, depth: int) -> None:
        """run_fragment(code, globals, closure, region, *values) for the next frame inward."""
        state = self.states[depth]
        needed: dict[VariableTracker, None] = {}
        for inner in self.states[depth:]:
            for value in inner.values():
                if not isinstance(value, (ConstantVariable, NullVariable)):
                    needed.setdefault(settle(value))
        names = [f"___v{i}" for i in range(len(needed))]
        code = self._fragment(depth, list(needed), names)
        cg.push_callable(run_fragment)
        cg.load_const(code)
        self._push_globals(cg, state.frame)
        if state.cells:
            cg.load_many(state.cells)
            cg.emit("BUILD_TUPLE", len(state.cells))
        else:
            cg.load_const(None)
        cg.load_const(self.region)
        cg.load_many(list(needed))
        cg.call(4 + len(needed))

    def _push_globals(self, cg: PyCodegen, frame: Any) -> None:
        if frame.globals is self.output.recorder.root_globals and cg.in_root:
            cg.push_callable(globals)
            cg.call(0)
        elif frame.globals_source is not None and cg.in_root:
            cg.load_source(frame.globals_source)
        else:
            cg.load_const(frame.globals)

    def _fragment(self, depth: int, needed: list[VariableTracker], names: list[str]) -> Any:
        state = self.states[depth]
        cells = cell_order(state.code)
        cg = PyCodegen(state.last.positions, frozenset(cells))
        cg.in_root = False
        cg.env = dict(zip(needed, names, strict=True))
        self._step(cg, depth)
        options = dataclass_replace(
            CodeOptions.of(state.code), argcount=len(names), posonlyargcount=0, kwonlyargcount=0, flags=state.code.co_flags & ~0x0C,
            varnames=tuple(names), cellvars=(), freevars=cells, consts=(), names=(),
        )
        return make_fragment(cg.instructions, cg.exceptions, options)

    # -- going on ---------------------------------------------------------------------------------------
    def _continue(self, cg: PyCodegen, state: FrameState, after: Instruction) -> None:
        """Store what the step left on the stack, then hand over to the resume code."""
        fresh = self._depth(state, after) - state.kept
        names = [cg.temp() for _ in range(fresh)]
        if state.null_pushed:
            names[0] = NULL
        for name in reversed(names):
            if name != NULL:
                cg.emit("STORE_FAST", argval=name)
        self._leave(cg, state)
        self._go_on(cg, state, after, state.stack[:state.kept], names)

    def _depth(self, state: FrameState, at: Instruction) -> int:
        return stack_depths(state.frame.instructions, state.frame.exceptions)[at.index]

    def _leave(self, cg: PyCodegen, state: FrameState) -> None:
        """Clear the stack, restoring the exception state, and end the region."""
        for value in reversed(state.below):
            cg.emit("POP_EXCEPT" if isinstance(value, PreviousExceptionVariable) else "POP_TOP")
        if state.innermost:
            self._exit(cg)

    def _both_ways(self, cg: PyCodegen, state: FrameState, jump: Instruction) -> None:
        after = state.frame.instructions[state.last.index + 1]
        landing = jump.target
        assert landing is not None and state.last.target is not None
        self._continue(cg, state, after)
        cg.instructions.append(landing)
        self._continue(cg, state, state.last.target)

    def _go_on(self, cg: PyCodegen, state: FrameState, target: Instruction, kept: list[VariableTracker], fresh: list[str]) -> None:
        """return tail_call(resume code, closure, locals…, stack…)."""
        while target.opname == "JUMP_FORWARD" and target.target is not None:
            target = target.target
        nulls = tuple(i for i, v in enumerate(kept) if isinstance(v, NullVariable))
        handled = tuple(i for i, v in enumerate(kept) if isinstance(v, PreviousExceptionVariable))
        nulls += tuple(len(kept) + i for i, n in enumerate(fresh) if n == NULL)
        bound = {*state.locals, *((state.last.argval,) if state.stored else ())}
        live = tuple(sorted(n for n in state.live[target.index] | self._kept_alive(cg, state, target) if n in bound))
        unbound = any(first not in state.locals and first not in original_code(state.code).co_cellvars for first in first_parameter(state.code))
        layout = ContinueExecutionCache.lookup(
            state.code, target, line=state.last.lineno or state.code.co_firstlineno, nulls=nulls, handled=handled,
            stack_args=len(kept) + len(fresh) - len(nulls), live=live, first_unbound=unbound,
        )
        loads = self._loads(cg, state, layout, [v for v in kept if not isinstance(v, NullVariable)], fresh)
        emit_tail_call(cg, tail_call, layout.code, list(layout.free_names), loads)

    def _loads(self, cg: PyCodegen, state: FrameState, layout: Any, kept: list[VariableTracker], fresh: list[str]) -> list[Callable[[PyCodegen], None]]:
        def value(vt: VariableTracker) -> Callable[[PyCodegen], None]:
            return lambda c: c.load(vt)

        def temp(name: str) -> Callable[[PyCodegen], None]:
            return lambda c: c.load_fast(name)

        def local(name: str) -> Callable[[PyCodegen], None]:
            if name in cg.cell_names:
                return lambda c: c.emit("LOAD_DEREF", argval=name)  # type: ignore[return-value]
            stored = self._stored_by_step(state, name)
            return temp(stored) if stored else value(state.locals[name])

        count = len(layout.arg_names) - len(layout.stack_names)
        out = [local(n) for n in layout.arg_names[:count]]
        return [*out, *map(value, kept), *(temp(n) for n in fresh if n != NULL)]

    def _kept_alive(self, cg: PyCodegen, state: FrameState, target: Instruction) -> set[str]:
        """Variables that nobody reads again but whose end is seen. An inlined frame's caller holds what it was given."""
        recorder = self.output.recorder
        if recorder.owned is None or not cg.in_root:
            return set()
        gone = state.live[target.index] | self._rebound(state)
        return recorder.owned.kept(recorder, {n: v for n, v in state.locals.items() if n not in gone})

    def _rebound(self, state: FrameState) -> set[str]:
        """The variable that the step itself stores or deletes."""
        return {state.last.argval} if state.innermost and state.last.opname in ("STORE_FAST", "DELETE_FAST") else set()

    def _stored_by_step(self, state: FrameState, name: str) -> str | None:
        """The temporary that holds a variable the step itself stored."""
        return state.stored if state.last.opname == "STORE_FAST" and state.last.argval == name else None

    # -- exceptions -----------------------------------------------------------------------------------
    def _handler(self, cg: PyCodegen, state: FrameState, start: Instruction, end: Instruction) -> None:
        """What an exception of the step does: end the region, then the user's handler if there is one."""
        entry = exception_entry_at(state.frame.exceptions, state.last)
        if entry is None and not any(isinstance(v, PreviousExceptionVariable) for v in state.below):
            return
        handler = cg.nop()
        cg.exceptions.append(ExceptionEntry(start, end, handler, len(state.below), False))
        name = cg.store_temp()
        self._leave(cg, state)
        if entry is None:
            cg.load_fast(name)
            cg.emit("RERAISE", 0)
            return
        fresh = [name]
        if entry.lasti:
            cg.load_const((state.last.offset or 0) // 2)
            fresh = [cg.store_temp(), name]
        self._go_on(cg, state, entry.target, state.stack[:entry.depth], fresh)


def first_parameter(code: types.CodeType) -> tuple[str, ...]:
    """The first parameter's name, if there is one: of the user's function, which resume code that continues it once it is deleted doesn't have."""
    whole = original_code(code)
    return whole.co_varnames[:1] if whole.co_argcount else ()


def touched_slots(state: FrameState) -> int:
    """How many slots from the top the step consumes."""
    if not state.innermost:
        return 0
    last = state.last
    name = last.opname
    if name == "CALL":
        return (last.arg or 0) + 2
    if name == "CALL_FUNCTION_EX":
        return 3 + ((last.arg or 0) & 1)
    if name in TOUCHED:
        return TOUCHED[name]
    if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE", "RAISE_VARARGS", "SWAP"):
        return last.arg or 0
    if name == "BUILD_MAP":
        return 2 * (last.arg or 0)
    if name == "BUILD_CONST_KEY_MAP":
        return (last.arg or 0) + 1
    if name in ("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "LIST_APPEND", "SET_ADD"):
        return 1
    if name == "MAP_ADD":
        return 2
    if name == "FORMAT_VALUE":
        return 2 if (last.arg or 0) & 4 else 1
    if name == "MAKE_FUNCTION":
        return 1 + bin(last.arg or 0).count("1")
    raise SkipFrame(f"no graph break is possible at {name}")


def seen_slots(state: FrameState) -> int:
    """How many slots from the top the step consumes or looks at."""
    if not state.innermost:
        return 0
    last = state.last
    consumed = touched_slots(state)
    if last.opname in ("LIST_APPEND", "SET_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"):
        return consumed + (last.arg or 0)
    if last.opname == "MAP_ADD":
        return consumed + (last.arg or 0)
    if last.opname == "DICT_MERGE":
        return consumed + (last.arg or 0) + 2      # an error names the callable below the mapping
    if last.opname == "COPY":
        return last.arg or 0
    return max(consumed, SEEN.get(last.opname, 0))


SEEN = {"WITH_EXCEPT_START": 4, "CHECK_EXC_MATCH": 2, "GET_LEN": 1, "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1, "MATCH_KEYS": 2, "IMPORT_FROM": 1}
TOUCHED: dict[str, int] = {
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF", "LOAD_CONST", "LOAD_CLOSURE", "LOAD_NAME", "LOAD_BUILD_CLASS", "LOAD_ASSERTION_ERROR", "NOP", "RESUME", "DELETE_FAST", "DELETE_DEREF", "DELETE_GLOBAL", "PUSH_NULL", "GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS", "WITH_EXCEPT_START", "IMPORT_FROM", "COPY", *UNCONDITIONAL), 0),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD", "UNARY_NOT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "GET_ITER", "POP_TOP", "STORE_GLOBAL", "STORE_NAME", "STORE_FAST", "STORE_DEREF", "DELETE_ATTR", "UNPACK_SEQUENCE", "UNPACK_EX", "BEFORE_WITH", "FOR_ITER", "GET_YIELD_FROM_ITER", "LIST_TO_TUPLE", "PRINT_EXPR", "CHECK_EXC_MATCH", "IMPORT_STAR", "RERAISE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"), 1),
    **dict.fromkeys(("BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "STORE_ATTR", "DELETE_SUBSCR", "IMPORT_NAME"), 2),
    **dict.fromkeys(("STORE_SUBSCR", "MATCH_CLASS"), 3),
    **{f"POP_JUMP_{way}IF_{what}": 1 for way in ("", "FORWARD_", "BACKWARD_") for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")},
}
