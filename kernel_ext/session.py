"""The `%%compile` machinery of one shell: cards by cell, and where each event of the compiler belongs.

In: `begin` and `define`, called by transformed cells, IPython's callbacks and the compiler's events.
Out: compiled definitions and cards that are brought up to date after every cell. `load` and `unload`
are called by the extension's entry points.
"""

from __future__ import annotations

import logging
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import dynamo_nb
from dynamo_nb.core import events
from dynamo_nb.reports.run import sketch_of
from kernel_ext import options, wrap
from kernel_ext.card import Card
from kernel_ext.magic import Magic
from kernel_ext.progress import Progress
from kernel_ext.transform import CellTransformer, DefinitionTransformer

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_log = logging.getLogger("kernel_ext")
_MAX_CARDS = 100
_MAX_FRAMES = 200
_TIMED = "<timed exec>"
_sessions: weakref.WeakKeyDictionary[InteractiveShell, Session] = weakref.WeakKeyDictionary()


class Session:
    """Everything `%%compile` keeps for one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.rich = getattr(shell, "kernel", None) is not None
        self.cards: OrderedDict[int, Card] = OrderedDict()      # by token, oldest first
        self.lines = CellTransformer()
        self.tree = DefinitionTransformer()
        self.magic = Magic(shell)
        self.progress = Progress(self.rich)
        self._cell = ""
        self._undo: list[Callable[[], object]] = []

    def open(self) -> None:
        shell = self.shell
        shell.input_transformers_cleanup.append(self.lines)
        self._undo.append(lambda: shell.input_transformers_cleanup.remove(self.lines))
        shell.ast_transformers.append(self.tree)
        self._undo.append(self._drop_tree)
        shell.events.register("pre_run_cell", self._before_cell)
        self._undo.append(lambda: shell.events.unregister("pre_run_cell", self._before_cell))
        shell.events.register("post_run_cell", self._after_cell)
        self._undo.append(lambda: shell.events.unregister("post_run_cell", self._after_cell))
        self._undo.append(self.magic.open())
        self._undo.append(events.subscribe(self._on_event))

    def _drop_tree(self) -> None:
        if self.tree in self.shell.ast_transformers:     # IPython itself drops one that raised
            self.shell.ast_transformers.remove(self.tree)

    def close(self) -> None:
        while self._undo:
            self._undo.pop()()
        self.progress.reset()
        for card in self.cards.values():
            card.close()
        self.cards.clear()

    # ---- cells

    def begin(self, line: str, key: str, token: int, file: str) -> None:
        """A `%%compile` cell starts; an earlier card of the same cell is given up."""
        chosen = options.parse(line, dynamo_nb.list_backends(None))
        if file == _TIMED:
            file = f"<timed exec {key}>"
        for old in [old for old, card in self.cards.items() if card.file == file or (self._cell and card.cell == self._cell)]:
            self.cards.pop(old).close()
        while len(self.cards) >= _MAX_CARDS:
            self.cards.popitem(last=False)[1].close()
        self.cards[token] = Card(self._cell, file, chosen, self.rich)

    def define(self, token: int, name: str, value: Any) -> Any:
        """What the cell's name is bound to in place of `value`."""
        card = self.cards.get(token)
        if card is None:
            return value
        if card.file.startswith("<timed exec "):
            self._relocate(value, card.file)
        keywords = card.options.compile_keywords()
        result = wrap.wrap(value, name, lambda function: dynamo_nb.compile(function, **keywords))
        if result.left:
            card.leave(result.left)
        sketch = sketch_of(result.function) if result.function is not None else None
        if sketch is not None:
            card.add(sketch)
        return result.value

    def _relocate(self, value: Any, file: str) -> None:
        text = self.lines.texts.get(file.removeprefix("<timed exec ").removesuffix(">"))
        function = vars(value).get("forward") if isinstance(value, type) else value
        if text is not None and isinstance(function, types.FunctionType) and function.__code__.co_filename == _TIMED:
            wrap.relocate(function, file, text)

    def _before_cell(self, info: Any) -> None:
        self._cell = getattr(info, "cell_id", None) or ""

    def _after_cell(self, result: Any) -> None:
        self.progress.reset()
        for card in list(self.cards.values()):
            if card.dirty:
                card.show()

    # ---- events

    def _on_event(self, kind: str, record: Any) -> None:
        """A fault in the display must never disturb a compile, so it is logged instead."""
        try:
            self.progress.take(kind, record)
            if kind in ("compile_end", "limit", "run_failed", "generated"):
                card = self.card_for(record)
                if card is not None:
                    card.take(kind, record)
        except Exception:
            _log.exception("the report of %%compile could not take the event %r", kind)

    def card_for(self, record: Any) -> Card | None:
        """The newest card whose cell the frame is from, whose code it inlined, or beneath which it runs."""
        files = {card.file: card for card in self.cards.values()}
        own = record.get("file") if isinstance(record, dict) else getattr(record, "file", "")
        if own in files:
            return files[own]
        for file in (*getattr(record, "compiled_lines", ()), *getattr(record, "files", ())):
            if file in files:
                return files[file]
        frame, depth = sys._getframe(1), 0
        while frame is not None and depth < _MAX_FRAMES:
            if frame.f_code.co_filename in files:
                return files[frame.f_code.co_filename]
            frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
        return None


def load(shell: InteractiveShell) -> None:
    """Start a session for the shell unless it has one."""
    if shell not in _sessions:
        session = Session(shell)
        session.open()
        _sessions[shell] = session


def unload(shell: InteractiveShell) -> None:
    """End the shell's session and undo all it registered."""
    session = _sessions.pop(shell, None)
    if session is not None:
        session.close()


def _current() -> Session:
    from IPython import get_ipython

    session = _sessions.get(shell) if (shell := get_ipython()) is not None else None
    if session is None:
        raise UsageError("%%compile isn't loaded in this shell; run %load_ext dynamo_nb")
    return session


def begin(line: str, key: str, token: int = 0) -> None:
    """First statement of a `%%compile` cell. token: given by the AST transformer."""
    if not token:
        raise UsageError("%%compile can't reach the definitions here: this magic runs its cell without IPython's AST transformers; "
                         "put it in a later cell")
    _current().begin(line, key, token, sys._getframe(1).f_code.co_filename)


def define(token: int, name: str) -> Callable[[Any], Any]:
    """Outermost decorator of what a `%%compile` cell defines."""
    session = _current()
    return lambda value: session.define(token, name, value)


