"""Whole-program capture: one trace becomes one `torch.fx.GraphModule` (chapter 12.32).

In: a callable and the arguments of one call. Out: a `Captured` with a graph module that is called as the
callable was and returns what it returned, and the assumptions of the trace. Called by `api.export`.

The trace ends as it does for compile(): `OutputGraph` writes the code that rebuilds the result. That code
runs once on markers instead of values; the markers in what it returns say where each leaf comes from.
Nothing of the user's runs, and no effect is replayed.
"""

from __future__ import annotations

import dataclasses
import inspect
import random
import types
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from .. import native
from ..convert import Unit
from ..core.exc import DynamoError, InternalError, RestartAnalysis, SkipFrame, StepUnsupported, Unsupported
from ..core.logs import ALWAYS
from ..core.options import CompileOptions
from ..core.reasons import BreakReason
from ..core.settings import raises_internal_errors, settings
from ..core.source import AttrSource, DictGetItemSource, DictValueSource, GetItemSource, LocalSource, Source
from ..cpython.arguments import argument_names
from ..graph import describe
from ..graph.output_graph import OutputGraph
from ..graph.resume import original_code
from ..symbolic.entry import Trace
from ..symbolic.shapes import SeenValues
from ..symbolic.variables.base import VariableTracker
from ..symbolic.variables.mappings import ConstDictVariable
from ..symbolic.variables.sequences import TupleVariable
from .captured_graph import Calling, GraphWriter, Leaf, Slot

PLAIN = (int, float, bool, str, complex, bytes, type(None))
NO_SIGNATURE = (ValueError, TypeError)


@dataclasses.dataclass
class Captured:
    """module: the whole program; guards: what tracing took for granted; example: its flat inputs."""

    module: torch.fx.GraphModule
    guards: list[Any]
    example: list[Any]


class _ResultGraph(OutputGraph):
    """Writes the code of the result only: modes the program leaves behind stay as they are."""

    def _leave_modes(self) -> None:
        """Nothing is left behind: the program is captured, not run."""


@dataclasses.dataclass
class Call:
    """The call to capture: the frame to trace and where each leaf of the arguments is found in it."""

    fn: Any
    module: torch.nn.Module | None
    signature: inspect.Signature | None
    code_owner: types.FunctionType
    first: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any] = dataclasses.field(default_factory=list)
    spec: Any = None
    names: list[str] = dataclasses.field(default_factory=list)
    sources: dict[Source, int] = dataclasses.field(default_factory=dict)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The frame's locals in flat order for these arguments."""
        bound = inspect.signature(self.code_owner, follow_wrapped=False).bind(*self.first, *args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.arguments[name] for name in argument_names(self.code_owner.__code__))


def capture(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, dynamic: bool | None = None) -> Captured:
    """Trace fn(*args, **kwargs) to one graph. Raises `exc.Unsupported` where the graph would break."""
    call = describe_call(fn, args, kwargs)
    saved = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        with native.compile_lock():
            captured: Captured = native.call_disabled(_capture, call, dynamic)
        return captured
    finally:
        torch.set_rng_state(saved[0])
        random.setstate(saved[1])
        np.random.set_state(saved[2])


# -- the call ---------------------------------------------------------------------------------------
def describe_call(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    if isinstance(fn, torch.nn.Module):
        from .modules import CompiledModuleMixin

        fn = fn._original() if isinstance(fn, CompiledModuleMixin) else fn  # type: ignore[operator]
    elif isinstance(fn, native.CompiledFunction):
        fn = fn._torchdynamo_orig_callable
    if not callable(fn):
        raise TypeError(f"export() takes a callable, not {type(fn).__name__}")
    owner, first = _frame_of(fn)
    bound_to = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    call = Call(fn, bound_to if isinstance(bound_to, torch.nn.Module) else None, _signature(fn), owner, first, args, kwargs)
    if call.signature is not None:
        bound = call.signature.bind(*args, **kwargs)
        call.args, call.kwargs = bound.args, bound.kwargs
    _find_leaves(call)
    return call


def _frame_of(fn: Any) -> tuple[types.FunctionType, tuple[Any, ...]]:
    """The Python function whose frame is traced, and the arguments it gets before the call's own."""
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType) and "__signature__" not in vars(fn.__func__):
        return fn.__func__, (fn.__self__,)
    if isinstance(fn, types.FunctionType) and "__signature__" not in vars(fn):
        return fn, ()

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call, ()  # type: ignore[return-value]


