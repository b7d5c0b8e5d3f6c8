"""The whole pipeline, frame in, cache entry out (chapter 12.3, 12.30). Newcomers start here.

`ConvertFrame` is what the native hook calls on a miss: it decides whether the frame may be compiled
(hook.policy), `_compile` traces it (symbolic), closes the graph and writes the code (graph), has the
backend compile (backends), builds the guards (guards) and stores the entry on the code object (native).
A break restarts the trace with the break planned; user code is never run while tracing.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import types
from typing import Any

import numpy as np
import torch

from . import native
from .backends.lean import Direct
from .core import events, trace_rules
from .core.collector import full_collections_postponed
from .core.exc import (
    BackendCompilerFailed,
    ConstraintViolationError,
    DynamoError,
    FailOnRecompileLimitHit,
    ObservedException,
    RestartAnalysis,
    SkipFrame,
    StepUnsupported,
    Unsupported,
    UserError,
)
from .core.logs import ALWAYS, artifact_logger, set_compile_id
from .core.options import CompileOptions
from .core.reasons import BreakReason, CannotReconstruct, OpFailed, RaisedException, UnsupportedOperation
from .core.records import CompileRecord
from .core.settings import raises_internal_errors, settings
from .core.state import state
from .cpython.arguments import argument_names
from .graph import describe
from .graph.break_code import BreakWriter
from .graph.fingerprint import Fingerprint
from .graph.output_graph import OutputGraph, unchanged
from .graph.resume import original_code
from .guards import GuardBuildError, Scope, strict
from .guards import build as build_guards
from .hook import policy
from .symbolic.builder import VariableBuilder, register_exact
from .symbolic.entry import Trace
from .symbolic.shapes import SeenValues

logs = {tag: artifact_logger(tag) for tag in ("dynamo", "recompiles", "graph_breaks", "bytecode", "guards", "graph_code", "graph", "dynamic")}


register_exact(native.CompiledFunction, VariableBuilder.wrap_compiled_function)


@dataclasses.dataclass
class GuardedCode:
    """A compiled frame: the rewritten code and the guards under which it may run."""

    code: types.CodeType
    guard_manager: Any
    compile_id: str


@dataclasses.dataclass
class Unit:
    """A frame to compile: code, its spaces, bound locals in flat order."""

    code: types.CodeType
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: tuple[Any, ...] | None
    locals: tuple[Any, ...]
    fn: Any
    is_resume: bool


class ConvertFrame:
    """The miss callback of one region."""

    def __init__(self, options: CompileOptions) -> None:
        self.options = options
        self.region: Any = None

    def __call__(
        self, code: types.CodeType, globals_: dict[str, Any], builtins_: dict[str, Any], closure: Any, locals_: tuple[Any, ...], fn: Any,
        is_resume: bool,
    ) -> Any:
        unit = Unit(code, globals_, builtins_, closure, locals_, fn, is_resume)
        return catch_errors_wrapper(self, unit)


def catch_errors_wrapper(frame: ConvertFrame, unit: Unit) -> Any:
    """Entry or None; an internal error never reaches the user, the original runs instead."""
    why = _why_not(frame, unit)
    if why is not None:
        return None
    limit = policy.over_limit(unit.code, frame.region)
    if limit is not None:
        return _hit_limit(frame, unit, limit)
    rng = _rng_state()
    hooks = torch._C._autograd._saved_tensors_hooks_set_tracing(True)       # what tracing saves isn't the user's
    try:
        return _convert(frame, unit)
    except (DynamoError, RecursionError) as err:
        if settings.suppress_errors and not isinstance(err, FailOnRecompileLimitHit):
            ALWAYS.warning("compiling %s failed, it runs as plain Python: %s", unit.code.co_name, err)
            native.set_action(unit.code, native.SKIP)
            return None
        raise
    except Exception as err:
        if raises_internal_errors():
            raise
        ALWAYS.warning(
            "internal error while compiling %s (%s:%d): %s: %s; it runs as plain Python. Please report this.",
            unit.code.co_name, unit.code.co_filename, unit.code.co_firstlineno, type(err).__name__, err, exc_info=settings.verbose,
        )
        native.set_action(unit.code, native.SKIP)
        return None
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(hooks)
        _restore_rng(rng)


def _rng_state() -> Any:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _restore_rng(saved: Any) -> None:
    torch.set_rng_state(saved[0])
    random.setstate(saved[1])
    np.random.set_state(saved[2])


def _why_not(frame: ConvertFrame, unit: Unit) -> str | None:
    """Why this frame is not even tried."""
    if state.run_only:
        return "run() compiles nothing new"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a functorch transform is running"
    if torch._C._len_torch_dispatch_stack():
        return "a torch dispatch mode is active"
    if unit.fn is None and not unit.is_resume:
        why = policy.why_skipped(unit.code, unit.globals)
        if why is not None:
            opaque = unit.globals.get("__name__") in trace_rules.OPAQUE_MODULES
            native.set_action(unit.code, native.SKIP_RECURSIVE if opaque else native.SKIP)
            return why
        if unit.code.co_flags & 0x2A0:
            return "generator"
        if not policy.has_tensor_in_frame(unit.code, unit.globals, unit.locals, unit.closure):
            return "no tensor in the frame"
    elif not unit.is_resume and policy.is_plain_frame(unit.code, unit.globals, unit.locals, unit.closure):
        return "no tensor in the frame"
    return None


def _hit_limit(frame: ConvertFrame, unit: Unit, limit: str) -> None:
    """The chapter's warning (12.25), then only existing entries run."""
    reasons = _miss_reasons(unit, frame.region)
    _report_recompile(frame, unit, None)
    last = reasons[0][1] if reasons else ""
    code = original_code(unit.code)
    text = (
        f"torch._dynamo hit {limit}\n   function: {code.co_name!r} ({code.co_filename}:{code.co_firstlineno})\n   last reason: "
        f"{reasons[0][0] if reasons else ''}: {last}\nTo log all recompilation reasons, use DYNAMO_NB_LOGS=\"recompiles\"."
    )
    events.emit("limit", {"function": code.co_name, "file": code.co_filename, "line": code.co_firstlineno, "limit": limit, "reason": last})
    if settings.fail_on_recompile_limit_hit or frame.options.fullgraph:
        raise FailOnRecompileLimitHit(text)
    ALWAYS.warning(text)
    native.set_action(unit.code, native.RUN_ONLY)


