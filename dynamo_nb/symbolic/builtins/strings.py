"""str, repr, format, and the text of values in f-strings and % formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...core.exc import ObservedException, StepUnsupported
from ...core.reasons import UnsupportedOperation
from .. import protocol
from ..variables.base import NOTHING, VariableTracker, const
from ..variables.constant import ConstantVariable
from ..variables.numeric import SymNodeVariable
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


def _plain(tx: Tx, value: VariableTracker) -> Any:
    """The Python value whose text is wanted, or NOTHING."""
    value = value.realize()
    if isinstance(value, SymNodeVariable):
        value = value.specialize(tx)
    if type(value).__name__ in ("UserDefinedClassVariable",):
        return value.value  # type: ignore[attr-defined]
    plain = const(value)
    if plain is NOTHING:
        return _container(tx, value)
    return plain


class _Text:
    """Stands for a value inside a container whose repr is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _container(tx: Tx, value: VariableTracker) -> Any:
    from ..variables.mappings import ConstDictVariable, SetVariable
    from ..variables.sequences import NamedTupleVariable, SequenceVariable, SliceVariable

    def part(item: VariableTracker) -> Any:
        return _Text(const(repr_of(tx, item)))

    if isinstance(value, SequenceVariable) and not isinstance(value, (NamedTupleVariable, SliceVariable)):
        return value.kind((_plain(tx, i) if value.kind is torch.Size else part(i)) for i in value.items)
    if isinstance(value, ConstDictVariable) and value.kind is dict:
        return _Text("{" + ", ".join(f"{const(repr_of(tx, k))}: {const(repr_of(tx, v))}" for k, v in value.items.values()) + "}")
    if isinstance(value, SetVariable):
        return NOTHING
    return NOTHING


def repr_of(tx: Tx, value: VariableTracker) -> VariableTracker:
    value = value.realize()
    result = protocol.special(tx, value, "__repr__", [])
    if result is not None:
        return result
    plain = _plain(tx, value)
    if plain is NOTHING:
        if type(value).__name__ == "ExceptionVariable":
            return value.call_method(tx, "__repr__", [], {})
        raise StepUnsupported(UnsupportedOperation(f"repr() of a {value.describe()}"))
    return tx.fold(repr, [plain], {})


def str_of(tx: Tx, value: VariableTracker) -> VariableTracker:
    value = value.realize()
    result = protocol.special(tx, value, "__str__", [])
    if result is not None:
        return result
    if type(value).__name__ == "ExceptionVariable":
        return value.call_method(tx, "__str__", [], {})
    if protocol.is_python_override(value.python_type(), "__repr__") and not isinstance(const(value), str):
        return repr_of(tx, value)
    plain = _plain(tx, value)
    if plain is NOTHING:
        raise StepUnsupported(UnsupportedOperation(f"str() of a {value.describe()}"))
    return tx.fold(str, [plain], {})


def ascii_of(tx: Tx, value: VariableTracker) -> VariableTracker:
    return tx.fold(lambda text: text.encode("ascii", "backslashreplace").decode(), [const(repr_of(tx, value))], {})


def format_of(tx: Tx, value: VariableTracker, spec: VariableTracker) -> VariableTracker:
    value = value.realize()
    result = protocol.special(tx, value, "__format__", [spec])
    if result is not None:
        return result
    text = const(spec)
    if not text and not isinstance(const(value), (int, float)):
        return str_of(tx, value)
    plain = _plain(tx, value)
    if plain is NOTHING or isinstance(plain, _Text):
        raise StepUnsupported(UnsupportedOperation(f"format() of a {value.describe()}"))
    return tx.fold(format, [plain, text], {})


@handles(str)
def str_(tx: Tx, value: VariableTracker = ConstantVariable("")) -> VariableTracker:
    return str_of(tx, value)


@handles(repr)
def repr_(tx: Tx, value: VariableTracker) -> VariableTracker:
    return repr_of(tx, value)


@handles(ascii)
def ascii_(tx: Tx, value: VariableTracker) -> VariableTracker:
    return ascii_of(tx, value)


@handles(format)
def format_(tx: Tx, value: VariableTracker, spec: VariableTracker = ConstantVariable("")) -> VariableTracker:
    return format_of(tx, value, spec)


@handles(str.__mod__)
def mod(tx: Tx, template: VariableTracker, operand: VariableTracker) -> VariableTracker | None:
    operand = operand.realize()
    given = _operands(tx, operand)
    if given is NOTHING:
        return None
    try:
        return tx.fold(lambda: const(template) % given, [], {})
    except ObservedException:
        if _holds_text(given):
            raise StepUnsupported(UnsupportedOperation(f"% of a str and a {operand.describe()}")) from None
        raise


def _operands(tx: Tx, operand: VariableTracker) -> Any:
    """What stands right of the %: a tuple or dict of values, or one value; NOTHING where some text isn't known."""
    from ..variables.mappings import ConstDictVariable
    from ..variables.sequences import TupleVariable

    if type(operand) is TupleVariable:
        parts = [_plain(tx, item) for item in operand.items]
        return NOTHING if any(p is NOTHING for p in parts) else tuple(parts)
    if isinstance(operand, ConstDictVariable) and operand.kind is dict:
        named = {const(k): _plain(tx, v) for k, v in operand.items.values()}
        return NOTHING if any(p is NOTHING for p in (*named, *named.values())) else named
    return _plain(tx, operand)


def _holds_text(given: Any) -> bool:
    """Is something given only by its repr, which conversions other than %s and %r would see through?"""
    if isinstance(given, (list, tuple)):
        return any(map(_holds_text, given))
    return any(map(_holds_text, given.values())) if isinstance(given, dict) else isinstance(given, _Text)
