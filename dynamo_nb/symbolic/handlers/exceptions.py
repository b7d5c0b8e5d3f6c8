"""Raising, handling and chaining exceptions; with blocks (3.11's exception tables)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.exc import ObservedException, StepUnsupported
from ...core.reasons import UnsupportedInstruction
from ...cpython.analysis import exception_entry_at
from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.classes import UserDefinedClassVariable
from ..variables.constant import NONE, ConstantVariable, boolean
from ..variables.misc import NullVariable, PreviousExceptionVariable

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction


class TracebackVariable(VariableTracker):
    """The traceback handed to __exit__; looking into it breaks the graph."""

    def python_type(self) -> type:
        import types

        return types.TracebackType

    def native_bool(self, tx: Any) -> bool | None:
        return True


class ExceptionHandlers:
    stack: list[Any]
    exc_stack: list[VariableTracker]
    recorder: Any
    parent: Any
    ip: int

    # -- unwinding ----------------------------------------------------------------------------------
    def handle_exception(self, raised: ObservedException) -> None:
        """Go on at the handler of the current instruction, or let the exception leave the frame."""
        entry = exception_entry_at(self.exceptions, self.current)  # type: ignore[attr-defined]
        self.kw_names = ()
        if entry is None:
            raise raised
        del self.stack[entry.depth:]
        if entry.lasti:
            self.stack.append(ConstantVariable((self.current.offset or 0) // 2))  # type: ignore[attr-defined]
        self.stack.append(raised.value)
        self.ip = entry.target.index
        self.recorder.version += 1

    def current_exception(self) -> VariableTracker | None:
        frame = self
        while frame is not None:
            if frame.exc_stack:
                return frame.exc_stack[-1]
            frame = frame.parent
        return None

    def chain_context(self, made: Any) -> None:
        handled = self.current_exception()
        fields = getattr(made, "fields", None)
        if handled is None or handled is made or fields is None:
            return
        link: Any = handled
        while link is not None:
            inner = getattr(link, "fields", {}).get("__context__")
            if inner is made:
                link.fields["__context__"] = NONE
                break
            link = inner if hasattr(inner, "fields") else None
        fields["__context__"] = handled

    # -- instructions ---------------------------------------------------------------------------------
    def PUSH_EXC_INFO(self, inst: Instruction) -> None:
        exc = self.stack.pop().realize()
        previous = self.current_exception() or NONE
        self.stack.append(PreviousExceptionVariable(previous, exc))
        self.stack.append(exc)
        self.exc_stack.append(exc)

    def POP_EXCEPT(self, inst: Instruction) -> None:
        self.stack.pop()
        self.exc_stack.pop()

    def CHECK_EXC_MATCH(self, inst: Instruction) -> None:
        wanted = self.stack.pop().realize()
        cls = self.stack[-1].realize().python_type()
        self.stack.append(boolean(issubclass(cls, self._exception_types(wanted))))

    def _exception_types(self, wanted: VariableTracker) -> Any:
        items = getattr(wanted, "items", None)
        if items is not None:
            return tuple(self._exception_types(i.realize()) for i in items)
        if not isinstance(wanted, UserDefinedClassVariable) or not issubclass(wanted.value, BaseException):
            raise self.raise_(TypeError, "catching classes that do not inherit from BaseException is not allowed")  # type: ignore[attr-defined]
        return wanted.value

    def RERAISE(self, inst: Instruction) -> None:
        exc = self.stack.pop().realize()
        raise ObservedException(exc)

    def RAISE_VARARGS(self, inst: Instruction) -> None:
        if inst.arg == 0:
            handled = self.current_exception()
            if handled is None:
                raise self.raise_(RuntimeError, "No active exception to reraise")  # type: ignore[attr-defined]
            raise ObservedException(handled)
        cause = self.stack.pop().realize() if inst.arg == 2 else None
        exc = self._instance(self.stack.pop().realize())
        if cause is not None:
            self._set_cause(exc, cause)
        raise self.raise_variable(exc)  # type: ignore[attr-defined]

    def _instance(self, exc: VariableTracker) -> VariableTracker:
        if isinstance(exc, UserDefinedClassVariable) and issubclass(exc.value, BaseException):
            return exc.call_function(self, [], {}).realize()  # type: ignore[arg-type]
        if not issubclass(exc.python_type(), BaseException):
            raise self.raise_(TypeError, "exceptions must derive from BaseException")  # type: ignore[attr-defined]
        if not hasattr(exc, "fields"):
            raise StepUnsupported(UnsupportedInstruction(f"raising a {exc.describe()} from outside"))
        return exc

    def _set_cause(self, exc: Any, cause: VariableTracker) -> None:
        if const(cause) is not None:
            cause = self._instance(cause)
        exc.fields["__cause__"] = cause
        exc.fields["__suppress_context__"] = ConstantVariable(True)

    def CHECK_EG_MATCH(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("except* handlers"))

    PREP_RERAISE_STAR = CHECK_EG_MATCH

    # -- with -----------------------------------------------------------------------------------------
    def BEFORE_WITH(self, inst: Instruction) -> None:
        manager = self.stack.pop().realize()
        cls = manager.python_type()
        for name in ("__enter__", "__exit__"):
            if protocol.type_lookup(cls, name) is protocol.MISSING:
                text = f"{cls.__name__!r} object does not support the context manager protocol"
                raise self.raise_(TypeError, text + (" (missed __exit__ method)" if name == "__exit__" else ""))  # type: ignore[attr-defined]
        exit_ = self._special_method(manager, cls, "__exit__")
        enter = self._special_method(manager, cls, "__enter__")
        self.stack.append(exit_)
        try:
            result = enter.call_function(self, [], {})  # type: ignore[arg-type]
        except ObservedException:
            self.stack.pop()
            raise
        self.stack.append(result)

    def _special_method(self, manager: VariableTracker, cls: type, name: str) -> VariableTracker:
        special = getattr(manager, "special_getattr", None)
        if special is not None:
            return special(self, name)
        return protocol.descriptor_get(self, protocol.type_lookup(cls, name), name, manager, cls)  # type: ignore[arg-type]

    def WITH_EXCEPT_START(self, inst: Instruction) -> None:
        exc = self.stack[-1].realize()
        exit_ = self.stack[-4].realize()
        cls = self.wrap(exc.python_type())  # type: ignore[attr-defined]
        self.stack.append(exit_.call_function(self, [cls, exc, TracebackVariable()], {}))

    # -- the scheme before 3.11 -------------------------------------------------------------------------
    def SETUP_FINALLY(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("block-stack exception handling (before 3.11)"))

    SETUP_WITH = SETUP_FINALLY

    def PRINT_EXPR(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("PRINT_EXPR"))

    def BEFORE_ASYNC_WITH(self, inst: Instruction) -> None:
        raise StepUnsupported(UnsupportedInstruction("async with"))


__all__ = ["ExceptionHandlers", "NullVariable", "TracebackVariable"]
