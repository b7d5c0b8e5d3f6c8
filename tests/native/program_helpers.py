"""Programs for tests: one of fallbacks only for any ATen graph, and kernels written in C."""

from __future__ import annotations

import ctypes
import functools
import operator
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from dynamo_nb.native import Program

CPU = torch.device("cpu")
KERNEL = "void {name}(void *const *p, const int64_t *ints, int64_t begin, int64_t end)"
COMPILER = shutil.which("gcc") or shutil.which("cc") or ""
needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C compiler on this machine")


@functools.cache
def library(source: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "kernels.c")
        path.write_text("#include <stdint.h>\n" + source)
        subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", path.with_suffix(".so"), path], check=True)
        return ctypes.CDLL(str(path.with_suffix(".so")))


def address(source: str, name: str) -> int:
    found = ctypes.cast(getattr(library(source), name), ctypes.c_void_p).value
    assert found is not None
    return found


def kernel(name: str, body: str) -> int:
    """Address of a kernel with this body; `p`, `ints`, `begin`, `end` are its arguments."""
    return address(f"{KERNEL.format(name=name)} {{ {body} }}", name)


def aten(name: str, args: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[Any, ...]:
    """("aten", …) with the defaults of the schema filled in after `args`."""
    packet, _, overload = name.partition(".")
    schema = torch._C._get_schema(f"aten::{packet}" if "::" not in packet else packet, overload)
    rest = tuple(a.default_value for a in schema.arguments[len(args):])
    return ("aten", schema.name, schema.overload_name, (*args, *rest), outs)


class Builder:
    """Turns a graph of ATen operators into a program; `extra` holds the graph's constants, passed after its inputs."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self.gm = gm
        self.env: dict[torch.fx.Node, Any] = {}
        self.slots = self.ints = 0
        self.inputs: list[Any] = []
        self.steps: list[tuple[Any, ...]] = []
        self.outputs: tuple[Any, ...] = ()
        self.extra: list[torch.Tensor] = []
        self.constants: list[torch.fx.Node] = []

    def slot(self) -> tuple[str, int]:
        self.slots += 1
        return ("t", self.slots - 1)

    def integer(self) -> tuple[str, int]:
        self.ints += 1
        return ("i", self.ints - 1)

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self.env[value]
        if isinstance(value, list | tuple):
            return [self.of(v) for v in value]
        return value

    def operator(self, node: torch.fx.Node) -> None:
        schema = node.target._schema  # type: ignore[union-attr]
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        args = tuple(self.of(given.get(a.name, a.default_value)) for a in schema.arguments)
        values = node.meta["val"] if len(schema.returns) > 1 else (node.meta["val"],)
        places: list[Any] = []
        for value in values if schema.returns else ():
            if isinstance(value, list | tuple):
                places.append([self.slot() for _ in value])
            elif isinstance(value, torch.Tensor):
                places.append(self.slot())
            else:
                places.append(None if value is None else self.integer())
        outs = tuple(tuple(t[1] for t in p) if isinstance(p, list) else p[1] if p and p[0] == "t" else p for p in places)
        self.steps.append(("aten", schema.name, schema.overload_name, args, outs))
        if schema.returns:
            self.env[node] = places if len(schema.returns) > 1 else places[0]

    def arithmetic(self, node: torch.fx.Node) -> None:
        """A derived integer, by a C function of its own."""
        signs: dict[Any, str] = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "/"}
        a, b = (f"ints[{v[1]}]" if isinstance(v, tuple) else str(v) for v in map(self.of, node.args))
        self.env[node] = self.integer()
        source = f"void f(int64_t *ints) {{ ints[{self.env[node][1]}] = {a} {signs[node.target]} {b}; }}"
        self.steps.append(("ints", address(source, "f")))

    def free(self, node: torch.fx.Node, last: dict[torch.fx.Node, torch.fx.Node]) -> None:
        dead = [self.env[n] for n in node.all_input_nodes if last[n] is node and n in self.env]
        slots = {p[1] for p in dead if isinstance(p, tuple) and p[0] == "t"} - self.kept
        if slots:
            self.steps.append(("free", *sorted(slots)))

    def build(self) -> Program:
        nodes = list(self.gm.graph.nodes)
        last = {n: node for node in nodes for n in node.all_input_nodes}
        for node in nodes:
            if node.op == "placeholder":
                self.env[node] = self.slot() if isinstance(node.meta.get("val"), torch.Tensor) else self.integer()
                self.inputs.append(self.env[node])
            elif node.op == "get_attr":
                self.env[node] = self.slot()
                self.extra.append(getattr(self.gm, node.target))
                self.constants.append(node)
        self.kept: set[int] = set()
        for node in nodes:
            if node.op == "call_function" and node.target is operator.getitem:
                self.env[node] = self.env[node.args[0]][node.args[1]]
                if self.env[node]:
                    self.kept.add(self.env[node][1])    # a part of a result: another node may be the same slot
            elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                self.operator(node)
                self.free(node, last)
            elif node.op == "call_function":
                self.arithmetic(node)
            elif node.op == "output":
                self.outputs = tuple(self.of(v) for v in node.args[0])
        inputs = (*self.inputs, *(self.env[n] for n in self.constants))
        return Program(inputs, self.slots, self.ints, self.steps, self.outputs)


def fallback(fn: Callable[..., Any], args: list[Any], mode: Literal["real", "symbolic"] = "real") -> tuple[Callable[..., Any], torch.fx.GraphModule]:
    """A function of a list of `fn`'s arguments that runs a program of fallbacks traced from it, and the graph. `fn` returns a tuple."""
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    gm = make_fx(fn, tracing_mode=mode)(*copies)
    builder = Builder(gm)
    program = builder.build()

    def run(args: list[Any], boxed: bool = False) -> Any:
        if not boxed:
            return program.call(*args, *builder.extra)
        args += builder.extra
        return program(args)

    return run, gm


def same(ours: Any, theirs: Any) -> None:
    """Equal bit for bit (NaN as NaN), with the metadata."""
    if not isinstance(theirs, torch.Tensor):
        assert type(ours) is type(theirs) and ours == theirs
        return
    assert (ours.dtype, ours.shape, ours.stride(), ours.device) == (theirs.dtype, theirs.shape, theirs.stride(), theirs.device)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
