"""`OutputGraph`: closes a trace (chapter 12.7, 12.31).

In: the recorder and how the trace ended: the returned value, or the frames at a break. `compile_subgraph`
decides what the graph returns, drops dead operations and unused inputs, has the backend compile it and
writes the code: call the graph, build new objects, replay effects, restore stack and locals, then return or
break. Out: `output_instructions`, assembled by convert.
"""

from __future__ import annotations

import types
import uuid
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ..cpython.arguments import argument_names
from ..cpython.assemble import CodeOptions
from ..cpython.instruction import ExceptionEntry, create
from ..cpython.resume import flatten_args, make_fragment
from ..native import tail_call_plain
from ..symbolic.variables.base import VariableTracker
from . import effects_code
from .codegen import PyCodegen
from .passes import eliminate_dead_code, unused_placeholders
from .reach import Reach
from .sources import shared_bases


def versions(*tensors: Any) -> tuple[tuple[Any, int], ...]:
    """(tensor, its version) each; -1 where it has none (inference tensors), which never compares as unchanged."""
    return tuple((t, -1 if t.is_inference() else t._version) for t in tensors)


def unchanged(seen: tuple[tuple[Any, int], ...]) -> bool:
    return all(version >= 0 and tensor._version == version for tensor, version in seen)


class OutputGraph:
    def __init__(self, recorder: Any, code: types.CodeType, region: Any, compile_graph: Callable[..., Any], on_graph_error: Callable[..., Any]) -> None:
        self.recorder = recorder
        self.code = code
        self.region = region
        self.compile_graph = compile_graph
        self.on_graph_error = on_graph_error
        self.output_instructions: list[Any] = []
        self.output_exceptions: list[ExceptionEntry] = []
        self.installed: dict[str, Any] = {}
        self.cell_names = frozenset((*code.co_cellvars, *code.co_freevars))
        line = code.co_firstlineno
        self.cg = PyCodegen((line, line, 0, 0), self.cell_names)

    @property
    def graph(self) -> torch.fx.Graph:
        return self.recorder.graph

    @property
    def guards(self) -> Any:
        return self.recorder.guards

    @property
    def side_effects(self) -> Any:
        return self.recorder.side_effects

    # -- the subgraph -------------------------------------------------------------------------------
    def compile_subgraph(self, values: list[VariableTracker]) -> PyCodegen:
        """Write everything up to the point where the stack is restored; `values` are what that needs."""
        cg, effects = self.cg, self.side_effects
        reach = Reach(effects)
        for value in values:
            reach.add(value)
        for value in effects_code.targets(effects):
            reach.add(value)
        self._close_graph(reach)
        self._preload(reach)
        effects_code.emit_new_objects(cg, reach)
        effects_code.emit_replay(cg, effects, self.recorder.root_globals)
        self._set_modes(self.recorder.state.left_behind())
        self.output_instructions = cg.instructions
        self.output_exceptions = cg.exceptions
        return cg

    def _close_graph(self, reach: Reach) -> None:
        """Outputs, dead code, unused inputs; then the backend, then the call."""
        recorder, graph = self.recorder, self.recorder.graph
        outputs = list(reach.outputs)
        nodes = [value.realize().as_graph_argument(recorder.last_frame)[0] for value in outputs]
        for write, args in recorder.state.restorers():
            node = graph.call_function(write, args)
            node.meta["impure"] = True
            node.meta["example_value"] = None
        output = graph.output(tuple(nodes))
        output.meta["example_value"] = tuple(n.meta.get("example_value") if isinstance(n, torch.fx.Node) else n for n in nodes)
        eliminate_dead_code(graph)
        self.remove_unused_graphargs()
        if outputs or any(n.op.startswith("call_") and not _only_mode(n) for n in graph.nodes):
            self._call_graph(outputs)

    def remove_unused_graphargs(self) -> None:
        recorder = self.recorder
        dead = unused_placeholders(recorder.graph)
        recorder.inputs = [i for i in recorder.inputs if i.node not in dead]
        for node in dead:
            recorder.graph.erase_node(node)

    def install_global(self, prefix: str, value: Any) -> str:
        """A name for a callable of the rewritten code; it is held by the code's constants, never by the user's globals."""
        name = f"{prefix}_{str(uuid.uuid4()).replace('-', '_')}"
        self.installed[name] = value
        return name

    install_global_unsafe = install_global

    def _call_graph(self, outputs: list[Any]) -> None:
        cg, recorder = self.cg, self.recorder
        name = self.install_global(f"__compiled_fn_{recorder.next_graph()}", None)
        compiled = self.compile_graph(recorder, name)
        self.installed[name] = compiled
        seen = self._note_versions()
        start = cg.nop()
        shared = self._load_shared([entry.source for entry in recorder.inputs])
        cg.push_callable(compiled)
        for entry in recorder.inputs:
            cg.load_source(entry.source)
        cg.call(len(recorder.inputs))
        end = cg.nop()
        self._forget(shared)
        self._rerun_on_error(start, end, seen)
        if not outputs:
            cg.emit("POP_TOP")
            return
        cg.emit("UNPACK_SEQUENCE", len(outputs))
        for value in outputs:
            cg.env[value] = cg.store_temp()

    def _load_shared(self, sources: list[Any]) -> list[Any]:
        """Read what several inputs are reached through, such as a module's dict of parameters, once."""
        cg, shared = self.cg, []
        for source in shared_bases(sources):
            if source not in cg.source_env:
                cg.load_source(source)
                cg.source_env[source] = cg.store_temp()
                shared.append(source)
        return shared

    def _forget(self, shared: list[Any]) -> None:
        """What was read for the call alone keeps nothing alive."""
        for source in shared:
            self.cg.load_const(None)
            self.cg.emit("STORE_FAST", argval=self.cg.source_env.pop(source))

    def _note_versions(self) -> str | None:
        """Keep the versions of the tensors that the graph writes: they tell whether a failed graph had begun to."""
        recorder, cg = self.recorder, self.cg
        if not recorder.mutated_inputs:
            return None
        written = [entry for entry in recorder.inputs if recorder.is_written(entry)]
        cg.push_callable(versions)
        for entry in written:
            cg.load_source(entry.source)
        cg.call(len(written))
        return cg.store_temp()

    def _rerun_on_error(self, start: Any, end: Any, seen: str | None) -> None:
        """If the graph raises before it changed anything, the original bytecode runs on the same arguments.

        torch's modes are put back first: the graph may have stopped between switching one and switching back.
        """
        reruns, modes = not self.recorder.writes_unversioned(), self.recorder.state.entered_with()
        if not reruns and not modes:
            return
        cg = self.cg
        skip = create("NOP", positions=cg.positions)
        cg.emit("JUMP_FORWARD", target=skip)
        handler = cg.nop()
        failed = cg.store_temp()
        self._set_modes(modes)
        if reruns:
            self._rerun(failed, seen)
        else:
            cg.load_fast(failed)
            cg.emit("RERAISE", 0)
        cg.instructions.append(skip)
        cg.exceptions.append(ExceptionEntry(start, end, handler, 0, False))

    def _rerun(self, failed: str, seen: str | None) -> None:
        cg = self.cg
        cg.push_callable(self.on_graph_error)
        cg.load_fast(failed)
        if seen is None:
            cg.load_const(())
        else:
            cg.load_fast(seen)
        cg.call(2)
        cg.emit("POP_TOP")
        emit_tail_call(cg, tail_call_plain, flatten_args(self.code), [*self.code.co_freevars], self._argument_loads())

    def _argument_loads(self) -> list[Callable[[PyCodegen], None]]:
        def load(name: str) -> Callable[[PyCodegen], None]:
            if name in self.cell_names:
                return lambda cg: cg.emit("LOAD_DEREF", argval=name)  # type: ignore[return-value]
            return lambda cg: cg.load_fast(name)

        return [load(n) for n in argument_names(self.code)]

    def _preload(self, reach: Reach) -> None:
        """Read what effects could change before they are replayed."""
        cg = self.cg
        for source in reach.sources:
            if not cg.is_plain_local(source):
                cg.load_source(source)
                cg.source_env[source] = cg.store_temp()

    def _set_modes(self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        for write, args in calls:
            self.cg.push_callable(write)
            for arg in args:
                self.cg.load_const(arg)
            self.cg.call(len(args))
            self.cg.emit("POP_TOP")

    # -- the code -----------------------------------------------------------------------------------
    def assemble(self) -> types.CodeType:
        names = argument_names(self.code)
        options = CodeOptions.of(self.code)
        options = dataclass_replace(
            options, argcount=len(names), posonlyargcount=0, kwonlyargcount=0, flags=self.code.co_flags & ~0x0C,
            varnames=tuple(names), cellvars=self.code.co_cellvars, freevars=self.code.co_freevars, consts=(), names=(),
        )
        return make_fragment(self.cg.instructions, self.cg.exceptions, options)


def dataclass_replace(options: CodeOptions, **changes: Any) -> CodeOptions:
    import dataclasses

    return dataclasses.replace(options, **changes)


def _only_mode(node: torch.fx.Node) -> bool:
    from ..symbolic.global_state import MODES

    return any(node.target is mode.write for mode in MODES.values())


def emit_tail_call(cg: PyCodegen, fn: Any, code: types.CodeType, cells: list[str], loads: list[Callable[[PyCodegen], None]]) -> None:
    """`return fn(code, closure, *values)`, with the closure made of this frame's cells."""
    cg.push_callable(fn)
    cg.load_const(code)
    if cells:
        for name in cells:
            cg.emit("LOAD_CLOSURE", argval=name)
        cg.emit("BUILD_TUPLE", len(cells))
    else:
        cg.load_const(None)
    for load in loads:
        load(cg)
    cg.call(2 + len(loads))
    cg.emit("RETURN_VALUE")