def _signature(fn: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn, follow_wrapped=False)
    except NO_SIGNATURE:
        return None


def _find_leaves(call: Call) -> None:
    """Flatten the arguments; note under which source of the frame each leaf stands."""
    pairs, call.spec = pytree.tree_flatten_with_path((call.args, call.kwargs))
    roots = _root_sources(call)
    for i, (path, leaf) in enumerate(pairs):
        call.leaves.append(leaf)
        side, key = path[0].idx, getattr(path[1], "idx", getattr(path[1], "key", None))  # type: ignore[attr-defined]
        source, value = roots[(side, key)], (call.args, call.kwargs)[side][key]  # type: ignore[index]
        sources = _walk(value, path[2:], [source])
        call.sources.update(dict.fromkeys(sources, i))
        call.names.append(_leaf_name(source, path[2:]))


def _root_sources(call: Call) -> dict[tuple[int, Any], Source]:
    marks = [(0, i) for i in range(len(call.args))]
    bound = inspect.signature(call.code_owner, follow_wrapped=False).bind(*call.first, *marks, **{k: (1, k) for k in call.kwargs})
    kinds = bound.signature.parameters
    out: dict[tuple[int, Any], Source] = {}
    for name, value in bound.arguments.items():
        if kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
            out.update({mark: GetItemSource(LocalSource(name), i) for i, mark in enumerate(value)})
        elif kinds[name].kind is inspect.Parameter.VAR_KEYWORD:
            out.update({mark: DictGetItemSource(LocalSource(name), key) for key, mark in value.items()})
        elif not any(value is f for f in call.first):
            out[value] = LocalSource(name)
    return out


def _walk(value: Any, path: tuple[Any, ...], sources: list[Source]) -> list[Source]:
    """The sources under which the leaf at `path` below `value` may be read."""
    for key in path:
        if isinstance(key, pytree.SequenceKey):
            sources, value = [GetItemSource(s, key.idx) for s in sources], value[key.idx]
        elif isinstance(key, pytree.MappingKey):
            position = list(value).index(key.key)
            sources = [make for s in sources for make in (DictGetItemSource(s, key.key), DictValueSource(s, position))]
            value = value[key.key]
        elif isinstance(key, pytree.GetAttrKey):
            if isinstance(value, tuple) and key.name in getattr(value, "_fields", ()):
                sources = [GetItemSource(s, value._fields.index(key.name)) for s in sources]  # type: ignore[attr-defined]
            else:
                sources = [AttrSource(s, key.name) for s in sources]
            value = getattr(value, key.name)
        else:
            return []
    return sources


def _leaf_name(source: Source, path: tuple[Any, ...]) -> str:
    root = source.root.local_name  # type: ignore[attr-defined]
    own = [str(getattr(source, "index", getattr(source, "key", "")))] if source is not source.root else []
    parts = [root, *own, *(str(getattr(k, "idx", getattr(k, "key", getattr(k, "name", "")))) for k in path)]
    return "_".join("".join(c if c.isalnum() else "_" for c in part) for part in parts)


