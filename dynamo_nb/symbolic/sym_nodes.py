"""Sympy expressions over shape symbols as graph nodes: the inverse of what ShapeEnv does to sizes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..core.exc import StepUnsupported
from ..core.reasons import UnsupportedOperation

if TYPE_CHECKING:
    from .interpreter import InstructionTranslatorBase as Tx

# class name of the sympy function -> Python operation on numbers
OPERATIONS: dict[str, Any] = {
    "Add": operator.add, "Mul": operator.mul, "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv,
    "Mod": operator.mod, "PythonMod": operator.mod, "Max": torch.sym_max, "Min": torch.sym_min,
    "IntTrueDiv": operator.truediv, "FloatTrueDiv": operator.truediv, "ToFloat": torch.sym_float,
    "FloatPow": operator.pow, "PowByNatural": operator.pow, "Pow": operator.pow, "CeilToInt": math.ceil,
    "FloorToInt": math.floor, "TruncToInt": math.trunc, "RoundToInt": round, "Abs": abs,
    "Equality": operator.eq, "Unequality": operator.ne, "StrictLessThan": operator.lt, "LessThan": operator.le,
    "StrictGreaterThan": operator.gt, "GreaterThan": operator.ge, "And": operator.and_, "Or": operator.or_, "Not": torch.sym_not,
    "LShift": operator.lshift, "RShift": operator.rshift, "Identity": lambda x: x,
}
ASSOCIATIVE = {"Add", "Mul", "Max", "Min", "And", "Or"}


def build(tx: Tx, expr: Any, lower: Callable[[Any], Any]) -> Any:
    """A node that computes expr; `lower` gives the node or number of a sub-expression."""
    kind = type(expr).__name__
    if kind == "Pow" and expr.exp == -1:
        return _node(tx, operator.truediv, (1, lower(expr.base)))
    if expr.is_Rational:
        return float(expr)
    operation = OPERATIONS.get(kind) or OPERATIONS.get(getattr(type(expr).func, "__name__", ""))
    if operation is None:
        raise StepUnsupported(UnsupportedOperation(f"shape expression {expr}"))
    parts = [lower(a) for a in expr.args]
    if kind in ASSOCIATIVE:
        return functools.reduce(lambda a, b: _node(tx, operation, (a, b)), parts)
    return _node(tx, operation, tuple(parts))


def _node(tx: Tx, operation: Any, args: tuple[Any, ...]) -> Any:
    if not any(isinstance(a, torch.fx.Node) for a in args):
        return operation(*args)
    node = tx.recorder.create_node(tx, "call_function", operation, args, {})
    values = [a.meta["example_value"] if isinstance(a, torch.fx.Node) else a for a in args]
    node.meta["example_value"] = operation(*values)
    return node