def _miss_reasons(unit: Unit, region: Any) -> list[tuple[str, str]]:
    """(compile id, first failing guard) of every entry that was tried, newest first."""
    out = []
    for entry in native.get_entries(unit.code):
        if entry.region is region:
            out.append((entry.compile_id, entry.guard_manager.reason(unit.locals, unit.globals, unit.builtins, unit.closure)))
    return sorted(out, key=lambda pair: -int(pair[0].split("/")[1]))


# -- one conversion -----------------------------------------------------------------------------------
def _convert(frame: ConvertFrame, unit: Unit) -> Any:
    data = native.code_data(unit.code)
    if "frame_id" not in data:
        data["frame_id"] = state.next_frame()
    attempt = data.get("compiles", 0)
    data["compiles"] = attempt + 1
    compile_id = f"{data['frame_id']}/{attempt}"
    before = set_compile_id(compile_id)
    record = describe.new_record(compile_id, unit.code, original_code(unit.code))
    state.counters["frames"]["total"] += 1
    try:
        _report_recompile(frame, unit, record)
        events.emit("compile_start", record)
        with state.timed("_compile", record.stages):
            guarded = _compile(frame, unit, record)
        if guarded is None:
            return None
        state.counters["frames"]["ok"] += 1
        entry = native.CacheEntry(guarded.code, guarded.guard_manager.root, frame.region, None, None)
        entry.guard_manager = guarded.guard_manager
        entry.compile_id = compile_id
        native.insert_entry(unit.code, entry)
        return entry
    finally:
        set_compile_id(before)
        if record.outcome == "running":
            record.outcome = "failed"
        events.emit("compile_end", record)


