"""`BuiltinVariable` and `TorchInGraphFunctionVariable`: callables implemented in C, and torch operations."""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from ...core import trace_rules
from ...core.exc import StepUnsupported
from ...core.reasons import PrintCall, SkippedFunction, UnsupportedBuiltin, UnsupportedOperation
from .base import NOTHING, VariableTracker, const
from .tensor import is_graph_argument

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


class CallableValueVariable(VariableTracker):
    """A callable known by its value."""

    def __init__(self, value: Any, source: Any = None) -> None:
        self.value = value
        self.source = source
        self.existing = True

    @property
    def hashable_value(self) -> Any:
        return self.value

    def python_type(self) -> type:
        return type(self.value)

    def native_bool(self, tx: Tx) -> bool | None:
        return True

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        value = getattr(self.value, name, NOTHING)
        return None if value is NOTHING else tx.wrap(value)

    def instance_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        table = getattr(self.value, "__dict__", None)
        return tx.wrap(table[name]) if isinstance(table, dict) and name in table else None

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        return getattr(other, "value", None) is self.value

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from .constant import boolean

        other = other.realize()
        if op in ("==", "!=") and hasattr(other, "value"):
            return boolean((self.value == other.value) == (op == "=="))
        return None

    def title(self) -> str:
        return getattr(self.value, "__qualname__", None) or getattr(self.value, "__name__", None) or repr(self.value)

    def fold_or_none(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker | None:
        """The result of really calling the function when it is pure and everything is constant."""
        if not trace_rules.is_foldable(self.value):
            return None
        plain, named = [const(a) for a in args], {k: const(v) for k, v in kwargs.items()}
        if any(p is NOTHING for p in (*plain, *named.values())):
            return None
        return tx.fold(self.value, plain, named)

    def debug_repr(self) -> str:
        return f"{type(self).__name__}({self.title()})"


class BuiltinVariable(CallableValueVariable):
    """A function or method descriptor implemented in C, outside torch."""

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import builtins as table
        from .. import calls

        handler = table.handler_of(self.value)
        if handler is not None:
            result = calls.invoke_handler(tx, handler, self.value, args, kwargs)
            if result is not None:
                return result
        if isinstance(self.value, (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)) and args:
            return calls.call_descriptor(tx, self.value, args, kwargs)
        folded = self.fold_or_none(tx, args, kwargs)
        if folded is not None:
            return folded
        if self.value in tx.recorder.config["reorderable_logging_functions"]:
            return defer_logging(tx, self, args, kwargs)
        raise self.break_reason()

    def break_reason(self) -> StepUnsupported:
        if self.value is print:
            return StepUnsupported(PrintCall("Dynamo does not know how to trace builtin operator `print`"))
        if getattr(self.value, "__module__", None) == builtins.__name__:
            return StepUnsupported(UnsupportedBuiltin(f"Dynamo does not know how to trace builtin operator `{self.title()}` on these operands"))
        return StepUnsupported(SkippedFunction(f"call of the C function {getattr(self.value, '__module__', None) or '?'}.{self.title()}"))


def defer_logging(tx: Tx, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
    """A registered logging function runs after the graph; its operands must not change until then."""
    from .constant import NONE, ConstantVariable
    from .tensor import TensorVariable

    for arg in (*args, *kwargs.values()):
        if not isinstance(arg.realize(), (ConstantVariable, TensorVariable)):
            raise StepUnsupported(PrintCall("a logging call with operands that may change before it runs"))
    tx.recorder.side_effects.defer_call(fn, args, kwargs)
    return NONE


class TorchInGraphFunctionVariable(CallableValueVariable):
    """A torch function that becomes one node."""

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import builtins as table
        from .. import calls

        handler = table.handler_of(self.value)
        if handler is not None:
            result = calls.invoke_handler(tx, handler, self.value, args, kwargs)
            if result is not None:
                return result
        for arg in (*args, *kwargs.values()):
            if not is_graph_argument(arg):
                if isinstance(self.value, types.FunctionType):
                    return calls.inline_torch_function(tx, self.value, self.source, args, kwargs)
                raise StepUnsupported(UnsupportedOperation(f"{self.title()} with a {arg.describe()} operand"))
        return tx.recorder.call(tx, "call_function", self.value, tuple(args), kwargs)


class SkipFunctionVariable(CallableValueVariable):
    """A function that is never traced; calling it breaks the graph."""

    def __init__(self, value: Any, source: Any, reason: Any) -> None:
        super().__init__(value, source)
        self.reason = reason

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import builtins as table
        from .. import calls

        handler = table.handler_of(self.value)
        if handler is not None:
            result = calls.invoke_handler(tx, handler, self.value, args, kwargs)
            if result is not None:
                return result
        folded = self.fold_or_none(tx, args, kwargs)
        if folded is not None:
            return folded
        if self.value in tx.recorder.config["reorderable_logging_functions"]:
            return defer_logging(tx, self, args, kwargs)
        raise StepUnsupported(self.reason)
