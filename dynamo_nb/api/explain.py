"""`explain(fn)(*args)`: runs once with a backend that only records; says what was captured, why it broke and what code would be generated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch.fx

from ..core import events
from ..core.records import BreakRecord, CompileRecord
from .compile import make_options, region_for, wrap

USER_ERRORS = ("RaisedException", "OpFailed")


@dataclasses.dataclass
class BreakReasonInfo:
    """reason: short text; user_stack: places, outermost first; graph_break: always True."""

    reason: str
    user_stack: list[Any]
    record: BreakRecord
    graph_break: bool = True


@dataclasses.dataclass
class ExplainOutput:
    """generated: a graph each, what triton_cpp makes of it (`print(out.generated[0])`, `.text()` with sources, `.measured()` with times)."""

    graphs: list[torch.fx.GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakReasonInfo]
    op_count: int
    ops_per_graph: list[list[Any]]
    out_guards: list[Any]
    records: list[CompileRecord]
    compile_times: str = ""
    generated: list[Any] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}", "Break Reasons:"]
        for i, info in enumerate(self.break_reasons, start=1):
            lines.append(f"  Break Reason {i}:\n    Reason: {info.reason}\n    Why: {info.record.why}\n    Hint: {info.record.hint}\n    User Stack:")
            lines += [f'      File "{p.file}", line {p.line}, in {p.function}: {p.text}' for p in info.user_stack]
        lines.append("Ops per Graph:")
        for i, ops in enumerate(self.ops_per_graph, start=1):
            lines.append(f"  Graph {i}: " + ", ".join(getattr(o, "__name__", str(o)) for o in ops))
        skipped = [r for r in self.records if r.outcome == "skipped"]
        lines += [f"Not compiled: {r.function} ({r.file}:{r.first_line}): {r.why}" for r in skipped]
        lines += ["Generated Code:"] if self.generated else []
        for i, made in enumerate(self.generated, start=1):
            for graph in made.graphs:
                lines.append(f"  Graph {i}, {graph.headline()}")
                lines += dict.fromkeys(f"    {n.target}: {n.outcome}" for n in graph.nodes if n.kind == "aten")
        return "\n".join(lines)


def explain(fn: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """A callable that runs fn on its arguments and returns an ExplainOutput."""

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        return _run(fn, args, kwargs)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def _generated(gm: torch.fx.GraphModule, example_inputs: list[Any], fake_inputs: list[Any] | None) -> Any:
    """What the generator makes of a graph; where it can't take it the text says why, since the capture is explained all the same."""
    from ..backends.triton_cpp.explain import Explanation, explain

    try:
        return explain(gm, example_inputs, fake_inputs=fake_inputs)
    except Exception as err:
        return Explanation.failed(f"{type(err).__name__}: {err}")


def _run(fn: Any, args: Any, kwargs: Any) -> ExplainOutput:
    graphs: list[torch.fx.GraphModule] = []
    records: list[CompileRecord] = []
    generated: list[Any] = []

    def recording(gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None) -> Callable[..., Any]:
        graphs.append(gm)
        generated.append(_generated(gm, example_inputs, fake_inputs))
        return gm.forward

    recording.takes_fake_inputs = True  # type: ignore[attr-defined]

    def listen(kind: str, record: Any) -> None:
        if kind == "compile_end" and isinstance(record, CompileRecord):
            records.append(record)

    compiled = wrap(fn, region_for(make_options(recording, None, None, False, None)))
    with events.listening(listen):
        compiled(*args, **kwargs)
    breaks = [b for r in records for b in r.breaks if b.reason not in USER_ERRORS]
    ops = [[n.target for n in g.graph.nodes if n.op.startswith("call_")] for g in graphs]
    guards = [g for r in records for g in r.guards]
    infos = [BreakReasonInfo(b.summary, list(b.stack), b) for b in breaks]
    return ExplainOutput(graphs, len(graphs), len(breaks), infos, sum(map(len, ops)), ops, guards, records, generated=generated)