def _report_recompile(frame: ConvertFrame, unit: Unit, record: CompileRecord | None) -> None:
    reasons = _miss_reasons(unit, frame.region)
    if not reasons:
        return
    code = original_code(unit.code)
    lines = "\n".join(f"    - {cid}: {why}" for cid, why in reasons)
    logs["recompiles"].info(
        "Recompiling function %s in %s:%d\n    triggered by the following guard failure(s):\n%s", code.co_name, code.co_filename, code.co_firstlineno, lines
    )
    if record is None:
        return
    record.recompile_reasons = [f"{cid}: {why}" for cid, why in reasons]
    events.emit("recompile", record)
    if settings.error_on_recompile:
        raise UserError(f"recompiling {code.co_name} with error_on_recompile set:\n{lines}")


def _compile(frame: ConvertFrame, unit: Unit, record: CompileRecord) -> GuardedCode | None:
    """Trace until the trace ends where code can be written for it; None if the frame runs as plain Python."""
    seen = native.code_data(unit.code).setdefault("seen", SeenValues())
    try:
        with full_collections_postponed():
            return _settle(frame, unit, record, settings.snapshot(), seen, _finish)
    except SkipFrame as skip:
        return _skip(frame, unit, record, skip)


def _settle(frame: ConvertFrame, unit: Unit, record: CompileRecord, config: dict[str, Any], seen: SeenValues, finish: Any) -> Any:
    """`finish` for the first trace whose end can be written; None for a user's error under fullgraph. Raises SkipFrame."""
    break_at, reason = 0, None
    static = False
    causes: list[Any] = []
    reasons: dict[int, int] = {}
    logs["dynamo"].info("Step 1: torchdynamo start tracing %s %s:%d", unit.code.co_name, unit.code.co_filename, unit.code.co_firstlineno)
    for _ in range(config["max_restarts"]):
        trace = Trace(unit, config, frame.options, seen, break_at, static)
        try:
            with state.timed("tracing", record.stages):
                ended = trace.run()
            logs["dynamo"].info("Step 1: torchdynamo done tracing %s (%s)", unit.code.co_name, ended)
            if ended == "break" and frame.options.fullgraph:
                _refuse(trace, reason, record)
                return None
            return finish(frame, unit, record, trace, ended, reason, causes)
        except RestartAnalysis as again:
            break_at, reason = _earlier(again, break_at, reasons), again.reason or reason
            causes += _cause(trace, break_at, reason)
        except StepUnsupported as err:
            if not hasattr(err, "frames"):       # the code after the trace cannot be written with symbols
                if static:
                    raise SkipFrame(str(err.reason)) from None
                static, break_at = True, 0
                causes.clear()
                continue
            if frame.options.fullgraph and not _user_error(err.reason):
                _refuse(trace, err.reason, record)
            break_at, reason = trace.cut_step(err), err.reason
            causes += _cause(trace, break_at, reason)
        finally:
            trace.close()
    raise SkipFrame("tracing did not settle", permanent=True)


def _cause(trace: Any, step: int, reason: BreakReason | None) -> list[Any]:
    """What made the trace end at this step: another call for which it doesn't hold may be captured further."""
    return [] if isinstance(reason, CannotReconstruct) else trace.recorder.guards.since(step)


def _earlier(again: RestartAnalysis, break_at: int, seen: dict[int, int]) -> int:
    seen[again.step] = seen.get(again.step, 0) + 1
    if seen[again.step] > 2:
        raise SkipFrame(f"cannot break: {again.reason}")
    return again.step


def _user_error(reason: BreakReason | None) -> bool:
    return isinstance(reason, (RaisedException, OpFailed))


def _refuse(trace: Any, reason: BreakReason | None, record: CompileRecord) -> None:
    """fullgraph=True: an error of the user's program shows as itself, anything else is refused."""
    reason = reason or trace.reason
    if _user_error(reason):
        record.outcome, record.why = "skipped", str(reason)
        return
    raise Unsupported(describe.unsupported_text(trace, reason), reason)


def _skip(frame: ConvertFrame, unit: Unit, record: CompileRecord, skip: SkipFrame) -> GuardedCode | None:
    if frame.options.fullgraph:
        raise Unsupported(f"{unit.code.co_name} ({unit.code.co_filename}:{unit.code.co_firstlineno}) cannot be captured as one graph: {skip.why}")
    record.outcome, record.why = "skipped", skip.why
    logs["dynamo"].info("skipping %s: %s", unit.code.co_name, skip.why)
    events.emit("skip", record)
    native.set_action(unit.code, native.SKIP)
    return None


