"""`VariableTracker`: what the tracer knows of one Python object.

Identity of a tracker is identity of the object: two trackers never stand for one object. Subclasses
answer the operations their C type answers; everything that Python itself resolves (descriptors,
special methods, reflected operators) is resolved once, in `symbolic.protocol`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedOperation

if TYPE_CHECKING:
    from ...core.source import Source
    from ..interpreter import InstructionTranslatorBase as Tx

NOTHING: Any = object()


class VariableTracker:
    """source: where the object comes from at the next call; None if the frame made it.

    existing: the object lived before the frame began, so changes to it are effects to replay.
    step: the global step at which it came to be; a value that cannot be rebuilt breaks there.
    """

    source: Source | None = None
    existing = False
    step = 0
    mutable = False

    # -- what it is -------------------------------------------------------------------------
    def realize(self) -> VariableTracker:
        return self

    def python_type(self) -> type:
        raise NotImplementedError(type(self).__name__)

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotImplementedError(f"{self!r} is not a constant")

    def class_variable(self, tx: Tx) -> VariableTracker:
        """type(obj) as a tracker, with the source through which its attributes are guarded."""
        cls = self.python_type()
        made = tx.wrap(cls)
        if made.source is None:
            made.source = tx.class_source(self, cls)
        return made

    # -- what C code of its type does ---------------------------------------------------------
    def native_getattr(self, tx: Tx, name: str) -> VariableTracker | None:
        """Attribute stored in C (members, getsets) or in the instance; None if there is none."""
        return None

    def var_getattr(self, tx: Tx, name: str) -> VariableTracker:
        from .. import protocol

        return protocol.getattr_(tx, self, name)

    def call_function(self, tx: Tx, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        from .. import protocol

        return protocol.call_object(tx, self, args, kwargs)

    def call_method(self, tx: Tx, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """A method implemented in C by the object's type."""
        raise self.unsupported(f"{self.describe()}.{name}() on these operands")

    def binary(self, tx: Tx, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        """`self op other` (or `other op self`) as the C type does it; None for NotImplemented."""
        return None

    def compare(self, tx: Tx, op: str, other: VariableTracker) -> VariableTracker | None:
        """Rich comparison of the C type; None for NotImplemented."""
        return None

    def unary(self, tx: Tx, op: str) -> VariableTracker | None:
        return None

    def native_bool(self, tx: Tx) -> bool | None:
        """Truth by the C type's own rule; None where it has none (then __len__ decides, else True)."""
        return None

    def native_len(self, tx: Tx) -> VariableTracker | None:
        return None

    def native_iter(self, tx: Tx) -> VariableTracker | None:
        return None

    def native_next(self, tx: Tx) -> VariableTracker | None:
        """The next item of an iterator of a C type; raises StopIteration through tx; None: no iterator."""
        return None

    def native_contains(self, tx: Tx, item: VariableTracker) -> VariableTracker | None:
        return None

    def native_getitem(self, tx: Tx, key: VariableTracker) -> VariableTracker | None:
        return None

    def native_setitem(self, tx: Tx, key: VariableTracker, value: VariableTracker) -> bool:
        return False

    def native_delitem(self, tx: Tx, key: VariableTracker) -> bool:
        return False

    def as_graph_argument(self, tx: Tx) -> tuple[Any, Any]:
        """(FX argument, fake value) of this value as an operand of a node."""
        if self.is_python_constant():
            value = self.as_python_constant()
            return value, value
        raise self.unsupported(f"{self.describe()} as an operand of a tensor operation")

    # -- errors -----------------------------------------------------------------------------
    def unsupported(self, what: str) -> StepUnsupported:
        return StepUnsupported(UnsupportedOperation(what))

    def describe(self) -> str:
        try:
            return self.python_type().__name__
        except NotImplementedError:
            return type(self).__name__

    def debug_repr(self) -> str:
        return f"{type(self).__name__}()"

    def __repr__(self) -> str:
        return self.debug_repr()


class LazyVariableTracker(VariableTracker):
    """A value from outside that nobody has looked at yet: no guard until it is realised."""

    def __init__(self, value: Any, source: Source, tx: Tx) -> None:
        self._value = value
        self.source = source
        self.existing = True
        self._build = tx.build
        self.inner: VariableTracker | None = None

    def realize(self) -> VariableTracker:
        inner = self.inner
        if inner is None:
            inner = self.inner = self._build(self._value, self.source).realize()
            self._value = None
        return inner

    @property
    def is_realized(self) -> bool:
        return self.inner is not None

    def peek_type(self) -> type:
        return type(self._value) if self.inner is None else self.inner.python_type()

    @property
    def value(self) -> Any:
        return self._value

    def python_type(self) -> type:
        return self.realize().python_type()

    def is_python_constant(self) -> bool:
        return self.realize().is_python_constant()

    def as_python_constant(self) -> Any:
        return self.realize().as_python_constant()

    def debug_repr(self) -> str:
        if self.inner is None:
            return f"LazyVariableTracker(unrealized: {type(self._value)})"
        return repr(self.inner)


def const(vt: VariableTracker) -> Any:
    """The Python constant behind a tracker, or NOTHING."""
    vt = vt.realize()
    return vt.as_python_constant() if vt.is_python_constant() else NOTHING
