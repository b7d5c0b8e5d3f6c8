"""`Trace`: one attempt to trace a frame, from its bound locals to the end or a break.

In: the unit to compile and the step to break at (0: none). Out: how it ended, the recorder, the frames at
the break, the assumptions. Used by convert.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ..core.exc import ObservedException, RestartAnalysis, SkipFrame, StepUnsupported
from ..core.logs import artifact_logger
from ..core.reasons import BreakReason, CannotReconstruct, RaisedException
from ..core.source import Assumption, LocalCellSource, LocalSource
from ..cpython.analysis import exception_entry_at
from ..cpython.arguments import argument_names
from ..native import tensors_overlap
from .inline import close_generator
from .interpreter import BreakAt, InstructionTranslator
from .lifetimes import Owned
from .recorder import GuardsSet, Recorder
from .shapes import Shapes
from .variables.functions import CellVariable

trace_log = artifact_logger("trace_bytecode")
MAX_PAIRS = 256


class Trace:
    def __init__(self, unit: Any, config: dict[str, Any], options: Any, seen: Any, break_at: int, static: bool = False) -> None:
        self.unit = unit
        self.config = config
        shapes = Shapes(seen, config, False if static else options.dynamic, options.fullgraph)
        self.recorder = Recorder(config, fullgraph=options.fullgraph, shapes=shapes)
        self.recorder.break_at = break_at
        self.recorder.root_globals = unit.globals
        if trace_log.isEnabledFor(20):
            self.recorder.trace_log = _log_step
        self.reason: BreakReason | None = None
        self.frames: list[Any] = []
        self.frame = InstructionTranslator(self.recorder, unit.code, {}, {}, unit.globals, None, unit.builtins, None)
        self.recorder.last_frame = self.frame
        self._bind()

    def _bind(self) -> None:
        """Arguments and free variables as lazy trackers; the frame's own cells."""
        frame, code = self.frame, self.unit.code
        frame.current = frame.instructions[0]
        owned = self.recorder.owned = Owned() if self.unit.is_resume else None
        for name, value in zip(argument_names(code), self.unit.locals, strict=True):
            frame.locals[name] = frame.lazy(value, LocalSource(name))
            if owned is not None:
                owned.add(value, frame.locals[name])
        for name in code.co_cellvars:
            cell = CellVariable(frame.locals.pop(name, None), None, name)
            cell.existing, cell.local_name = True, name
            frame.cells[name] = cell
        for name, real in zip(code.co_freevars, self.unit.closure or (), strict=True):
            frame.cells[name] = self._free_cell(name, real)

    def _free_cell(self, name: str, real: Any) -> CellVariable:
        frame = self.frame
        cell = CellVariable(None, LocalCellSource(name), name)
        cell.local_name, cell.value = name, real
        frame.remember(real, cell)
        try:
            contents = real.cell_contents
        except ValueError:
            return cell
        cell.initial = frame.lazy(contents, LocalSource(name))
        return cell

    # -- running ----------------------------------------------------------------------------------
    def run(self) -> str:
        """'return' or 'break'. Raises RestartAnalysis, StepUnsupported, SkipFrame."""
        try:
            self.frame.run()
        except BreakAt as at:
            cut = self.clean_prefix(at.frames)
            if len(cut) != len(at.frames):
                raise RestartAnalysis(cut[-1].start_step, self.reason, None) from None
            self.frames = at.frames
            self._no_open_cleanup()
            return "break"
        except StepUnsupported as err:
            frames = err.frames  # type: ignore[attr-defined]
            if len(self.clean_prefix(frames)) != len(frames) or frames[-1].start_version != self.recorder.version:
                raise
            self.frames, self.reason = frames, err.reason
            self._no_open_cleanup()
            return "break"
        except ObservedException as raised:
            step = getattr(raised.value, "raised_at", 0)
            if not step:
                raise SkipFrame("an exception from outside leaves the frame") from None
            raise RestartAnalysis(step, RaisedException(f"{raised.value.python_type().__name__} raised in the function"), None) from None
        self._no_open_cleanup()
        return "return"

    def _no_open_cleanup(self) -> None:
        """A generator left suspended inside try or with runs its cleanup when it is dropped; only eager knows when.

        So its cleanup must do nothing that can be seen: that is tried by closing it now.
        """
        for made in self.recorder.generators:
            frame = made.frame
            if made.started and not made.finished and exception_entry_at(frame.exceptions, frame.current) is not None and not self._closes_silently(made):
                raise RestartAnalysis(made.step, CannotReconstruct(f"the generator {made.name}, left suspended inside try or with"), None)

    def _closes_silently(self, made: Any) -> bool:
        before = self.recorder.effects, len(self.recorder.graph.nodes)
        try:
            close_generator(self.frame, made)
        except (ObservedException, StepUnsupported, BreakAt, SkipFrame):
            return False
        return before == (self.recorder.effects, len(self.recorder.graph.nodes))

    def clean_prefix(self, frames: list[Any]) -> list[Any]:
        """The frames from the outside in up to the last one that can be cut."""
        if not self.config["nested_graph_breaks"]:
            return frames[:1]
        return list(itertools.takewhile(lambda f: f.clean, frames))

    def cut_step(self, err: StepUnsupported) -> int:
        return self.clean_prefix(err.frames)[-1].start_step  # type: ignore[attr-defined]

    def leave(self) -> None:
        """Put torch's modes back as they were before the trace."""
        self.recorder.state.leave()

    def close(self) -> None:
        """Let go of the user's objects: trackers form cycles that would keep them until the next collection."""
        self.leave()
        recorder = self.recorder
        recorder.objects.clear()
        recorder.keep_alive.clear()
        recorder.attributes.clear()
        for entry in recorder.inputs:
            entry.real = None
        recorder.inputs.clear()
        for vt in recorder.tensor_by_fake.values():
            vt.real = None  # type: ignore[attr-defined]
        recorder.tensor_by_fake.clear()
        for vt in recorder.outside:
            vars(vt).clear()
        recorder.outside.clear()
        recorder.owned = None
        self.unit = None
        self.frame.locals.clear()
        self.frame.cells.clear()

    # -- assumptions --------------------------------------------------------------------------------
    def assumptions(self, causes: Sequence[Assumption] = ()) -> list[Assumption]:
        """causes: what made earlier attempts at the trace end, where that is to be guarded too."""
        guards = GuardsSet()
        for made in (*self.recorder.guards, *causes):
            guards.add(made)
        out = [Assumption(None, "GLOBAL_STATE", ()), *guards, *self.recorder.presence()]
        for text, symbols in self.recorder.shapes.guard_expressions():
            out.append(Assumption(None, "SHAPE_ENV", (text, symbols)))
        return [*out, *self._mutated_distinct(), *self._overlaps()]

    def _mutated_distinct(self) -> list[Assumption]:
        """An object that is changed must at the next call not also be reached where it was not now."""
        out = []
        known = [vt for vt in self.recorder.objects.values() if vt.existing and vt.source is not None and vt.mutable]
        for changed in self.recorder.side_effects.mutated_objects():
            owner = getattr(changed, "owner", changed)
            if owner.source is None:
                continue
            kind = owner.python_type()
            for other in known:
                if other is not owner and other is not changed and other.python_type() is kind and other.source != owner.source:
                    out.append(Assumption(owner.source, "OBJECT_ALIASING", (other.source, False)))
        return out

    def _overlaps(self) -> list[Assumption]:
        """Where the graph writes an input, how the inputs' memory meets is part of the program."""
        inputs = [i for i in self.recorder.inputs if isinstance(i.real, torch.Tensor) and i.real.layout is torch.strided]
        written = [i for i in inputs if self.recorder.is_written(i)]
        out: list[Assumption] = []
        pairs = 0
        for a in written:
            for b in inputs:
                if a is b:
                    continue
                pairs += 1
                if pairs > MAX_PAIRS:
                    out.append(Assumption(a.source, "NO_STORAGE_OVERLAP", (tuple(i.source for i in inputs if i is not a),)))
                    return out
                out.append(Assumption(a.source, "STORAGE_OVERLAP", (b.source, tensors_overlap(a.real, b.real))))
        return out


def _log_step(frame: Any, inst: Any) -> None:
    shown = inst.arg if inst.opname == "BINARY_OP" or inst.opname == "RESUME" else inst.argval if inst.arg is not None else None
    trace_log.info("TRACE %s %s %s", inst.opname, shown, frame.stack)
