"""Turns a report into sections of blocks, the one form that text, HTML and the widget all draw.

In: a `CompileReport`. Out: `Section`s. Called by `text`, `html` and, as JSON through `as_data`, by the notebook widget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dynamo_nb.core.reasons import REASONS
from dynamo_nb.core.records import BreakRecord, CompileRecord, GraphRecord, GuardRecord, Location, NodeRecord
from dynamo_nb.reports.assemble import COMPILED, SourceLine, is_library, marked_lines
from dynamo_nb.reports.blocks import (
    MAX_SOURCE_LINES,
    Block,
    BreakBlock,
    CodeBlock,
    Line,
    NoteBlock,
    PairBlock,
    Section,
    SourceBlock,
    TableBlock,
    cut_blocks,
    cut_text,
    duration,
    graph_name,
    label,
    plural,
    short_file,
    table,
)
from dynamo_nb.reports.highlight import Spans, highlight
from dynamo_nb.reports.kernels import kernels
from dynamo_nb.reports.model import WHOLE, CompileReport, FunctionReport


def headline(report: CompileReport) -> list[tuple[str, str]]:
    """(style, text) pairs; style is 'good', 'bad' or ''."""
    if not report.records:
        return [("", "not called yet" if report.functions else "nothing compiled yet")]
    broken, again = len(report.breaks), report.recompile_count
    parts = [
        ("good" if report.graph_count else "", plural(report.graph_count, "graph")),
        ("bad" if broken else "good", plural(broken, "graph break") if broken else "no graph break"),
        ("", plural(report.guard_count, "guard")),
    ]
    if again:
        parts.append(("bad", plural(again, "recompile")))
    for outcome in ("skipped", "failed"):
        count = sum(record.outcome == outcome for record in report.records)
        if count:
            parts.append(("bad", f"{plural(count, 'frame')} {outcome}"))
    parts.append(("", f"{duration(report.seconds)} compiling"))
    return parts


def build(report: CompileReport) -> list[Section]:
    """All sections, in order; empty ones too, so that tabs keep their place."""
    return [make(report) for make in SECTIONS.values()]


def as_data(report: CompileReport) -> dict[str, Any]:
    """The whole report as JSON-ready data for the widget."""
    return {
        "title": report.title,
        "headline": headline(report),
        "notes": notes(report),
        "sections": [dataclasses.asdict(section) for section in build(report)],
    }


def place(location: Location) -> str:
    name = short_file(location.file)
    line = f":{location.line}" if location.line else ""
    return f"{name}{line}" + (f" in {location.function}" if location.function else "")


def split_indent(spans: Spans) -> tuple[str, Spans]:
    """The white space a line starts with, and its spans without it."""
    if not spans or spans[0][0]:
        return "", spans
    rest = spans[0][1].lstrip()
    indent = spans[0][1][: len(spans[0][1]) - len(rest)]
    return indent, ([("", rest)] if rest else []) + spans[1:]


def notes(report: CompileReport) -> list[str]:
    notes = list(report.notes)
    if report.dropped:
        notes.append(f"{plural(report.dropped, 'further compile record')} left out: too many to keep.")
    return notes


def break_block(item: BreakRecord, count: int = 1) -> BreakBlock:
    stack = tuple(f"{place(frame)}: {frame.text}" if frame.text else place(frame) for frame in item.stack)
    known = REASONS.get(item.id)
    reason = known.title if known is not None and known.title else item.reason
    return BreakBlock(item.id, reason, item.what, item.why, item.hint, place(item.location), item.location.text, stack, count)


def _source(report: CompileReport) -> Section:
    blocks: list[Block] = []
    for function in sorted(report.functions, key=lambda function: is_library(function.file)):
        blocks.append(_source_block(function, report))
        blocks.extend(NoteBlock(f"{label(r)} {r.outcome}: {r.why}") for r in function.records if r.why and r.outcome != "compiled")
    if not blocks:
        blocks.append(NoteBlock("No function was compiled."))
    return Section("source", "Source", "", cut_blocks(blocks, "function"))


def _source_block(function: FunctionReport, report: CompileReport) -> SourceBlock:
    marked: list[SourceLine] = marked_lines(function, report.functions)
    spans = highlight(function.source)
    lines = [
        Line(line.number, line.mark, spans[index], tuple(break_block(item) for item in line.breaks))
        for index, line in enumerate(marked[:MAX_SOURCE_LINES])
    ]
    where = f"{short_file(function.file)}:{function.first_line}"
    state = "" if function.records else ", traced as part of its caller" if function.inlined else ", not called yet"
    library = is_library(function.file)
    if library:
        state += f", library code, {plural(sum(line.mark == COMPILED for line in marked), 'line')} in a graph"
    if not lines:
        state += ", source not available"
    return SourceBlock(f"{function.name} ({where}{state})", tuple(lines), max(0, len(marked) - MAX_SOURCE_LINES), library)


def node_row(node: NodeRecord) -> tuple[str, ...]:
    value = f"{node.dtype.removeprefix('torch.')} {node.shape}".strip()
    where = f"{short_file(node.location.file)}:{node.location.line}" if node.location and node.location.line else ""
    target = "" if node.op in ("placeholder", "output") else node.target.replace("_VariableFunctionsClass.", "torch.")
    return (node.name, node.op, target, ", ".join(node.inputs), value, where)


def _graphs(report: CompileReport) -> Section:
    blocks: list[Block] = []
    for record in report.records:
        for graph in record.graphs:
            blocks.append(_graph_table(record, graph))
            code, omitted = cut_text(graph.code)
            blocks.append(CodeBlock("as Python", code, omitted, folded=True))
            if graph.generated:
                generated, omitted = cut_text(graph.generated)
                blocks.append(CodeBlock(f"code generated by {graph.backend}", generated, omitted, folded=True))
    if not blocks:
        blocks.append(NoteBlock("No graph: no tensor operation has been captured."))
    return Section("graphs", "Graphs", str(report.graph_count), cut_blocks(blocks, "listing"))


def _graph_table(record: CompileRecord, graph: GraphRecord) -> TableBlock:
    columns = (("name", "code"), ("kind", "text"), ("operation", "code"), ("inputs", "code"), ("value", "code"), ("line", "code"))
    calls = sum(node.op.startswith("call_") for node in graph.nodes)
    title = f"{graph_name(graph)} of {label(record)}: {plural(calls, 'operation')}, backend {graph.backend}"
    return table(title, columns, [node_row(node) for node in graph.nodes])


def guard_row(guard: GuardRecord) -> tuple[str, ...]:
    where = f"{short_file(guard.location.file)}:{guard.location.line}" if guard.location and guard.location.line else ""
    return (guard.source or "global state", guard.kind, where, guard.text)


def _guards(report: CompileReport) -> Section:
    columns = (("value", "code"), ("kind", "code"), ("assumed at", "code"), ("must hold", "code"))
    blocks: list[Block] = [
        table(f"{label(record)}: {plural(len(record.guards), 'guard')}", columns, [guard_row(guard) for guard in record.guards])
        for record in report.records
        if record.guards
    ]
    if blocks:
        blocks.insert(0, NoteBlock("Checked at every call. Where one fails, the function is compiled again for the new situation."))
    else:
        blocks.append(NoteBlock("No guards."))
    return Section("guards", "Guards", str(report.guard_count), cut_blocks(blocks, "table"))


def _breaks(report: CompileReport) -> Section:
    blocks: list[Block] = [break_block(item, count) for item, count in report.breaks]
    if not blocks:
        text = "No graph break: every traced function became one graph." if report.records else "Nothing has been traced yet."
        blocks.append(NoteBlock(text))
    return Section("breaks", "Breaks", str(len(report.breaks)), cut_blocks(blocks, "break"))


def _recompiles(report: CompileReport) -> Section:
    rows = [(record.function, record.compile_id, reason) for record, reason in report.recompiles]
    if rows:
        blocks: tuple[Block, ...] = (table("", (("function", "code"), ("compile", "code"), ("because this guard failed", "code")), rows),)
    else:
        blocks = (NoteBlock("No recompile: the guards held at every later call."),)
    return Section("recompiles", "Recompiles", str(report.recompile_count), blocks)


def _bytecode(report: CompileReport) -> Section:
    blocks: list[Block] = []
    for record in report.records:
        if record.modified_bytecode or record.original_bytecode:
            before, less = cut_text(record.original_bytecode)
            after, fewer = cut_text(record.modified_bytecode)
            blocks.append(PairBlock(label(record), CodeBlock("before", before, less), CodeBlock("after", after, fewer)))
        if record.effects:
            blocks.append(CodeBlock("effects replayed after the graph", *cut_text("\n".join(record.effects))))
    if not blocks:
        blocks.append(NoteBlock("No bytecode was rewritten."))
    return Section("bytecode", "Bytecode", "", cut_blocks(blocks, "listing"))


def _timings(report: CompileReport) -> Section:
    total = report.seconds
    rows = []
    for record in report.records:
        parts = {stage: seconds for stage, seconds in record.stages.items() if stage != WHOLE}
        if WHOLE in record.stages:
            parts["other"] = max(0.0, record.stages[WHOLE] - sum(parts.values()))
        for stage, seconds in parts.items():
            rows.append((record.function, record.compile_id, stage, duration(seconds), f"{seconds / total:.4f}" if total else "0"))
    columns = (("function", "code"), ("compile", "code"), ("stage", "text"), ("time", "number"), ("share", "bar"))
    hits = sum(record.hits for record in report.records)
    blocks: list[Block] = [table("", columns, rows)] if rows else [NoteBlock("Nothing was timed.")]
    if hits:
        blocks.append(NoteBlock(f"Calls answered by compiled code so far: {hits:,}."))
    return Section("timings", "Timings", duration(total) if rows else "", tuple(blocks))


SECTIONS: dict[str, Callable[[CompileReport], Section]] = {
    "source": _source,
    "graphs": _graphs,
    "kernels": kernels,
    "guards": _guards,
    "breaks": _breaks,
    "recompiles": _recompiles,
    "bytecode": _bytecode,
    "timings": _timings,
}


def check_names(names: object) -> tuple[str, ...]:
    """Section names as a tuple; ValueError with the valid ones for an unknown name."""
    chosen = tuple(names) if not isinstance(names, str) else (names,)  # type: ignore[arg-type]
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        raise ValueError(f"unknown report section {unknown[0]!r}; valid ones: {', '.join(SECTIONS)}")
    return chosen
