"""int, float, bool, complex, abs, round, pow, divmod, and math and operator functions."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import ScalarFromTensor
from .. import protocol
from ..variables.base import NOTHING, VariableTracker, const
from ..variables.constant import ConstantVariable, boolean
from ..variables.numeric import FUNCTIONS, SymNodeVariable
from ..variables.tensor import TensorVariable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _convert(tx: Tx, cls: type, value: VariableTracker, method: str) -> VariableTracker | None:
    value = value.realize()
    if isinstance(value, TensorVariable):
        if tx.recorder.shapes.shape_env.allow_scalar_outputs:
            item = value.call_method(tx, "item", [], {})
            return _convert(tx, cls, item, method)
        raise StepUnsupported(ScalarFromTensor(f"{cls.__name__}(tensor)"))
    if isinstance(value, SymNodeVariable):
        return value._run(tx, FUNCTIONS[cls], value.value)
    plain = const(value)
    if plain is not NOTHING:
        return tx.fold(cls, [plain], {})
    result = protocol.special(tx, value, method, [])
    if result is None and protocol.has_special(value, "__index__"):
        result = protocol.special(tx, value, "__index__", [])
    return result


@handles(int)
def int_(tx: Tx, value: VariableTracker = ConstantVariable(0), *base: VariableTracker) -> VariableTracker | None:
    if base:
        return tx.fold(int, [const(value), const(base[0])], {})
    return _convert(tx, int, value, "__int__")


@handles(float)
def float_(tx: Tx, value: VariableTracker = ConstantVariable(0.0)) -> VariableTracker | None:
    return _convert(tx, float, value, "__float__")


@handles(bool)
def bool_(tx: Tx, value: VariableTracker = ConstantVariable(False)) -> VariableTracker:
    value = value.realize()
    if isinstance(value, SymNodeVariable) and isinstance(value.value, torch.SymBool):
        return value
    if isinstance(value, TensorVariable):
        raise StepUnsupported(ScalarFromTensor("bool(tensor)"))
    return boolean(protocol.truth(tx, value))


@handles(complex)
def complex_(tx: Tx, *parts: VariableTracker) -> VariableTracker | None:
    plain = [const(p) for p in parts]
    return None if NOTHING in plain else tx.fold(complex, plain, {})


@handles(abs, operator.abs)
def abs_(tx: Tx, value: VariableTracker) -> VariableTracker:
    return protocol.unary(tx, "abs", value)


@handles(operator.neg)
def neg(tx: Tx, value: VariableTracker) -> VariableTracker:
    return protocol.unary(tx, "-", value)


@handles(operator.pos)
def pos(tx: Tx, value: VariableTracker) -> VariableTracker:
    return protocol.unary(tx, "+", value)


@handles(operator.invert)
def invert(tx: Tx, value: VariableTracker) -> VariableTracker:
    return protocol.unary(tx, "~", value)


@handles(operator.not_)
def not_(tx: Tx, value: VariableTracker) -> VariableTracker:
    return boolean(not protocol.truth(tx, value))


@handles(operator.truth)
def truth(tx: Tx, value: VariableTracker) -> VariableTracker:
    return boolean(protocol.truth(tx, value))


@handles(operator.is_)
def is_(tx: Tx, left: VariableTracker, right: VariableTracker) -> VariableTracker:
    return boolean(protocol.is_same(tx, left, right))


@handles(operator.is_not)
def is_not(tx: Tx, left: VariableTracker, right: VariableTracker) -> VariableTracker:
    return boolean(not protocol.is_same(tx, left, right))


@handles(operator.contains)
def contains(tx: Tx, container: VariableTracker, item: VariableTracker) -> VariableTracker:
    return boolean(protocol.contains(tx, container, item))


@handles(operator.getitem)
def getitem(tx: Tx, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
    return protocol.getitem(tx, obj, key)


@handles(operator.setitem)
def setitem(tx: Tx, obj: VariableTracker, key: VariableTracker, value: VariableTracker) -> VariableTracker:
    protocol.setitem(tx, obj, key, value)
    return ConstantVariable(None)


@handles(operator.delitem)
def delitem(tx: Tx, obj: VariableTracker, key: VariableTracker) -> VariableTracker:
    protocol.delitem(tx, obj, key)
    return ConstantVariable(None)


@handles(operator.index)
def index(tx: Tx, value: VariableTracker) -> VariableTracker:
    value = value.realize()
    if isinstance(value, SymNodeVariable) and value.python_type() is int:
        return value
    return ConstantVariable(tx.concrete_int(value))


@handles(divmod)
def divmod_(tx: Tx, left: VariableTracker, right: VariableTracker) -> VariableTracker:
    from ..variables.sequences import TupleVariable

    a, b = left.realize(), right.realize()
    if const(a) is NOTHING or const(b) is NOTHING:
        if isinstance(a, SymNodeVariable) or isinstance(b, SymNodeVariable):
            return TupleVariable([protocol.binary(tx, "//", a, b), protocol.binary(tx, "%", a, b)])
    return protocol.binary(tx, "divmod", a, b)


@handles(pow)
def pow_(tx: Tx, base: VariableTracker, exp: VariableTracker, *mod: VariableTracker) -> VariableTracker | None:
    if mod:
        return None
    return protocol.binary(tx, "**", base, exp)


@handles(round)
def round_(tx: Tx, value: VariableTracker, digits: VariableTracker | None = None) -> VariableTracker | None:
    value = value.realize()
    if isinstance(value, SymNodeVariable):
        return value._run(tx, round, value.value) if digits is None else value._run(tx, round, value.value, const(digits))
    if isinstance(value, TensorVariable):
        named = {} if digits is None else {"decimals": digits}
        return value.call_method(tx, "round", [], named)
    return protocol.special(tx, value, "__round__", [] if digits is None else [digits])


def _operator_handler(op: str, apply: Any) -> Any:
    def handler(tx: Tx, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        return apply(tx, op, left, right)

    return handler


for _op, (_fn, _, _) in protocol.BINARY.items():
    if _op != "divmod":
        handles(_fn)(_operator_handler(_op, protocol.binary))
for _op, (_fn, _m) in protocol.INPLACE.items():
    handles(_fn)(_operator_handler(_op, protocol.inplace))
for _op, (_fn, _, _) in protocol.COMPARE.items():
    handles(_fn)(_operator_handler(_op, protocol.compare))


def _math_handler(fn: Any) -> Any:
    symbolic = FUNCTIONS.get(fn) or getattr(torch, f"_sym_{fn.__name__}", None)

    def handler(tx: Tx, value: VariableTracker, *rest: VariableTracker) -> VariableTracker | None:
        value = value.realize()
        if isinstance(value, SymNodeVariable) and not rest:
            if symbolic is not None:
                return value._run(tx, symbolic, value.value)
            return tx.fold(fn, [value.evaluate(tx, value.python_type())], {})
        if isinstance(value, TensorVariable):
            number = _convert(tx, float, value, "__float__")
            return handler(tx, number, *rest) if number is not None else None
        plain = [const(v) for v in (value, *rest)]
        if NOTHING in plain:
            if any(isinstance(v.realize(), SymNodeVariable) for v in (value, *rest)):
                plain = [v.realize().evaluate(tx, v.realize().python_type()) if isinstance(v.realize(), SymNodeVariable) else const(v) for v in (value, *rest)]  # type: ignore[attr-defined]
                if NOTHING not in plain:
                    return tx.fold(fn, plain, {})
            method = {math.ceil: "__ceil__", math.floor: "__floor__", math.trunc: "__trunc__"}.get(fn)
            return protocol.special(tx, value, method, []) if method and not rest else None
        return tx.fold(fn, plain, {})

    return handler


for _name in dir(math):
    _value = getattr(math, _name)
    if callable(_value) and _name not in ("prod", "fsum", "dist", "gcd", "lcm", "hypot", "isclose") and not _name.startswith("_"):
        handles(_value)(_math_handler(_value))


@handles(math.prod)
def prod(tx: Tx, values: VariableTracker, *, start: VariableTracker = ConstantVariable(1)) -> VariableTracker:
    total = start
    for item in protocol.unpack(tx, values):
        total = protocol.binary(tx, "*", total, item)
    return total
