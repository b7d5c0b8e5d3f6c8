"""Collects what the event stream says while a piece of code runs, in bounded memory.

In: events of `core.events`. Out: a `CompileReport` through `Collector.report()`. Used by `report()`
and, one collector a card, by kernel_ext.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from dynamo_nb.core import events
from dynamo_nb.core.records import CompileRecord
from dynamo_nb.reports.assemble import assemble
from dynamo_nb.reports.model import CompileReport, FunctionSketch

NOTE_KINDS = {
    "limit": "Recompile limit reached",
    "run_failed": "A compiled graph failed while running, so the original code ran instead",
    "reset": "The compiler was reset; what follows was compiled afresh",
}
MAX_NOTES = 50


class Collector:
    """Keeps at most `limit` records (the first ones: causes come before consequences) and a few notes."""

    def __init__(self, limit: int = 400) -> None:
        self.limit = limit
        self.records: list[CompileRecord] = []
        self.notes: list[str] = []
        self.dropped = 0
        self._lock = threading.Lock()

    def __call__(self, kind: str, record: Any) -> None:
        """Take one event; kinds a report doesn't show are ignored."""
        with self._lock:
            if kind == "compile_end":
                self._keep(record)
            elif kind in NOTE_KINDS:
                self.note(describe(kind, record))

    def _keep(self, record: CompileRecord) -> None:
        if any(kept is record for kept in self.records):
            return
        if len(self.records) >= self.limit:
            self.dropped += 1
        else:
            self.records.append(record)

    def note(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    @contextlib.contextmanager
    def listening(self) -> Iterator[Collector]:
        with events.listening(self):
            yield self

    def report(self, title: str, sketches: Sequence[FunctionSketch] = (), notes: Sequence[str] = ()) -> CompileReport:
        """The report of what was collected; `sketches` are functions to list even if never called."""
        with self._lock:
            records, collected, dropped = list(self.records), list(self.notes), self.dropped
        return CompileReport(title, assemble(records, sketches), [*notes, *collected], dropped)


def describe(kind: str, record: Any) -> str:
    """One sentence for an event that becomes a note."""
    head = NOTE_KINDS[kind]
    if isinstance(record, str):
        return f"{head}: {record}" if record else f"{head}."
    if isinstance(record, CompileRecord):
        why = f": {record.why}" if record.why else "."
        return f"{head} in {record.function} ({record.file}:{record.first_line}){why}"
    if isinstance(record, dict) and "error" in record:
        return f"{head}: {record['error']}"
    if isinstance(record, dict) and "function" in record:
        return f"{head} in {record['function']}: {record.get('limit', '')}; last reason: {record.get('reason', '')}"
    if isinstance(record, dict):
        detail = ", ".join(f"{key} {value}" for key, value in record.items())
        return f"{head}: {detail}" if detail else f"{head}."
    return f"{head}." if record is None else f"{head}: {record}"
