"""The blocks a report is made of, and the limits and words they share.

A block is source with marks, code, a table, a break or a note. Long ones are cut here, with the number left out stated.
Made by `sections` and `kernels`; drawn by `text`, `html` and the widget.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from dynamo_nb.core.records import CompileRecord, GraphRecord
from dynamo_nb.reports.highlight import Spans

MAX_ROWS = 200          # rows of one table
MAX_CODE_LINES = 400    # lines of one listing
MAX_SOURCE_LINES = 600  # lines of one function's source
MAX_ITEMS = 40          # functions, graphs or bytecode pairs of one section

_GRAPH_NAME = re.compile(r"^(__compiled_fn_\d+)_.*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class BreakBlock:
    """A graph break. `reason` is its kind in words, `where` is 'file:line in function'; `code` the user's line."""

    id: str
    reason: str
    what: str
    why: str
    hint: str
    where: str
    code: str = ""
    stack: tuple[str, ...] = ()
    count: int = 1
    kind: str = "break"


@dataclasses.dataclass(frozen=True)
class Line:
    number: int
    mark: str
    spans: Spans
    breaks: tuple[BreakBlock, ...] = ()


@dataclasses.dataclass(frozen=True)
class SourceBlock:
    """folded: library code, shown only on demand."""

    title: str
    lines: tuple[Line, ...]
    omitted: int = 0
    folded: bool = False
    kind: str = "source"


@dataclasses.dataclass(frozen=True)
class CodeBlock:
    title: str
    text: str
    omitted: int = 0
    folded: bool = False
    kind: str = "code"


@dataclasses.dataclass(frozen=True)
class PairBlock:
    """Two listings to read side by side."""

    title: str
    left: CodeBlock
    right: CodeBlock
    kind: str = "pair"


@dataclasses.dataclass(frozen=True)
class TableBlock:
    """columns: (heading, style), style one of 'code', 'number', 'text', 'bar' (a share from 0 to 1)."""

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    omitted: int = 0
    kind: str = "table"


@dataclasses.dataclass(frozen=True)
class NoteBlock:
    text: str
    kind: str = "note"


Block = SourceBlock | CodeBlock | PairBlock | TableBlock | BreakBlock | NoteBlock


@dataclasses.dataclass(frozen=True)
class Section:
    """`count` is what the tab shows beside the title, '' for nothing."""

    id: str
    title: str
    count: str
    blocks: tuple[Block, ...]


# -- words ---------------------------------------------------------------------------------------------
def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"


def short_file(file: str) -> str:
    """Last two parts of a path; 'this cell' for code typed in a notebook, whose file name is a hash."""
    parts = pathlib.PurePath(file).parts
    if file.startswith("<ipython-input") or any(part.startswith("ipykernel_") for part in parts):
        return "cell"
    return "/".join(parts[-2:]) if file else "?"


def label(record: CompileRecord) -> str:
    part = ", rest after a graph break" if record.resumed_from else ""
    return f"{record.function} [{record.compile_id}]{part}"


def graph_name(graph: GraphRecord) -> str:
    return _GRAPH_NAME.sub(r"\1", graph.name)


# -- cutting -------------------------------------------------------------------------------------------
def cut_text(text: str, limit: int = MAX_CODE_LINES) -> tuple[str, int]:
    lines = text.splitlines()
    return "\n".join(lines[:limit]), max(0, len(lines) - limit)


def cut_blocks(blocks: list[Block], noun: str) -> tuple[Block, ...]:
    if len(blocks) <= MAX_ITEMS:
        return tuple(blocks)
    return (*blocks[:MAX_ITEMS], NoteBlock(f"{plural(len(blocks) - MAX_ITEMS, 'further ' + noun)} not shown."))


def table(title: str, columns: tuple[tuple[str, str], ...], rows: Sequence[tuple[str, ...]]) -> TableBlock:
    return TableBlock(title, columns, tuple(rows[:MAX_ROWS]), max(0, len(rows) - MAX_ROWS))
