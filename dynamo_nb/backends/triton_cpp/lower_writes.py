"""`copy_` into an input: the value is computed straight into the input's memory.

Safe where the value reads the input only at the very element that it replaces; the scheduler sees to the same for
everything else in the kernel. Other copies are ATen's.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch

from .exprs import Read
from .graph import GraphLowering, NotLowered, lowers
from .ir import Buffer, walk
from .tensors import LazyTensor, contiguous, from_buffer, variable

aten = torch.ops.aten


@lowers(aten.copy_.default)
def _copy_into(lowering: GraphLowering, into: Any, value: Any, non_blocking: bool = False) -> LazyTensor:
    target = into.buffer if isinstance(into, LazyTensor) else None
    if target is None or target.kind != "input" or not isinstance(value, LazyTensor):
        raise NotLowered("a copy into something other than an input of the graph")
    if value.sizes != target.sizes or value.dtype is not target.dtype or value.device != target.device:
        raise NotLowered("a copy between tensors of different sizes, types or devices")
    if value.buffer is not None and value.buffer.kind == "aten":
        raise NotLowered("a copy of what ATen made")
    if not _apart(target):
        raise NotLowered("a copy into a tensor whose elements may share memory")
    own = tuple(variable(d) if n != 1 else sympy.Integer(0) for d, n in enumerate(target.sizes))
    for read in walk(value.value):
        if isinstance(read, Read) and lowering.root(read.buffer) == target.name and (read.buffer != target.name or not _at(read, own)):
            raise NotLowered("a copy of a value that reads other elements of what it replaces")
    lowering.before_write([target])
    lowering.define(target, value.value)
    return from_buffer(lowering.exprs, target)


def _at(read: Read, own: tuple[sympy.Expr, ...]) -> bool:
    return not read.indirect and all(i == v or v == 0 for i, v in zip(read.index, own, strict=True))


def _apart(buffer: Buffer) -> bool:
    """Is it known that no two elements share memory?"""
    reach: Any = sympy.Integer(1)
    for stride, size in sorted(((s, n) for s, n in zip(buffer.strides, buffer.sizes, strict=True) if n != 1), key=lambda p: sympy.default_sort_key(p[0])):
        if stride != reach and not (stride.is_Integer and getattr(reach, "is_Integer", False) and stride >= reach):
            return buffer.strides == contiguous(buffer.sizes)
        reach = stride * size
    return True

