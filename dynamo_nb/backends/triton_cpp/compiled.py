"""What became of one ATen graph: kept by the compile, turned into a plain record when somebody looks.

Holds the loop IR and texts, no tensors and nothing of the user's.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import sympy
import torch
import torch.fx

from ...core.generated import GeneratedRecord, KernelRecord, NodeFate
from ...core.records import Location
from .ir import Kernel, Loops
from .traffic import traffic

# A function of the unit ends at the first brace in column 0.
_FUNCTION = {
    "C++": re.compile(r'^extern "C" void (?P<name>\w+)\(.*?^\}$', re.MULTILINE | re.DOTALL),
    "Triton": re.compile(r"^@triton\.jit[^\n]*\ndef (?P<name>\w+)\(.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL),
}
_ALIAS = re.compile(r'^extern "C" __attribute__\(\(alias\("(?P<first>\w+)"\)\)\) void (?P<name>\w+)\(', re.MULTILINE)


@dataclasses.dataclass
class CompiledGraph:
    """nodes: what became of each operation; hints: the example's values of the size symbols; language: of the source."""

    kernels: list[Kernel]
    aten: list[tuple[str, str]]         # (operator, why it isn't generated)
    decisions: list[str]
    source: str
    seconds: dict[str, float]
    why: str = ""                       # why nothing was generated
    nodes: tuple[NodeFate, ...] = ()
    hints: dict[sympy.Symbol, int] = dataclasses.field(default_factory=dict)
    role: str = ""
    language: str = "C++"
    waits: bool = False                 # does ATen still run it while the C++ is built?
    _record: GeneratedRecord | None = None
    _waited: bool = False

    def record(self) -> GeneratedRecord:
        if self._record is None or self._waited != self.waits:
            self._waited = self.waits
            sources = {found["name"]: found[0] for found in _FUNCTION[self.language].finditer(self.source)}
            sources |= {found["name"]: f"// the same function as {found['first']}" for found in _ALIAS.finditer(self.source)}
            kernels = tuple(self._kernel(k, sources.get(k.name, "")) for k in self.kernels if k.phases)
            self._record = GeneratedRecord(self.role or "whole", self.nodes, kernels, tuple(self.decisions), self.seconds, self.source, self.why, self.waits)
        return self._record

    def text(self) -> str:
        """What became of each node and, kernel by kernel, what it moves, its loops and its source."""
        return self.record().text()

    @property
    def files(self) -> set[str]:
        """Files of the user's that its nodes come from."""
        return {n.location.file for n in self.nodes if n.location is not None}

    def _kernel(self, kernel: Kernel, source: str) -> KernelRecord:
        served = [n for n in self.nodes if kernel.name in n.kernels and n.kind == "kernel"]
        read, written = traffic(kernel)
        places: dict[Location, None] = dict.fromkeys(n.location for n in served if n.location is not None)
        return KernelRecord(
            kernel.name, self.language, _loops(kernel), str(kernel), source, tuple(n.name for n in served), tuple(places),
            str(read), str(written), known(read, self.hints), known(written, self.hints),
        )


def known(expr: sympy.Expr, hints: dict[sympy.Symbol, int]) -> int | None:
    """The value of a size expression in the example; None where a symbol has no hint."""
    value = expr.xreplace({symbol: sympy.Integer(hint) for symbol, hint in hints.items()})
    return int(value) if value.is_Integer else None


def hints_of(gm: torch.fx.GraphModule) -> dict[sympy.Symbol, int]:
    """The example's values of the size symbols of the graph's inputs."""
    found: dict[sympy.Symbol, int] = {}
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            continue
        value = node.meta.get("val")
        for size in (*value.size(), *value.stride()) if isinstance(value, torch.Tensor) and value.layout is torch.strided else (value,):
            _take_hint(size, found)
    return found


def _take_hint(size: Any, found: dict[sympy.Symbol, int]) -> None:
    if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol) and size.node.has_hint():
        found.setdefault(size.node.expr, int(size.node.hint))


def _loops(kernel: Kernel) -> str:
    def sizes(loops: Loops) -> str:
        return " x ".join(str(n) for _, n in loops) or "1"

    inner = list(dict.fromkeys(sizes(p.loops) for p in kernel.phases if p.loops))
    return sizes(kernel.outer) + (f" of {', '.join(inner)}" if inner else "")