# -- the trace --------------------------------------------------------------------------------------
def _capture(call: Call, dynamic: bool | None) -> Captured:
    owner = call.code_owner
    builtins_: dict[str, Any] = owner.__builtins__  # type: ignore[attr-defined]
    unit = Unit(owner.__code__, owner.__globals__, builtins_, owner.__closure__, call.bind(call.args, call.kwargs), owner, False)
    if owner.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Unsupported(f"{_where(call)} is a generator or a coroutine; export() captures functions that return")
    options = CompileOptions(None, "export", fullgraph=True, dynamic=dynamic, export=True)
    config = settings.snapshot()
    for static in (False, True):
        trace = Trace(unit, config, options, SeenValues(), 0, static)
        try:
            if trace.run() == "break":
                raise Unsupported(describe.unsupported_text(trace, trace.reason), trace.reason)
            return _finish(call, unit, trace)
        except StepUnsupported as err:
            if hasattr(err, "frames"):
                trace.frames = err.frames
            elif not static:
                continue        # the result cannot be written with symbols
            raise Unsupported(describe.unsupported_text(trace, err.reason), err.reason) from None
        except RestartAnalysis as again:
            raise Unsupported(_text(call, trace, again.reason), again.reason) from None
        except SkipFrame as skip:
            raise Unsupported(f"{_where(call)} cannot be captured as one graph: {skip.why}") from None
        except DynamoError:
            raise
        except Exception as err:
            if raises_internal_errors():
                raise
            raise InternalError(f"internal error while capturing {_where(call)}: {type(err).__name__}: {err}. Please report this.") from err
        finally:
            trace.close()
    raise AssertionError("the second attempt returns or raises")


def _where(call: Call) -> str:
    code = original_code(call.code_owner.__code__)
    if code.co_filename == __file__:
        return f"{type(call.fn).__name__}()"
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def _text(call: Call, trace: Any, reason: BreakReason) -> str:
    return f"{_where(call)} cannot be captured as one graph: {describe.unsupported_text(trace, reason)}"


def _finish(call: Call, unit: Unit, trace: Any) -> Captured:
    recorder = trace.recorder
    value = trace.frame.result
    buffers = _written_buffers(call, recorder)
    changed = _other_effects(call, recorder, bool(buffers))
    guards = trace.assumptions()
    trace.leave()
    taken: list[Any] = []
    output = _ResultGraph(recorder, unit.code, None, lambda r, name: _slots(r, taken), _reraise)
    root = TupleVariable([value, *(b.value for b in buffers)])
    cg = output.compile_subgraph([root])
    cg.load(root)
    cg.emit("RETURN_VALUE")
    result = _run_on_markers(call, unit, output.assemble())
    writer = GraphWriter(recorder, call, taken)
    for written, new in zip(buffers, result[1:], strict=True):
        writer.write_buffer(written.name, new)
    seen: dict[int, Any] = {}
    flat, out_spec = pytree.tree_flatten(result[0], is_leaf=lambda o: seen.setdefault(id(o), o) is None or type(o) is torch.Size)
    if changed & seen.keys():
        raise Unsupported(f"{_where(call)} returns, inside of another container, a container of the program that it changed")
    module = writer.finish(flat, lambda leaf: _no_graph_value(call, leaf), guards)
    sizes = frozenset(i for i, leaf in enumerate(flat) if type(leaf) is torch.Size)
    fixed = _fixed_leaves(call, recorder, guards)
    calling = Calling(call.spec, out_spec, call.signature, fixed, _same_leaves(call), list(call.names), sizes)
    return Captured(calling.attach(module), guards, call.leaves)


def _reraise(err: BaseException) -> None:
    raise err


def _no_graph_value(call: Call, leaf: Any) -> Exception:
    what = leaf.path if isinstance(leaf, Leaf) else f"a {type(leaf).__name__}"
    return Unsupported(
        f"{_where(call)} returns {what}, which is no value of a graph. Return tensors, constants and containers of them, "
        "or register the type with torch.utils._pytree."
    )


def _slots(recorder: Any, taken: list[Any]) -> Any:
    """In place of the compiled graph: its results as markers."""
    nodes = next(n for n in recorder.graph.nodes if n.op == "output").args[0]
    taken[:] = nodes
    made = tuple(Slot(i) for i in range(len(nodes)))
    return lambda *_: made


