"""`%%compile` as IPython knows it: help, `%lsmagic`, completion, and running it by name.

The usual way in is `transform`, which replaces the magic line before IPython looks for magics; the
registered magic answers `%%compile?` and `run_cell_magic("compile", ...)`. Used by `session`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion, context_matcher

import dynamo_nb
from kernel_ext import options

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext
    from IPython.core.interactiveshell import InteractiveShell

_LINE = re.compile(r"%%compile[ \t](?P<rest>[^\n]*)$")


class Magic:
    """Registers the magic and the completion of its line."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def open(self) -> Callable[[], None]:
        """Register both; returns the function that takes them away again."""
        shell, matcher = self._shell, _matcher()

        def compile(line: str, cell: str) -> Any:
            result = shell.run_cell(f"%%compile {line}\n{cell}")
            result.raise_error()
            return None

        compile.__doc__ = options.help_text()
        shell.register_magic_function(compile, "cell", "compile")  # type: ignore[arg-type]
        if shell.Completer is not None:
            shell.Completer.custom_matchers.append(matcher)

        def undo() -> None:
            shell.magics_manager.magics["cell"].pop("compile", None)
            if shell.Completer is not None and matcher in shell.Completer.custom_matchers:
                shell.Completer.custom_matchers.remove(matcher)

        return undo


def _matcher() -> Callable[[CompletionContext], Any]:
    @context_matcher(identifier="kernel_ext.compile_options")
    def match(context: CompletionContext) -> Any:
        found = _LINE.match(context.text_until_cursor) if context.cursor_line == 0 else None
        if found is None:
            return {"completions": []}
        fragment, names = options.complete(found["rest"], dynamo_nb.list_backends(None))
        return {
            "completions": [SimpleCompletion(text=name, type="option") for name in names],
            "matched_fragment": fragment,
            "suppress": True,
        }

    return match
