"""`SymNodeVariable`: a Python number that is a symbol (a dynamic size, or an int or float that varies).

Arithmetic is done by torch's SymInt and SymFloat; a graph node is made only when the number enters the
graph or leaves the frame. A branch on it becomes a shape guard.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import DataDependentBranching, UnsupportedOperation
from .base import NOTHING, VariableTracker, const
from .constant import ConstantVariable

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx

CONCRETE = frozenset({"&", "|", "^", "<<", ">>", "@"})
PYTHON_TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


class SymNodeVariable(VariableTracker):
    """value: torch.SymInt, SymFloat or SymBool; node: its graph node once one exists."""

    def __init__(self, value: Any, node: torch.fx.Node | None, source: Any = None) -> None:
        self.value = value
        self.node = node
        self.source = source

    def python_type(self) -> type:
        return PYTHON_TYPES[type(self.value)]

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        if self.node is None:
            self.node = tx.recorder.shapes.node_of(tx, self.value)
        return self.node, self.value

    def other_operand(self, other: VariableTracker) -> Any:
        other = other.realize()
        if isinstance(other, SymNodeVariable):
            return other.value
        value = const(other)
        return value if isinstance(value, (int, float, bool)) else NOTHING

    def _run(self, tx: Tx, fn: Any, *operands: Any) -> VariableTracker:
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        try:
            result = fn(*operands)
        except GuardOnDataDependentSymNode as err:
            raise StepUnsupported(DataDependentBranching(str(err).splitlines()[0])) from None
        except Exception:
            return self._run_concrete(tx, fn, operands)     # the algebra cannot say it; Python can
        return wrap_number(result)

    def _run_concrete(self, tx: Tx, fn: Any, operands: tuple[Any, ...]) -> VariableTracker:
        plain = [SymNodeVariable(o, None).evaluate(tx, PYTHON_TYPES[type(o)]) if type(o) in PYTHON_TYPES else o for o in operands]
        return tx.fold(CONCRETE_FUNCTIONS.get(fn, fn), plain, {})

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        from ..protocol import BINARY

        operand = self.other_operand(other)
        if operand is NOTHING:
            return None
        if op in CONCRETE or (isinstance(operand, float) and not math.isfinite(operand)) or isinstance(self.value, torch.SymBool) or isinstance(operand, torch.SymBool):
            return self._concrete(tx, op, other, reflected)
        if isinstance(self.value, torch.SymFloat) or isinstance(operand, (torch.SymFloat, float)):
            return self._float_arithmetic(tx, f"({{}} {op} {{}})", BINARY[op][0], (operand, self.value) if reflected else (self.value, operand))
        fn = BINARY[op][0]
        return self._run(tx, fn, operand, self.value) if reflected else self._run(tx, fn, self.value, operand)

    def _float_arithmetic(self, tx: Tx, template: str, fn: Any, operands: tuple[Any, ...]) -> VariableTracker:
        """Python does it, before the graph is called, where the operands come from the inputs."""
        if any(type(o) in PYTHON_TYPES and o.node.hint is None for o in operands):
            return self._run(tx, fn, *operands)
        try:
            value = fn(*(PYTHON_TYPES[type(o)](o.node.hint) if type(o) in PYTHON_TYPES else o for o in operands))
        except ArithmeticError:
            return self._run_concrete(tx, fn, operands)
        if type(value) is not float or value == 0.0 or not math.isfinite(value):
            return self._run_concrete(tx, fn, operands)
        made = tx.recorder.shapes.computed_float(template, operands, value)
        return self._run(tx, fn, *operands) if made is None else SymNodeVariable(made, None)

    def _concrete(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker:
        """Bit operations and arithmetic on truth values have no use as symbols."""
        from ..protocol import binary

        other = other.realize()
        theirs = other.specialize(tx) if isinstance(other, SymNodeVariable) else other
        return binary(tx, op, theirs, self.specialize(tx)) if reflected else binary(tx, op, self.specialize(tx), theirs)

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        from ..protocol import COMPARE, compare

        operand = self.other_operand(other)
        if operand is NOTHING:
            return None
        if isinstance(self.value, torch.SymBool) or isinstance(operand, (torch.SymBool, bool)) or (isinstance(operand, float) and not math.isfinite(operand)):
            theirs = other.realize()
            return compare(tx, op, self.specialize(tx), theirs.specialize(tx) if isinstance(theirs, SymNodeVariable) else theirs)
        return self._run(tx, COMPARE[op][0], self.value, operand)

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        from ..protocol import UNARY, unary

        if isinstance(self.value, torch.SymBool):
            return unary(tx, op, self.specialize(tx))
        if isinstance(self.value, torch.SymFloat) and op in ("-", "abs"):
            return self._float_arithmetic(tx, "(-{})" if op == "-" else "abs({})", UNARY[op][0], (self.value,))
        return self._run(tx, UNARY[op][0], self.value)

    def native_bool(self, tx: Tx) -> bool | None:
        return self.evaluate(tx, bool)

    def evaluate(self, tx: Tx, to: type) -> Any:
        """The number itself; guards that it stays so."""
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        try:
            return to(self.value)
        except GuardOnDataDependentSymNode as err:
            raise StepUnsupported(DataDependentBranching(str(err).splitlines()[0])) from None

    def specialize(self, tx: Tx) -> ConstantVariable:
        return ConstantVariable(self.evaluate(tx, self.python_type()))

    def is_same_object(self, tx: Tx, other: VariableTracker) -> bool:
        from ..protocol import is_same

        if isinstance(self.value, torch.SymBool):
            return is_same(tx, self.specialize(tx), other.specialize(tx) if isinstance(other, SymNodeVariable) else other)
        raise StepUnsupported(UnsupportedOperation("`is` on numbers that vary"))

    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        if name in ("real", "numerator"):
            return self
        return None

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if name in ("__index__", "__int__", "__trunc__") and self.python_type() is int:
            return self
        if name == "is_integer" and self.python_type() is int:
            return ConstantVariable(True)
        if name == "__ceil__" or name == "__floor__":
            return self._run(tx, getattr(math, name.strip("_")), self.value)
        return self.specialize(tx).call_method(tx, name, args, kwargs)

    def debug_repr(self) -> str:
        return f"SymNodeVariable({self.value})"


def wrap_number(value: Any) -> VariableTracker:
    if isinstance(value, tuple(PYTHON_TYPES)):
        plain = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
        if plain is None and value.node.is_constant():
            plain = value.node.maybe_as_bool() if isinstance(value, torch.SymBool) else value.node.maybe_as_float()
        if plain is not None:
            return ConstantVariable(PYTHON_TYPES[type(value)](plain))
        return SymNodeVariable(value, None)
    return ConstantVariable(value)


FUNCTIONS: dict[Any, Any] = {
    int: torch.sym_int, float: torch.sym_float, math.ceil: math.ceil, math.floor: math.floor, math.trunc: math.trunc, abs: abs, round: round,
    math.sqrt: torch._sym_sqrt, operator.index: lambda v: v,
}
CONCRETE_FUNCTIONS: dict[Any, Any] = {torch.sym_int: int, torch.sym_float: float, torch._sym_sqrt: math.sqrt, torch.sym_max: max, torch.sym_min: min}