def _finish(
    frame: ConvertFrame, unit: Unit, record: CompileRecord, trace: Any, ended: str, reason: BreakReason | None, causes: list[Any],
) -> GuardedCode:
    with state.timed("code generation", record.stages):
        output, code = _write(frame, unit, trace, ended, state.next_graph, lambda r, name: _call_backend(frame, r, name, record))
    if ended != "return":
        _report_break(trace, reason or trace.reason, record)
    with state.timed("guards", record.stages):
        manager = _guards(unit, trace, causes)
    if settings.strict and not strict.is_on():
        strict.attach(manager)
    if settings.strict == "retrace" and not isinstance(reason, CannotReconstruct):     # there, the break lies before its cause, which isn't guarded
        manager.observe(_retracer(frame, unit, record, trace, Fingerprint(trace.recorder, code, output.installed.values())))
    record.outcome = "compiled"
    describe.complete(record, unit, trace, output, manager, code)
    _log_compiled(unit, record, code, manager)
    return GuardedCode(code, manager, record.compile_id)


def _write(frame: ConvertFrame, unit: Unit, trace: Any, ended: str, next_graph: Any, compile_graph: Any) -> tuple[OutputGraph, types.CodeType]:
    """The rewritten code of a finished trace."""
    trace.recorder.next_graph = next_graph
    trace.leave()
    output = OutputGraph(trace.recorder, unit.code, frame.region, compile_graph, _graph_failed)
    if ended == "return":
        value = trace.frame.result
        cg = output.compile_subgraph([value])
        cg.load(value)
        cg.emit("RETURN_VALUE")
    else:
        writer = BreakWriter(output, trace.frames)
        cg = output.compile_subgraph(writer.values())
        writer.write(cg)
    return output, output.assemble()


def _retracer(frame: ConvertFrame, unit: Unit, record: CompileRecord, trace: Any, kept: Fingerprint) -> Any:
    """strict="retrace": where the guards hold, a new trace must come to what the entry is (design 5)."""
    seen = native.code_data(unit.code)["seen"].frozen()
    config, original, is_resume = trace.config, unit.code, unit.is_resume

    def again(frame: ConvertFrame, unit: Unit, record: CompileRecord, trace: Any, ended: str, *how: Any) -> Fingerprint:
        output, code = _write(frame, unit, trace, ended, lambda: 0, lambda recorder, name: object())
        return Fingerprint(trace.recorder, code, output.installed.values())

    def on_check(ok: bool, values: Any, globals_: Any, builtins_: Any, closure: Any) -> None:
        if not ok or not isinstance(values, tuple):
            return
        rng = _rng_state()
        fresh = Unit(original, globals_, builtins_, closure, values, None, is_resume)
        try:
            now = _settle(frame, fresh, describe.new_record("", original, original_code(original)), config, seen, again)
        except (DynamoError, SkipFrame) as err:
            raise strict.RetraceDiffers(f"{where}: the entry's guards hold, but a new trace ends with {err!r}") from None
        finally:
            _restore_rng(rng)
        difference = "a new trace finds an error of the user's" if now is None else kept.difference(now)
        if difference is not None:
            raise strict.RetraceDiffers(f"{where}: the entry's guards hold, but {difference}")

    where = f"{record.compile_id} {record.function} ({record.file}:{record.first_line})"
    return on_check


def _guards(unit: Unit, trace: Any, causes: list[Any]) -> Any:
    """The entry's guards; without the causes of its break where one of them can't be guarded."""
    names = argument_names(unit.code)
    scope = Scope.of_flat(names, unit.code.co_freevars, unit.locals, unit.globals, unit.builtins, unit.closure)

    def built(causes: list[Any]) -> Any:
        return build_guards(trace.assumptions(causes), names, unit.code.co_freevars, scope, unit.code.co_name)

    try:
        try:
            return built(causes)
        except GuardBuildError:
            if not causes:
                raise
            return built([])
    except GuardBuildError as err:
        raise SkipFrame(str(err), permanent=True) from None


