"""`export()`: the whole program as one graph, or an error (chapter 12.32).

In: a module with a tuple of arguments (then a `torch.export.ExportedProgram` comes out), or any callable
with its arguments (then a graph module and the guards). The capture itself is in `api.capture`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.fx

from ..core.exc import UserError
from .capture import PLAIN, Captured, capture
from .captured_graph import CallCodeGen

PROGRAM_NAMES = {"args", "kwargs"}
CONTAINERS = (list, dict, set)


class ExportResult(NamedTuple):
    """graph_module: called as the callable was, or with the flat leaves of its arguments. guards: what it relies on."""

    graph_module: torch.fx.GraphModule
    guards: list[Any]


class Exporter:
    """`export(f)`: call it with f's arguments. For an f without parameters it is the result as well."""

    def __init__(self, fn: Any, options: dict[str, Any]) -> None:
        self.fn = fn
        self.options = options
        self.result = self() if _takes_nothing(fn) else None

    def __call__(self, *args: Any, **kwargs: Any) -> ExportResult:
        return _graph_and_guards(self.fn, args, kwargs, **self.options)

    def _own(self) -> ExportResult:
        if self.result is None:
            raise TypeError("export(f) waits for the arguments of f: export(f)(*args), or export(f, *args)")
        return self.result

    def __getitem__(self, index: Any) -> Any:
        return self._own()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own())

    def __len__(self) -> int:
        return len(self._own())

    @property
    def graph_module(self) -> torch.fx.GraphModule:
        return self._own().graph_module

    @property
    def guards(self) -> list[Any]:
        return self._own().guards


def export(
    f: Any, /, *args: Any, dynamic_shapes: Any = None, strict: bool = False, aten_graph: bool = False,
    decomposition_table: dict[Any, Any] | None = None, tracing_mode: str = "real", **kwargs: Any,
) -> Any:
    """Capture all of f as one graph; `exc.Unsupported` where the graph would break.

    `export(module, args, kwargs=None, *, dynamic_shapes=None, strict=False)` returns a
    `torch.export.ExportedProgram`. args: a tuple. strict: True follows the bytecode and refuses what
    would break the graph; False runs the module on fake tensors through torch.export. The module itself
    is left as it is.

    `export(f, *args, aten_graph=False, decomposition_table=None, tracing_mode="real", **kwargs)` and
    `export(f)(*args, **kwargs)` return (graph module, guards) for any callable. The graph module takes
    and returns what f does; it also takes the flat leaves of f's arguments. It refuses constants other than
    those it was made for, but checks nothing else of the guards: shapes and dtypes are up to the caller.
    aten_graph: lower to ATen operations, through decomposition_table; tracing_mode: "real", "fake" or "symbolic".
    """
    program = _program_arguments(f, args, kwargs)
    if program is not None and not aten_graph:
        return _program(f, *program, dynamic_shapes, strict)
    if dynamic_shapes is not None or strict:
        raise UserError("dynamic_shapes and strict go with export(module, args): a module and a tuple of its arguments")
    options: dict[str, Any] = {"aten_graph": aten_graph, "decomposition_table": decomposition_table, "tracing_mode": tracing_mode}
    assert aten_graph or decomposition_table is None, "decomposition_table needs aten_graph=True"
    assert aten_graph or tracing_mode == "real", "tracing_mode needs aten_graph=True"
    if not args and not kwargs:
        return Exporter(f, options)
    return _graph_and_guards(f, args, kwargs, **options)


def _program_arguments(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """(args, kwargs) of a call in the manner of torch.export, else None."""
    if not isinstance(f, torch.nn.Module) or not kwargs.keys() <= PROGRAM_NAMES or len(args) > 2:
        return None
    given = args[0] if args else kwargs.get("args")
    named = args[1] if len(args) > 1 else kwargs.get("kwargs")
    if not isinstance(given, tuple) or not (named is None or isinstance(named, dict)):
        return None
    return given, dict(named or {})


def _takes_nothing(fn: Any) -> bool:
    try:
        return not inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters
    except (TypeError, ValueError):
        return False


# -- (graph module, guards) ---------------------------------------------------------------------------
def _graph_and_guards(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, aten_graph: bool, decomposition_table: Any, tracing_mode: str
) -> ExportResult:
    captured = capture(fn, args, kwargs, dynamic=True if tracing_mode == "symbolic" else None)
    if not aten_graph:
        return ExportResult(captured.module, captured.guards)
    return ExportResult(_to_aten(captured, decomposition_table, tracing_mode), captured.guards)


def _to_aten(captured: Captured, decompositions: Any, mode: Any) -> torch.fx.GraphModule:
    """The same program in ATen operations."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    codegen = captured.module.graph._codegen
    assert isinstance(codegen, CallCodeGen)
    flat = torch.fx.GraphModule(captured.module, captured.module.graph)
    flat.graph.set_codegen(torch.fx.graph.CodeGen())

    def run(*leaves: Any) -> Any:
        return torch.fx.Interpreter(flat).run(*leaves)

    with preserve_node_meta():
        lowered = make_fx(run, decomposition_table=decompositions, tracing_mode=mode, _allow_non_fake_inputs=True)(*captured.example)
    baked = {i: v for i, v in enumerate(captured.example) if type(v) in PLAIN and not (mode == "symbolic" and type(v) is int)}
    return dataclasses.replace(codegen.calling, fixed=codegen.calling.fixed | baked).attach(lowered)


# -- ExportedProgram ----------------------------------------------------------------------------------
def _program(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, strict: bool) -> Any:
    from .modules import CompiledModuleMixin

    if isinstance(module, CompiledModuleMixin):
        module = module._original()
    if not strict:
        with _left_alone(module):
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    captured = capture(module, args, kwargs, dynamic=True if dynamic_shapes else None).module
    captured.train(module.training)
    type(captured).forward.__signature__ = inspect.signature(type(module).forward)  # type: ignore[attr-defined]
    return torch.export.export(captured, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)


@contextlib.contextmanager
def _left_alone(module: torch.nn.Module) -> Iterator[None]:
    """Attributes and containers of the module and its children are afterwards as they were."""
    saved = []
    for child in module.modules():
        table = vars(child)
        held = {k: (v, v.copy()) for k, v in table.items() if isinstance(v, CONTAINERS)}
        saved.append((table, dict(table), held))
    try:
        yield
    finally:
        for table, before, held in saved:
            table.clear()
            table.update(before)
            for value, contents in held.values():
                _refill(value, contents)


def _refill(value: Any, contents: Any) -> None:
    if isinstance(value, list):
        value[:] = contents
    else:
        value.clear()
        value.update(contents)
