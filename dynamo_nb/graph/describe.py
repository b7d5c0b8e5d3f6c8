"""Records and texts of a compile: plain strings for logs, explain() and reports."""

from __future__ import annotations

import inspect
import linecache
import types
from typing import Any

import torch

from ..core.reasons import BreakReason
from ..core.records import BreakRecord, CompileRecord, GraphRecord, Location, NodeRecord
from ..cpython.decompile import disassemble
from .resume import original_code, original_name


def new_record(compile_id: str, code: types.CodeType, user_code: types.CodeType) -> CompileRecord:
    lines = [line for _, _, line in user_code.co_lines() if line]
    record = CompileRecord(compile_id, user_code.co_name, user_code.co_filename, user_code.co_firstlineno, max(lines, default=user_code.co_firstlineno))
    try:
        record.source = inspect.getsource(user_code)
    except (OSError, TypeError):
        record.source = ""
    if code is not user_code:
        record.resumed_from = user_code.co_name
    record.original_bytecode = disassemble(code)
    return record


def location(code: types.CodeType, line: int | None) -> Location:
    file = code.co_filename
    return Location(file, line or code.co_firstlineno, original_name(code.co_name), linecache.getline(file, line or 0).strip())


def frame_locations(frames: list[Any]) -> tuple[Location, ...]:
    return tuple(location(original_code(f.code), f.current.lineno) for f in frames)


def break_record(frames: list[Any], reason: BreakReason) -> BreakRecord:
    stack = frame_locations(frames)
    return BreakRecord(reason.id, type(reason).__name__, reason.shown, reason.why, reason.hint, stack[-1], stack, str(reason))


def stack_text(stack: tuple[Location, ...]) -> str:
    return "\n".join(f'  File "{p.file}", line {p.line}, in {p.function}' + (f"\n    {p.text}" if p.text else "") for p in stack)


def break_text(broken: BreakRecord, reason: BreakReason) -> str:
    return (
        f"Graph break in user code at {broken.location.file}:{broken.location.line}\nGraph Break Reason: {reason.title or broken.what}\n"
        f"  Explanation: {broken.what}: {broken.why}\n  Hint: {broken.hint}\n  Id: {broken.id}\nUser code traceback:\n{stack_text(broken.stack)}"
    )


def unsupported_text(trace: Any, reason: BreakReason | None) -> str:
    frames = trace.frames or trace.recorder.frames or [trace.frame]
    stack = frame_locations(frames)
    if reason is None:
        return f"graph break at {stack[-1].file}:{stack[-1].line}"
    return (
        f"{reason.what}\n  Explanation: {reason.why}\n  Hint: {reason.hint}\n  Id: {reason.id}\n"
        f"fullgraph=True allows no graph break. From user code:\n{stack_text(stack)}"
    )


def graph_record(gm: torch.fx.GraphModule, name: str, backend: str, recorder: Any) -> GraphRecord:
    nodes = []
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        shape, dtype = (str(list(value.shape)), str(value.dtype)) if isinstance(value, torch.Tensor) else ("", "")
        target = node.target if isinstance(node.target, str) else getattr(node.target, "__qualname__", None) or str(node.target)
        place = node.meta["location"] = _node_location(node)      # for backends that report by line
        nodes.append(NodeRecord(node.name, node.op, target, tuple(n.name for n in node.all_input_nodes), shape, dtype, place, ""))
    return GraphRecord(name, gm.print_readable(print_output=False), tuple(nodes), backend)


def _node_location(node: torch.fx.Node) -> Location | None:
    where = node.meta.get("where")
    if not where:
        return None
    from ..cpython.assemble import decode

    for code, index in reversed(where):
        user = original_code(code)
        if not user.co_filename.startswith("<frozen"):
            return location(user, decode(code).instructions[index].lineno)
    return None


def complete(record: CompileRecord, unit: Any, trace: Any, output: Any, manager: Any, code: types.CodeType) -> None:
    """Fill in what is known once the frame is compiled."""
    record.guards = manager.records()
    record.effects = trace.recorder.side_effects.describe()
    record.compiled_lines = {file: sorted(lines) for file, lines in trace.recorder.traced_lines.items() if lines}
    text = disassemble(code)
    for name, value in output.installed.items():
        shown = getattr(value, "__name__", None)
        if shown:
            text = text.replace(f"({shown})", f"({name})")
    record.modified_bytecode = text
