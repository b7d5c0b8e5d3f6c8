"""The report as plain data: which functions were compiled and what happened to each.

In: `CompileRecord`s and the functions a cell is known to compile (`FunctionSketch`). Out: a
`CompileReport`, which `sections` turns into blocks and `text`, `html` and the notebook widget draw.
Nothing here keeps a live object of the user's. Made by `collect.Collector`, `report()` and kernel_ext.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from dynamo_nb.core.records import BreakRecord, CompileRecord

WHOLE = "_compile"     # the stage that contains the others


def compile_seconds(record: CompileRecord) -> float:
    """Wall time of one attempt; the stage `_compile`, where it is given, contains the others."""
    return record.stages.get(WHOLE, sum(record.stages.values()))


@dataclasses.dataclass(frozen=True)
class FunctionSketch:
    """A function that will be compiled once it is called; `source` starts at `first_line`."""

    name: str
    file: str
    first_line: int
    source: str = ""


@dataclasses.dataclass
class FunctionReport:
    """One function and every attempt to compile it, resume functions included."""

    name: str
    file: str
    first_line: int
    source: str
    records: list[CompileRecord] = dataclasses.field(default_factory=list)
    inlined: bool = False        # no frame of its own: traced as part of a caller

    @property
    def key(self) -> tuple[str, int]:
        return (self.file, self.first_line)


@dataclasses.dataclass
class CompileReport:
    """Everything a report shows. `str(report)` and `text()` are for terminals, `html()` for notebooks,
    `page()` is a complete HTML document; `save(path)` writes one of them.

    functions: those compiled or waiting for their first call, in order of first appearance.
    notes: remarks in whole sentences. dropped: records not kept because there were too many.
    """

    title: str
    functions: list[FunctionReport] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    dropped: int = 0

    @property
    def records(self) -> list[CompileRecord]:
        return [record for function in self.functions for record in function.records]

    @property
    def breaks(self) -> list[tuple[BreakRecord, int]]:
        """Distinct graph breaks with how often each was met."""
        counts: dict[tuple, int] = {}
        first: dict[tuple, BreakRecord] = {}
        for record in self.records:
            for item in record.breaks:
                key = (item.id, item.location.file, item.location.line, item.reason)
                counts[key] = counts.get(key, 0) + 1
                first.setdefault(key, item)
        return [(first[key], count) for key, count in counts.items()]

    @property
    def graph_count(self) -> int:
        return sum(len(record.graphs) for record in self.records)

    @property
    def guard_count(self) -> int:
        return sum(len(record.guards) for record in self.records)

    @property
    def recompiles(self) -> list[tuple[CompileRecord, str]]:
        return [(record, reason) for record in self.records for reason in record.recompile_reasons]

    @property
    def recompile_count(self) -> int:
        return sum(bool(record.recompile_reasons) for record in self.records)

    @property
    def seconds(self) -> float:
        """Wall time spent compiling, all stages of all frames."""
        return sum(compile_seconds(record) for record in self.records)

    def text(self, sections: Sequence[str] | None = None) -> str:
        """Terminal form. sections: names from `SECTIONS`; by default all but the bytecode."""
        from dynamo_nb.reports.text import render

        return render(self, sections)

    def html(self, sections: Sequence[str] | None = None, element_id: str = "") -> str:
        """Static HTML fragment without JavaScript. sections: those shown unfolded."""
        from dynamo_nb.reports.html import render

        return render(self, sections, element_id)

    def page(self) -> str:
        """A complete HTML document that follows the reader's light or dark preference."""
        from dynamo_nb.reports.html import page

        return page(self)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the report to `path`, as a page for .html and .htm, else as text; returns the path."""
        target = pathlib.Path(path)
        is_page = target.suffix.lower() in (".html", ".htm")
        target.write_text(self.page() if is_page else self.text() + "\n", encoding="utf-8")
        return target

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return self.text()
