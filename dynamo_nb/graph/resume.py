"""`ContinueExecutionCache`: resume code for the rest of a frame after a break, one per place and shape (chapter 12.24)."""

from __future__ import annotations

import re
import types
from typing import TYPE_CHECKING, Any

from ..core.exc import SkipFrame
from ..cpython.assemble import decode
from ..cpython.resume import ResumeError, ResumeLayout, make_resume_code
from ..native import code_data

if TYPE_CHECKING:
    from ..cpython.instruction import Instruction

RESUME_NAME = re.compile(r"torch_dynamo_resume_in_(.*)_at_\d+$")


def original_name(name: str) -> str:
    """f for torch_dynamo_resume_in_f_at_9."""
    match = RESUME_NAME.match(name)
    return match.group(1) if match else name


class ContinueExecutionCache:
    """Resume layouts by (place, stack shape, live locals); kept with the code object they continue."""

    @staticmethod
    def lookup(code: types.CodeType, target: Instruction, *, line: int, nulls: tuple[int, ...], handled: tuple[int, ...], stack_args: int, live: tuple[str, ...], first_unbound: bool) -> ResumeLayout:
        table = code_data(code).setdefault("resume", {})
        key = (target.index, nulls, handled, stack_args, live, first_unbound)
        layout = table.get(key)
        if layout is None:
            name = f"torch_dynamo_resume_in_{original_name(code.co_name)}_at_{line}"
            try:
                layout = make_resume_code(
                    code, target.index, stack_args=stack_args, null_positions=nulls, handled_positions=handled, locals_live=live, name=name, first_unbound=first_unbound
                )
            except ResumeError as err:
                raise SkipFrame(f"the rest of the frame cannot be continued: {err}") from None
            table[key] = layout
            parents[layout.code] = code
        return layout


class _Parents:
    """Weak map from resume code to the code it continues."""

    def __init__(self) -> None:
        import weakref

        self._refs: dict[int, tuple[Any, Any]] = {}
        self._weakref = weakref

    def __setitem__(self, code: types.CodeType, parent: types.CodeType) -> None:
        key = id(code)
        self._refs[key] = (self._weakref.ref(code, lambda _: self._refs.pop(key, None)), self._weakref.ref(parent))

    def get(self, code: types.CodeType) -> types.CodeType | None:
        found = self._refs.get(id(code))
        return found[1]() if found is not None and found[0]() is code else None

    def clear(self) -> None:
        self._refs.clear()


parents = _Parents()


def original_code(code: types.CodeType) -> types.CodeType:
    """The user's code that a resume code continues; itself for user code."""
    while (up := parents.get(code)) is not None:
        code = up
    return code


def instruction_at(code: types.CodeType, index: int) -> Instruction:
    return decode(code).instructions[index]
