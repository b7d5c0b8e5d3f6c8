"""What happened during compilation, as strings and numbers only: never a live object of the user's.

One `CompileRecord` is made per attempt to compile a frame. It feeds logs, `explain()`, reports and
widgets, so it must outlive everything it describes without keeping any of it alive.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .generated import Generated
from .location import Location


@dataclasses.dataclass(frozen=True)
class NodeRecord:
    """One FX node. shape/dtype describe its example value ('' where it has none)."""

    name: str
    op: str            # placeholder, call_function, call_method, call_module, get_attr, output
    target: str
    inputs: tuple[str, ...]
    shape: str = ""
    dtype: str = ""
    location: Location | None = None
    module_path: str = ""      # e.g. "L['self'].encoder.layers.0"


@dataclasses.dataclass(frozen=True)
class GraphRecord:
    name: str                  # __compiled_fn_<n>_<uuid>
    code: str                  # GraphModule.print_readable text
    nodes: tuple[NodeRecord, ...]
    backend: str
    seconds: float = 0.0       # spent in the backend
    generated: str = ""        # generated source of the backend, where it has one
    parts: Sequence[Generated] = ()     # what a code generator made, one an ATen graph; grows when a backward graph is compiled


@dataclasses.dataclass(frozen=True)
class GuardRecord:
    source: str                # L['x'], G['P'], '' for global state
    kind: str                  # TENSOR_MATCH, EQUALS_MATCH, ...
    text: str                  # readable Python
    location: Location | None = None
    microseconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class BreakRecord:
    """A graph break: stable id, what could not be done, why in one sentence, a fix to paste."""

    id: str                    # stable, e.g. NB0001
    reason: str                # class name of the reason, e.g. DataDependentBranching
    what: str                  # what could not be done, with the values, in words
    why: str
    hint: str
    location: Location
    stack: tuple[Location, ...] = ()   # user frames, outermost first
    summary: str = ""          # the short form of logs, counters and explain()


@dataclasses.dataclass
class CompileRecord:
    """One attempt to compile one frame."""

    compile_id: str            # "frame/attempt", e.g. "0/1"
    function: str
    file: str
    first_line: int
    last_line: int
    source: str = ""           # the function's source text, '' where there is none
    resumed_from: str = ""     # compile id of the frame whose break made this resume function
    outcome: str = "running"   # compiled | skipped | failed | running
    why: str = ""              # why it was skipped or failed
    graphs: list[GraphRecord] = dataclasses.field(default_factory=list)
    guards: list[GuardRecord] = dataclasses.field(default_factory=list)
    breaks: list[BreakRecord] = dataclasses.field(default_factory=list)
    effects: list[str] = dataclasses.field(default_factory=list)    # replayed effects, readable
    recompile_reasons: list[str] = dataclasses.field(default_factory=list)
    original_bytecode: str = ""
    modified_bytecode: str = ""
    compiled_lines: dict[str, list[int]] = dataclasses.field(default_factory=dict)  # file -> lines traced
    stages: dict[str, float] = dataclasses.field(default_factory=dict)  # stage -> seconds
    hits: int = 0
