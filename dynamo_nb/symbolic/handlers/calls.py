"""Calls and making functions."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ...core.exc import StepUnsupported
from ...core.reasons import UnsupportedInstruction
from .. import protocol
from ..variables.base import VariableTracker, const
from ..variables.functions import NestedUserFunctionVariable
from ..variables.mappings import as_dict
from ..variables.misc import NullVariable

if TYPE_CHECKING:
    from ...cpython.instruction import Instruction


class CallHandlers:
    stack: list[Any]
    kw_names: tuple[str, ...]
    boundary: Any

    def KW_NAMES(self, inst: Instruction) -> None:
        names = inst.argval
        self.kw_names = names if isinstance(names, tuple) else self.code.co_consts[inst.arg]  # type: ignore[attr-defined]

    def PRECALL(self, inst: Instruction) -> None:
        """Begins a call group; the step began here unless KW_NAMES did."""
        if not self.kw_names:
            self._begin(inst)  # type: ignore[attr-defined]

    def CALL(self, inst: Instruction) -> None:
        values = self.popn(inst.arg)  # type: ignore[attr-defined]
        names, self.kw_names = self.kw_names, ()
        second, first = self.stack.pop(), self.stack.pop()
        if isinstance(first, NullVariable):
            fn = second
        else:
            fn, values = first, [second, *values]
        count = len(values) - len(names)
        self._call(fn, values[:count], dict(zip(names, values[count:], strict=True)))

    def _call(self, fn: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        fn = fn.realize()
        self.boundary = fn
        result = fn.call_function(self, args, kwargs)  # type: ignore[arg-type]
        self.boundary = None
        self.stack.append(result)

    def CALL_FUNCTION(self, inst: Instruction) -> None:
        """The form of 3.10: callable below its positional arguments."""
        args = self.popn(inst.arg)  # type: ignore[attr-defined]
        self._call(self.stack.pop(), args, {})

    CALL_METHOD = CALL_FUNCTION

    def CALL_FUNCTION_EX(self, inst: Instruction) -> None:
        kwargs: dict[str, VariableTracker] = {}
        if inst.arg & 1:  # type: ignore[operator]
            mapping = self.stack.pop().realize()
            table = as_dict(mapping)
            if table is None:
                raise StepUnsupported(UnsupportedInstruction("a call with ** of something that is no dict"))
            table.known_items(self)  # type: ignore[arg-type]
            kwargs = {k.as_python_constant(): v for k, v in table.items.values()}
        args = protocol.unpack(self, self.stack.pop())  # type: ignore[arg-type]
        fn = self.stack.pop()
        if not isinstance(self.stack.pop(), NullVariable):
            raise StepUnsupported(UnsupportedInstruction("CALL_FUNCTION_EX without NULL"))
        self._call(fn, args, kwargs)

    def MAKE_FUNCTION(self, inst: Instruction) -> None:
        flags = inst.arg or 0
        code = const(self.stack.pop())
        closure = self.stack.pop().items if flags & 8 else []
        annotations = self.stack.pop() if flags & 4 else None
        kwdefaults = self.stack.pop() if flags & 2 else None
        defaults = self.stack.pop().realize().items if flags & 1 else None
        assert isinstance(code, types.CodeType)
        owner = self.function if self.depth else None  # type: ignore[attr-defined]
        made = NestedUserFunctionVariable(code, self.globals, list(closure), defaults, kwdefaults, annotations, self)  # type: ignore[attr-defined]
        made.owner = owner  # type: ignore[attr-defined]
        made.step = self.recorder.step  # type: ignore[attr-defined]
        self.stack.append(made)