def _call_backend(frame: ConvertFrame, recorder: Any, name: str, record: CompileRecord) -> Any:
    options = frame.options
    gm = recorder.graph_module(name)
    examples = [entry.real for entry in recorder.inputs]
    logs["dynamo"].info("Step 2: calling compiler function %s", options.name)
    logs["graph_code"].info("TRACED GRAPH\n %s", gm.print_readable(print_output=False) if logs["graph_code"].isEnabledFor(20) else "")
    state.counters["stats"]["unique_graphs"] += 1
    state.counters["stats"]["calls_captured"] += sum(n.op.startswith("call_") for n in gm.graph.nodes)
    graph_record = describe.graph_record(gm, name, options.name, recorder)
    extra = dict(options.backend_options)
    if getattr(options.backend, "takes_fake_inputs", False):
        extra["fake_inputs"] = recorder.fresh_fakes()
    if options.mode and options.name == "inductor":
        extra["mode"] = options.mode
    if options.mode and options.name == "triton_cpp" and options.mode.startswith("max-autotune"):
        extra["max_autotune"] = True
    try:
        with state.timed("backend", record.stages):
            compiled = options.backend(gm, examples, **extra)
    except (DynamoError, ObservedException):
        raise
    except Exception as err:
        raise BackendCompilerFailed(options.name, err, f"\n\nwhile compiling the graph of {record.function} ({record.file}:{record.first_line})") from err
    logs["dynamo"].info("Step 2: done compiler function %s", options.name)
    if not callable(compiled):
        raise BackendCompilerFailed(options.name, TypeError(f"a backend must return a callable, not {type(compiled).__name__}"))
    text, parts = getattr(compiled, "generated_code", "") or "", getattr(compiled, "generated_graphs", ())
    record.graphs.append(dataclasses.replace(graph_record, seconds=state.times["backend"][-1], generated=text, parts=parts))
    return compiled.entry if isinstance(compiled, Direct) else compiled


def _graph_failed(err: BaseException, seen: Any) -> None:
    """A graph raised before it changed anything: the original bytecode takes over and raises eager's own error.

    seen: the tensors it writes with their versions at the call; if one changed, the error is the result.
    """
    # Hooks of saved tensors may have run, and raised this; NotPlain comes before anything runs.
    hooked = torch._C._autograd._top_saved_tensors_default_hooks(False) is not None and not isinstance(err, native.NotPlain)
    if hooked or not isinstance(err, Exception) or not unchanged(seen):
        raise err
    state.counters["run_failed"][type(err).__name__] += 1
    events.emit("run_failed", {"error": f"{type(err).__name__}: {err}"})


def _report_break(trace: Any, reason: BreakReason | None, record: CompileRecord) -> None:
    reason = reason or UnsupportedOperation("a value of the trace that has to be made by the original code")
    broken = describe.break_record(trace.frames, reason)
    record.breaks.append(broken)
    state.counters["graph_break"][str(reason)] += 1
    state.breaks += 1
    if logs["graph_breaks"].isEnabledFor(20):
        logs["graph_breaks"].info(describe.break_text(broken, reason))
    events.emit("break", broken)


def _log_compiled(unit: Unit, record: CompileRecord, code: types.CodeType, manager: Any) -> None:
    if logs["bytecode"].isEnabledFor(20):
        where = f"{unit.code.co_name} {unit.code.co_filename} line {unit.code.co_firstlineno}"
        logs["bytecode"].info("ORIGINAL BYTECODE %s\n%s", where, record.original_bytecode)
        logs["bytecode"].info("MODIFIED BYTECODE %s\n%s", where, record.modified_bytecode)
    if logs["guards"].isEnabledFor(20):
        logs["guards"].info("GUARDS:\n%s", manager)
        latency = manager.latency_us(unit.locals, unit.globals, unit.builtins, unit.closure, 2)
        logs["guards"].info("Guard eval latency = %.2f us", latency)


def constraint_errors() -> tuple[type, ...]:
    return (ConstraintViolationError, UserError)


__all__ = ["ConvertFrame", "GuardedCode", "_compile", "catch_errors_wrapper", "sys"]
