"""What a code generator made of one ATen graph: plain records and their text, for logs, `explain` and reports.

As in `records`, strings and numbers only. A generator hands them over as objects with a `record()`, so that a compile
that nobody looks at doesn't pay for the texts.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Protocol

from .location import Location


@dataclasses.dataclass(frozen=True)
class NodeFate:
    """One operation of the graph and what became of it.

    kind: kernel (part of generated code), view (memory of another node: no code), part (one of several results of `why`), number (an
    integer worked out from sizes), aten (a call of the operator), unused. why: of a call, why it isn't generated. captured: the node of the captured graph that
    it comes from, '' where unknown; of a backward node, the one whose gradient it is part of.
    """

    name: str
    target: str
    kind: str
    kernels: tuple[str, ...] = ()
    why: str = ""
    captured: str = ""
    location: Location | None = None

    @property
    def outcome(self) -> str:
        """In words: 'fused into k0', 'ATen: no lowering', 'view, no code'."""
        where = ", ".join(self.kernels)
        if self.kind == "kernel":
            return f"fused into {where}"
        if self.kind == "view":
            return f"view, read in {where}" if where else "view, no code"
        return {"aten": f"ATen: {self.why}", "part": f"part of {self.why}", "number": "a number, no code"}.get(self.kind, "unused")


@dataclasses.dataclass(frozen=True)
class KernelRecord:
    """One kernel. read, written: compulsory traffic in bytes, as text over the graph's size symbols; bytes_read, bytes_written: as
    numbers for the sizes of the example, None where a size isn't known. nodes: the operations it computes; locations: the user's
    lines that those come from. seconds: measured, None where it wasn't; bandwidth: of a copy, in bytes a second, 0 where not measured.
    """

    name: str
    language: str
    loops: str
    ir: str
    source: str
    nodes: tuple[str, ...] = ()
    locations: tuple[Location, ...] = ()
    read: str = ""
    written: str = ""
    bytes_read: int | None = None
    bytes_written: int | None = None
    seconds: float | None = None
    bandwidth: float = 0.0

    @property
    def bytes(self) -> int | None:
        return None if self.bytes_read is None or self.bytes_written is None else self.bytes_read + self.bytes_written

    @property
    def least_seconds(self) -> float | None:
        """What its traffic takes at the speed of a copy."""
        return self.bytes / self.bandwidth if self.bytes is not None and self.bandwidth else None

    @property
    def share(self) -> float | None:
        """Of the roofline: the least time over the measured one. Above 1 where data comes from caches."""
        return self.least_seconds / self.seconds if self.least_seconds is not None and self.seconds else None

    def title(self) -> str:
        """'k0, C++, for mul, relu (model.py:4, model.py:5)'."""
        lines = ", ".join(dict.fromkeys(short_place(p) for p in self.locations))
        return f"{self.name}, {self.language}, for {', '.join(self.nodes)}" + (f" ({lines})" if lines else "")


@dataclasses.dataclass(frozen=True)
class GeneratedRecord:
    """role: forward, backward or inference. seconds: of compiling, by stage. why: why nothing was generated, '' where something was.

    source: the whole text that was compiled, with what the kernels use of the library.
    """

    role: str
    nodes: tuple[NodeFate, ...]
    kernels: tuple[KernelRecord, ...]
    decisions: tuple[str, ...]
    seconds: dict[str, float]
    source: str = ""
    why: str = ""
    waits: bool = False     # ATen runs the graph until the C++ is built (options={"tiered": True})

    def headline(self) -> str:
        if self.why:
            return f"{self.role} graph: nothing generated: {self.why}"
        calls = sum(n.kind == "aten" for n in self.nodes)
        fused = sum(n.kind == "kernel" for n in self.nodes)
        tier = "; ATen runs it until they are built" if self.waits else ""
        return f"{self.role} graph: {_plural(fused, 'operation')} in {_plural(len(self.kernels), 'kernel')}, {_plural(calls, 'call')} of ATen{tier}"

    def text(self, source: bool = True) -> str:
        """What became of each node, then kernel by kernel: traffic, loops and, unless left out, the source."""
        parts = [self.headline()]
        if self.nodes:
            parts.append("\n".join(node_table(self.nodes)))
        for kernel in self.kernels:
            lines = [kernel.title(), *(f"  {line}" for line in (traffic_text(kernel), roofline_text(kernel)) if line), kernel.ir]
            parts.append("\n".join([*lines, *(["", kernel.source] if source else [])]))
        if self.seconds:
            parts.append("compiled in " + ", ".join(f"{stage} {milliseconds(s)}" for stage, s in self.seconds.items()))
        return "\n\n".join(parts)


class Generated(Protocol):
    """What a backend's callable lists as `generated_graphs`; a backward graph joins the list when it is compiled."""

    def record(self) -> GeneratedRecord: ...


# -- text -----------------------------------------------------------------------------------------------
def node_table(nodes: tuple[NodeFate, ...]) -> list[str]:
    rows = [(n.name, n.target, short_place(n.location), n.outcome) for n in nodes]
    widths = [max(len(row[k]) for row in rows) for k in range(3)]
    return ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows]


def short_place(location: Location | None) -> str:
    """'model.py:4'; 'cell:4' for code typed in a notebook, whose file name is a hash."""
    if location is None or not location.line:
        return ""
    parts = pathlib.PurePath(location.file).parts
    in_cell = location.file.startswith("<ipython-input") or any(p.startswith("ipykernel_") for p in parts)
    return f"{'cell' if in_cell else parts[-1] if parts else '?'}:{location.line}"


def amount_text(text: str, number: int | None) -> str:
    """Bytes: '4.2 kB'; with symbols '8*s0 bytes (4.2 kB in the example)'."""
    if number is None:
        return f"{text} bytes"
    return size_text(number) if text == str(number) else f"{text} bytes ({size_text(number)} in the example)"


def traffic_text(kernel: KernelRecord) -> str:
    return f"reads {amount_text(kernel.read, kernel.bytes_read)}, writes {amount_text(kernel.written, kernel.bytes_written)}" if kernel.read else ""


def roofline_text(kernel: KernelRecord) -> str:
    if kernel.seconds is None:
        return ""
    text = f"takes {milliseconds(kernel.seconds)}"
    if kernel.share is None or kernel.least_seconds is None:
        return text
    if kernel.least_seconds < 1e-6:
        return f"{text}: too few bytes to compare with the speed of memory"
    copying = f"{text}; its traffic at {kernel.bandwidth / 1e9:.1f} GB/s takes {milliseconds(kernel.least_seconds)}"
    return f"{copying}: its data comes from caches" if kernel.share > 1 else f"{copying}: {kernel.share:.0%} of the roofline"


def size_text(count: float) -> str:
    """Bytes, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
