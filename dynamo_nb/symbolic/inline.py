"""`InliningInstructionTranslator`: a call followed into its callee; also generators, which can be suspended."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from ..core.exc import ObservedException, ReturnValueOp, StepUnsupported, YieldValueOp
from ..core.reasons import UnsupportedOperation
from ..core.source import AttrSource
from .interpreter import InstructionTranslatorBase
from .variables.base import VariableTracker
from .variables.constant import NONE
from .variables.functions import CellVariable, NestedUserFunctionVariable, UserFunctionVariable
from .variables.iterators import GeneratorVariable

if TYPE_CHECKING:
    from ..cpython.instruction import Instruction

    Tx = InstructionTranslatorBase

SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class InliningInstructionTranslator(InstructionTranslatorBase):
    """A callee's frame. clean: its result is directly what the caller's instruction pushes."""

    def RETURN_VALUE(self, inst: Instruction) -> None:
        self.result = self.pop()
        raise ReturnValueOp


class InliningGeneratorInstructionTranslator(InliningInstructionTranslator):
    """A generator's frame: stops at each yield and goes on with what send() or throw() brings."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.yielded: VariableTracker | None = None
        self.finished = False

    def RETURN_GENERATOR(self, inst: Instruction) -> None:
        self.push(NONE)

    def YIELD_VALUE(self, inst: Instruction) -> None:
        self.yielded = self.pop()
        raise YieldValueOp

    def RETURN_VALUE(self, inst: Instruction) -> None:
        self.result = self.pop()
        self.finished = True
        raise ReturnValueOp


def _frame(tx: Tx, fn: Any, code: types.CodeType, bound: dict[str, VariableTracker], cls: type[InliningInstructionTranslator]) -> InliningInstructionTranslator:
    cells: dict[str, CellVariable] = {}
    for name in code.co_cellvars:
        cells[name] = CellVariable(bound.pop(name, None), None, name)
    for name, cell in zip(code.co_freevars, fn.cells(tx), strict=True):
        cells[name] = cell
    globals_ = fn.get_globals()
    source = None
    owner: Any = fn
    if isinstance(fn, UserFunctionVariable):
        source = AttrSource(fn.source, "__globals__") if fn.source is not None else None
    elif isinstance(fn, NestedUserFunctionVariable):
        owner = fn.globals_owner
        source = owner.globals_source if owner is not None else None
    builtins_ = tx.builtins
    frame = cls(tx.recorder, code, bound, cells, globals_, source, builtins_, tx)
    frame.function = fn
    frame.globals_owner = owner
    frame.is_root_globals = getattr(owner, "is_root_globals", False) if isinstance(fn, NestedUserFunctionVariable) else False
    return frame


def inline_call(tx: Tx, fn: Any, code: types.CodeType, bound: dict[str, VariableTracker]) -> VariableTracker:
    """Trace the callee; returns its result, a generator object for generator functions."""
    if code.co_flags & SUSPENDS:
        if not code.co_flags & inspect.CO_GENERATOR:
            raise StepUnsupported(UnsupportedOperation(f"call of the coroutine function {code.co_qualname}"))
        frame = _frame(tx, fn, code, dict(bound), InliningGeneratorInstructionTranslator)
        made = GeneratorVariable(frame, code.co_name)
        made.step = tx.recorder.step
        made.call = (fn, bound)  # type: ignore[attr-defined]
        tx.recorder.generators.append(made)
        return made
    frame = _frame(tx, fn, code, bound, InliningInstructionTranslator)
    frame.clean = tx.clean and tx.boundary is fn
    tx.boundary = None
    frame.run()
    assert frame.result is not None
    return frame.result


def resume_generator(tx: Tx, generator: GeneratorVariable, value: VariableTracker, throw: VariableTracker | None) -> VariableTracker:
    """generator.send(value), or generator.throw(throw)."""
    frame = generator.frame
    if generator.finished:
        if throw is not None:
            raise tx.raise_variable(throw)
        raise tx.raise_(StopIteration)
    if frame in tx.recorder.frames:
        raise tx.raise_(ValueError, "generator already executing")
    frame.parent = tx
    frame.depth = tx.depth + 1
    if not generator.started and throw is None and value.is_python_constant() is False:
        raise tx.raise_(TypeError, "can't send non-None value to a just-started generator")
    try:
        if throw is not None:
            _throw_into(tx, generator, throw)
        elif generator.started:
            frame.push(value)
        generator.started = True
        frame.run()
    except ObservedException as raised:
        generator.finished = True
        if issubclass(raised.value.python_type(), StopIteration):
            error = tx.raise_(RuntimeError, "generator raised StopIteration")
            error.value.fields["__cause__"] = error.value.fields["__context__"] = raised.value
            raise error from None
        raise
    if frame.finished:
        generator.finished = True
        result = frame.result
        assert result is not None
        is_none = result.is_python_constant() and result.as_python_constant() is None
        raise tx.raise_from(StopIteration, [] if is_none else [result])
    assert frame.yielded is not None
    return frame.yielded


def _throw_into(tx: Tx, generator: GeneratorVariable, throw: VariableTracker) -> None:
    frame = generator.frame
    if not generator.started:
        generator.finished = True
        raise tx.raise_variable(throw)
    delegate = _delegate(frame)
    if delegate is not None:
        _throw_to_delegate(tx, frame, delegate, throw)
        return
    tx.recorder.frames.append(frame)
    try:
        frame.handle_exception(frame.raise_variable(throw))
    finally:
        tx.recorder.frames.pop()


def _delegate(frame: Any) -> VariableTracker | None:
    """The iterator a suspended `yield from` delegates to; it lies on top of the stack at the yield."""
    before = frame.instructions[frame.ip - 2] if frame.ip >= 2 else None
    if before is not None and before.opname == "SEND" and frame.stack:
        return frame.stack[-1]
    return None


def _throw_to_delegate(tx: Tx, frame: Any, delegate: VariableTracker, throw: VariableTracker) -> None:
    """PEP 380: throw() goes to the inner generator; its return value ends the `yield from`."""
    from .protocol import getattr_, hasattr_

    send = frame.instructions[frame.ip - 2]
    try:
        if not hasattr_(tx, delegate, "throw"):
            raise frame.raise_variable(throw)
        value = getattr_(tx, delegate, "throw").call_function(tx, [throw], {})
    except ObservedException as raised:
        if issubclass(raised.value.python_type(), StopIteration):
            args = raised.value.args
            frame.pop()
            frame.push(args[0] if args else NONE)
            frame.ip = send.target.index
            return
        tx.recorder.frames.append(frame)
        try:
            frame.handle_exception(raised)
        finally:
            tx.recorder.frames.pop()
        return
    # the inner one yielded again: yield its value by running the YIELD_VALUE once more
    frame.push(value)
    frame.ip -= 1


def close_generator(tx: Tx, generator: GeneratorVariable) -> VariableTracker:
    """generator.close()."""
    from .variables.exceptions import ExceptionVariable

    if generator.finished or not generator.started:
        generator.finished = True
        return NONE
    try:
        resume_generator(tx, generator, NONE, ExceptionVariable(GeneratorExit, []))
    except ObservedException as raised:
        if issubclass(raised.value.python_type(), (GeneratorExit, StopIteration)):
            return NONE
        raise
    raise tx.raise_(RuntimeError, "generator ignored GeneratorExit")
