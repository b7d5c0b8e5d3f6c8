"""The report card of one cell: what it knows and how it is shown.

In: functions the cell defines and the events that concern them. Out: in a notebook two outputs, the
static report (kept in the saved notebook, updated under its display id) and the widget; in a terminal
text. Owned by `session.Session`. Holds no live object of the user's.
"""

from __future__ import annotations

import uuid
from typing import Any

from IPython.display import publish_display_data

from dynamo_nb.reports import Collector, CompileReport, FunctionSketch
from dynamo_nb.reports.text import one_line
from kernel_ext.options import Options
from kernel_ext.widget import ReportWidget, widget_for

_NOTHING = "This cell defines nothing to compile: %%compile takes the functions and nn.Module classes a cell defines."


class Card:
    """State: `dirty` while something happened that isn't shown yet; `shown` once there is an output."""

    def __init__(self, cell: str, file: str, options: Options, rich: bool) -> None:
        self.cell = cell
        self.file = file
        self.options = options
        self.rich = rich
        self.id = f"dnb-{uuid.uuid4().hex[:12]}"
        self.collector = Collector()
        self.sketches: list[FunctionSketch] = []
        self.left: list[str] = []
        self.dirty = True
        self.shown = False
        self._widget: ReportWidget | None = None

    def add(self, sketch: FunctionSketch) -> None:
        """A function the cell defines; a redefinition in the same place replaces the earlier one."""
        self.sketches = [known for known in self.sketches if (known.file, known.first_line) != (sketch.file, sketch.first_line)]
        self.sketches.append(sketch)
        self.dirty = True

    def leave(self, what: str) -> None:
        if what not in self.left:
            self.left.append(what)

    def take(self, kind: str, record: Any) -> None:
        """An event that concerns this card."""
        self.collector(kind, record)
        self.dirty = self.dirty or kind in ("compile_end", "limit", "run_failed", "generated")

    def report(self) -> CompileReport:
        notes = [f"Left as they are: {', '.join(self.left)}."] if self.left else []
        if not self.sketches and not self.collector.records:
            notes.insert(0, _NOTHING)
        return self.collector.report(self._title(), self.sketches, notes)

    def _title(self) -> str:
        names = [sketch.name for sketch in self.sketches]
        if len(names) > 4:
            return f"{', '.join(names[:4])} and {len(names) - 4} more"
        return ", ".join(names) or "%%compile"

    def show(self) -> None:
        """Bring the output up to date; the first time makes it."""
        first, self.shown, self.dirty = not self.shown, True, False
        if not self.options.report:
            return
        report = self.report()
        if not self.rich:
            brief = self.options.quiet or not report.records
            print(_summary(report) if brief else report.text(self.options.show))
            return
        publish_display_data(self._bundle(report), transient={"display_id": self.id}, update=not first)
        if self._widget is not None:
            self._widget.update(report)
        elif report.functions and self.options.widget and not self.options.quiet:
            self._widget = widget_for(report, self.id, self.options.show)
            publish_display_data(self._widget.bundle())

    def _bundle(self, report: CompileReport) -> dict[str, str]:
        if self.options.quiet or not report.functions:
            return {"text/plain": _summary(report)}
        return {"text/html": report.html(self.options.show, element_id=self.id), "text/plain": report.text(self.options.show)}

    def close(self) -> None:
        """Let go of the widget; what is on screen stays."""
        if self._widget is not None:
            self._widget.close()
            self._widget = None


def _summary(report: CompileReport) -> str:
    return "\n".join([one_line(report), *(f"note: {note}" for note in report.notes)])
