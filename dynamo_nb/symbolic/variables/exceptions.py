"""Exceptions as values: raised, caught, chained and inspected in the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.exc import RestartAnalysis
from ...core.reasons import OpFailed
from .base import VariableTracker
from .constant import FALSE, NONE, ConstantVariable
from .sequences import TupleVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

EXCEPTION_FIELDS = ("__cause__", "__context__", "__suppress_context__", "__traceback__", "args")


class ExceptionVariable(VariableTracker):
    """An instance of an exception class.

    fuzzy: it stands for an error that eager's operation would raise; only its type is known. Looking at
    more breaks the graph before the operation at step `step`.
    """

    mutable = True

    def __init__(self, cls: type[BaseException], args: list[VariableTracker], source: Any = None, attrs: dict[str, VariableTracker] | None = None) -> None:
        self.cls = cls
        self.args = args
        self.source = source
        self.existing = source is not None
        self.fields: dict[str, VariableTracker] = {"__cause__": NONE, "__context__": NONE, "__suppress_context__": FALSE, "__traceback__": NONE}
        self.attrs = attrs or {}
        self.fuzzy = False
        self.raised_at = 0
        self.raised_line = 0
        self.raised_inside = False      # in an inlined frame
        self.raised_path: Any = None
        self.value: BaseException | None = None

    def python_type(self) -> type:
        return self.cls

    def check(self, tx: Tx) -> None:
        if self.fuzzy:
            raise RestartAnalysis(self.raised_at, OpFailed(f"an operation raises {self.cls.__name__}"), self.raised_path)

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        self.check(tx)
        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            return value
        if name == "args":
            return TupleVariable(list(self.args))
        if name == "__traceback__":
            raise self.unsupported("the traceback of an exception raised in the trace")
        if name in self.fields:
            return self.fields[name]
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else NONE
        if name in ("name", "obj", "path") and name in self.attrs:
            return self.attrs[name]
        if name in ("name", "obj") and issubclass(self.cls, (AttributeError, NameError)):
            return NONE
        if name == "code" and issubclass(self.cls, SystemExit):
            return self.args[0] if self.args else NONE
        return None

    def native_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> bool:
        self.check(tx)
        if value is None or name not in EXCEPTION_FIELDS or name == "__traceback__":
            return False
        tx.recorder.changed()
        if name == "args":
            self.args = value.realize().items  # type: ignore[attr-defined]
        else:
            self.fields[name] = value.realize()
            if name == "__cause__":
                self.fields["__suppress_context__"] = ConstantVariable(True)
        return True

    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        self.check(tx)
        written, value = tx.recorder.side_effects.load_attr(self, name)
        if written:
            return value
        return self.attrs.get(name)

    def instance_setattr(self, tx: Tx, name: str, value: VariableTracker | None) -> None:
        self.check(tx)
        tx.recorder.side_effects.store_attr(self, name, value)

    def native_bool(self, tx: Tx) -> bool | None:
        return True

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        self.check(tx)
        if name == "with_traceback":
            return self
        if name == "__str__" and all(a.is_python_constant() for a in self.args):
            return ConstantVariable(str(self.as_exception()))
        if name == "__repr__" and all(a.is_python_constant() for a in self.args):
            return ConstantVariable(repr(self.as_exception()))
        if name == "__init__" and not kwargs:
            self.args = args
            return NONE
        return super().call_method(tx, name, args, kwargs)

    def as_exception(self) -> BaseException:
        """A real exception with the same class and constant arguments, for str() and repr()."""
        plain = [a.as_python_constant() for a in self.args]
        made = self.cls.__new__(self.cls, *plain)
        made.args = tuple(plain)
        if issubclass(self.cls, (ImportError, OSError, SyntaxError, UnicodeError)):
            made = self.cls(*plain)
        return made

    def debug_repr(self) -> str:
        return f"ExceptionVariable({self.cls.__name__})"