def _run_on_markers(call: Call, unit: Unit, code: types.CodeType) -> Any:
    """Run the code that rebuilds the result, with markers where the arguments' leaves stood."""
    marked = [Leaf(i, call.names[i]) if isinstance(v, torch.Tensor) or type(v) in PLAIN else v for i, v in enumerate(call.leaves)]
    args, kwargs = pytree.tree_unflatten(marked, call.spec)
    runner = types.FunctionType(code, unit.globals, unit.code.co_name, None, unit.closure)
    return runner(*call.bind(args, kwargs))


# -- effects ------------------------------------------------------------------------------------------
@dataclasses.dataclass
class WrittenBuffer:
    """A registered buffer that forward replaced: its dotted name and its new value."""

    name: str
    value: VariableTracker


def _written_buffers(call: Call, recorder: Any) -> list[WrittenBuffer]:
    """A buffer assigned in forward is state of the program: the program writes it too."""
    out: list[WrittenBuffer] = []
    for prefix, module in call.module.named_modules() if call.module is not None else ():
        table = recorder.objects.get(id(module._buffers))
        if not isinstance(table, ConstDictVariable) or table not in recorder.side_effects.containers:
            continue
        for key, value in table.items.values():
            name, value = key.as_python_constant(), value.realize()
            old = module._buffers.get(name)
            fake = getattr(value, "fake", None)
            if old is None or fake is None or getattr(value, "real", None) is old:
                continue
            full = f"{prefix}.{name}" if prefix else name
            if fake.shape != old.shape or fake.dtype != old.dtype or fake.device != old.device:
                raise Unsupported(
                    f"{_where(call)} replaces the buffer {full} by one of another shape, dtype or device, which an exported program cannot do"
                )
            out.append(WrittenBuffer(full, value))
    return out


def _other_effects(call: Call, recorder: Any, buffers: bool) -> set[Any]:
    """Refuse changes the caller would see, say which others are left out, and forget them all.

    Returns the ids of the containers that were changed.
    """
    effects = recorder.side_effects
    passed: dict[int, bool] = {}
    pytree.tree_flatten((call.args, call.kwargs), is_leaf=lambda o: passed.setdefault(id(o), False))
    lines = effects.describe()
    ids = {id(vt): key for key, vt in recorder.objects.items()}
    stale: set[Any] = set()
    for changed in effects.containers:
        owner = getattr(changed, "owner", changed)
        if ids.get(id(owner)) in passed or ids.get(id(changed)) in passed:
            raise Unsupported(f"{_where(call)} changes {owner.source}, a {owner.describe()} among its arguments, which an exported program cannot do")
        stale |= {ids.get(id(owner)), ids.get(id(changed))}
        owner.existing, owner.source = False, None      # returned, it is built anew with its new contents
    left_out = [line for line in lines if not (buffers and "_buffers" in line.split(" = ")[0])]
    if left_out:
        ALWAYS.warning("export of %s leaves out what it changes outside of the program: %s", _where(call), "; ".join(left_out).replace("L['fn']", "self"))
    effects.log.clear()
    effects.globals.clear()
    effects.deferred.clear()
    return stale


# -- what later calls must share ----------------------------------------------------------------------
def _fixed_leaves(call: Call, recorder: Any, guards: list[Any]) -> dict[int, Any]:
    """Leaves that are no tensors and whose value the trace relied on."""
    inputs = {entry.source for entry in recorder.inputs}
    found = {call.sources[g.source] for g in guards if g.source in call.sources and g.source not in inputs}
    return {i: call.leaves[i] for i in sorted(found) if type(call.leaves[i]) in PLAIN}


def _same_leaves(call: Call) -> list[tuple[int, int]]:
    """Pairs of leaves that were one tensor; the graph reads only the first."""
    first: dict[int, int] = {}
    out = []
    for i, leaf in enumerate(call.leaves):
        if isinstance(leaf, torch.Tensor):
            earlier = first.setdefault(id(leaf), i)
            if earlier != i:
                out.append((earlier, i))
    return out
