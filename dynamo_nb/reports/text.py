"""The report for a terminal.

In: a `CompileReport`. Out: plain text, marks in the gutter, breaks beneath their line. Called by
`CompileReport.text` and, for text/plain, by kernel_ext.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dynamo_nb.reports import sections as parts
from dynamo_nb.reports.model import CompileReport

MARKS = {"compiled": "●", "eager": "○", "break": "✖", "": " "}
WIDTH = 110
MAX_CELL = 48     # characters of a table's cell
MAX_LAST = 160    # of one in the last column
DEFAULT = ("source", "graphs", "kernels", "guards", "breaks", "recompiles", "timings")


def render(report: CompileReport, sections: Sequence[str] | None = None) -> str:
    """sections: names to print; ValueError for an unknown one."""
    chosen = DEFAULT if sections is None else parts.check_names(sections)
    lines = [one_line(report)]
    lines += [f"note: {note}" for note in parts.notes(report)]
    if not report.records:
        chosen = tuple(name for name in chosen if name == "source")
    for name in chosen:
        section = parts.SECTIONS[name](report)
        if name in ("kernels", "breaks", "recompiles") and section.count == "0":
            continue
        lines += ["", f"── {section.title}{f' ({section.count})' if section.count else ''} ".ljust(60, "─")]
        for block in section.blocks:
            lines += _block(block, name)
    return "\n".join(line.rstrip() for line in lines)


def one_line(report: CompileReport) -> str:
    return f"{report.title}: " + ", ".join(text for _, text in parts.headline(report))


def _block(block: parts.Block, section: str) -> list[str]:
    if isinstance(block, parts.SourceBlock):
        return _source(block)
    if isinstance(block, parts.TableBlock):
        return _table(block)
    if isinstance(block, parts.BreakBlock):
        return _break(block, "", full=True)
    if isinstance(block, parts.PairBlock):
        return [block.title, *_block(block.left, section), *_block(block.right, section)]
    if isinstance(block, parts.CodeBlock):
        if block.folded:
            return []
        return [f"{block.title}:", *("    " + line for line in block.text.splitlines()), *_omitted(block.omitted, "line")]
    return textwrap.wrap(block.text, WIDTH)


def _omitted(count: int, noun: str) -> list[str]:
    return [f"    … {parts.plural(count, 'more ' + noun)} not shown"] if count else []


def _source(block: parts.SourceBlock) -> list[str]:
    lines = [block.title]
    for line in block.lines if not block.folded else [line for line in block.lines if line.breaks]:
        text = "".join(text for _, text in line.spans)
        lines.append(f"{line.number:5d} {MARKS[line.mark]} {text}")
        for item in line.breaks:
            lines += _break(item, " " * 8, full=False)
    return [*lines, *_omitted(0 if block.folded else block.omitted, "line")]


def _break(block: parts.BreakBlock, indent: str, full: bool) -> list[str]:
    times = f" (met {block.count} times)" if block.count > 1 else ""
    lines = [f"{indent}✖ {block.reason} [{block.id}]{times}: {block.what}"]
    if full:
        lines.append(f"{indent}  at:  {block.where}" + (f"    {block.code.strip()}" if block.code else ""))
    for name, text in (("why", block.why), ("fix", block.hint)):
        if text:
            first, *rest = text.splitlines()
            lines.append(f"{indent}  {name}: {first}")
            lines += [f"{indent}       {line}" for line in rest]
    if full and len(block.stack) > 1:
        lines += [f"{indent}  from {frame}" for frame in block.stack]
    return lines


def _shorten(cell: str, limit: int) -> str:
    text = cell.replace("\n", " ")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _table(block: parts.TableBlock) -> list[str]:
    keep = [index for index, (_, style) in enumerate(block.columns) if style != "bar"]
    rows = [[block.columns[i][0] for i in keep], *([_shorten(row[i], MAX_LAST if i == keep[-1] else MAX_CELL) for i in keep] for row in block.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(keep))]
    lines = [block.title] if block.title else []
    for row in rows:
        cells = []
        for column, cell in enumerate(row):
            number = block.columns[keep[column]][1] == "number"
            cells.append(cell.rjust(widths[column]) if number else cell.ljust(widths[column]))
        lines.append("    " + "  ".join(cells))
    return [*lines, *_omitted(block.omitted, "row")]
