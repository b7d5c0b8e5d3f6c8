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
        code, index = origin(code, target.index)
        table = code_data(code).setdefault("resume", {})
        key = (index, nulls, handled, stack_args, live, first_unbound)
        layout = table.get(key)
        if layout is None:
            name = f"torch_dynamo_resume_in_{original_name(code.co_name)}_at_{line}"
            try:
                layout = make_resume_code(
                    code, index, stack_args=stack_args, null_positions=nulls, handled_positions=handled, locals_live=live, name=name, first_unbound=first_unbound
                )
            except ResumeError as err:
                raise SkipFrame(f"the rest of the frame cannot be continued: {err}") from None
            table[key] = layout
            parents.add(layout.code, code, layout.origins)
        return layout


class _Parents:
    """Weak map from resume code to the code it continues."""

    def __init__(self) -> None:
        import weakref

        self._refs: dict[int, tuple[Any, Any]] = {}
        self._weakref = weakref

    def add(self, code: types.CodeType, parent: types.CodeType, origins: tuple[int, ...]) -> None:
        key = id(code)
        self._refs[key] = (self._weakref.ref(code, lambda _: self._refs.pop(key, None)), self._weakref.ref(parent), origins)

    def get(self, code: types.CodeType) -> tuple[types.CodeType, tuple[int, ...]] | None:
        """The code it continues and the place of each instruction there."""
        found = self._refs.get(id(code))
        if found is None or found[0]() is not code:
            return None
        parent = found[1]()
        return None if parent is None else (parent, found[2])

    def clear(self) -> None:
        self._refs.clear()


parents = _Parents()


def original_code(code: types.CodeType) -> types.CodeType:
    """The user's code that a resume code continues; itself for user code."""
    while (up := parents.get(code)) is not None:
        code = up[0]
    return code


def origin(code: types.CodeType, index: int) -> tuple[types.CodeType, int]:
    """A place of a resume code as a place of the user's code, so that a loop meets the same resume code in every round."""
    while (up := parents.get(code)) is not None and up[1][index] >= 0:
        code, index = up[0], up[1][index]
    return code, index


def instruction_at(code: types.CodeType, index: int) -> Instruction:
    return decode(code).instructions[index]
