"""The section on generated code: what became of each operation, and kernel by kernel what it moves and its source.

In: a `CompileReport` whose graphs went through a code generator. Out: a `Section`. Called through `sections.SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Iterator

from dynamo_nb.core.generated import GeneratedRecord, KernelRecord, amount_text, milliseconds
from dynamo_nb.core.records import Location
from dynamo_nb.reports.blocks import Block, CodeBlock, NoteBlock, Section, TableBlock, cut_blocks, cut_text, graph_name, label, short_file, table
from dynamo_nb.reports.model import CompileReport


def kernels(report: CompileReport) -> Section:
    """All generated graphs of the report; backward graphs once they are compiled."""
    blocks: list[Block] = []
    count = 0
    for record in report.records:
        for graph in record.graphs:
            for part in graph.parts:
                made = part.record()
                count += len(made.kernels)
                blocks += _blocks(f"{graph_name(graph)} of {label(record)}", made)
    if not blocks:
        blocks.append(NoteBlock("No kernels: the backend generates no code that it tells of."))
    return Section("kernels", "Kernels", str(count), cut_blocks(blocks, "listing"))


def _blocks(name: str, made: GeneratedRecord) -> Iterator[Block]:
    if not made.nodes:
        yield NoteBlock(f"{name}, {made.headline()}")
        return
    columns = (("operation", "code"), ("calls", "code"), ("line", "code"), ("what became of it", "text"))
    yield table(f"{name}, {made.headline()}", columns, [(n.name, n.target, _places((n.location,)), n.outcome) for n in made.nodes])
    if made.kernels:
        yield _figures(made)
    for kernel in made.kernels:
        text, omitted = cut_text(f"{kernel.ir}\n\n{kernel.source}")
        yield CodeBlock(kernel.title(), text, omitted, folded=True)
    if made.decisions:
        yield CodeBlock("decisions of the scheduler", *cut_text("\n".join(made.decisions)), folded=True)
    yield NoteBlock("Generated in " + ", ".join(f"{stage} {milliseconds(s)}" for stage, s in made.seconds.items()) + ".")


def _figures(made: GeneratedRecord) -> TableBlock:
    columns = (("kernel", "code"), ("loops", "code"), ("reads", "text"), ("writes", "text"), ("lines", "code"), ("operations", "code"))
    return table("what the kernels move", columns, [_row(k) for k in made.kernels])


def _row(kernel: KernelRecord) -> tuple[str, ...]:
    read, written = amount_text(kernel.read, kernel.bytes_read), amount_text(kernel.written, kernel.bytes_written)
    return (kernel.name, kernel.loops, read, written, _places(kernel.locations), ", ".join(kernel.nodes))


def _places(locations: tuple[Location | None, ...]) -> str:
    return ", ".join(dict.fromkeys(f"{short_file(p.file)}:{p.line}" for p in locations if p is not None and p.line))
