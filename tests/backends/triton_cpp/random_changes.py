"""Steps of random programs that change a value in place: arithmetic, copies of what was moved or folded, parts, places that tensors give.

In: a `Writer` and the places of its values. Out: a step, which changes value i and returns it. Copies between values that share memory
and writes of several values to one place are left out: eager's own results depend on the order of memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tests.backends.triton_cpp.random_graphs import Step, Writer


def change(writer: Writer, i: int, j: int, k: int) -> Step:
    """In inexact programs nothing changes the first input (what others branch by), and integers take only integers."""
    x, r = writer.values[i], writer.random
    if any(shares(x, y) and any(s == 0 and n > 1 for s, n in zip(y.stride(), y.shape, strict=True)) for y in writer.values):
        return refused      # torch's functionalisation doesn't do parts of expanded tensors
    if not writer.exact:
        k = 0
        fixed = shares(x, writer.values[0]) or not (x.dtype.is_floating_point or not writer.values[j].dtype.is_floating_point)
        if fixed or x.dtype is torch.bool:
            return refused
    if x.dim() == 0:
        return _pointwise(writer, i, j, k)
    dim = r.randrange(x.dim())
    return r.choice((_pointwise, _pointwise, _moved, _moved, _part, _part, _placed, _placed))(writer, i, j, k, dim)


def shares(x: torch.Tensor, y: torch.Tensor) -> bool:
    return x.untyped_storage()._cdata == y.untyped_storage()._cdata       # fake tensors too


def refused(v: list[torch.Tensor]) -> torch.Tensor:
    raise ValueError("not in this program")


def _apart(v: list[torch.Tensor], i: int, j: int) -> torch.Tensor:
    """Value j, in memory of its own if it is shared with value i and not the same elements."""
    same = v[i].shape == v[j].shape and v[i].stride() == v[j].stride() and v[i].storage_offset() == v[j].storage_offset()
    return v[j].clone() if shares(v[i], v[j]) and not same else v[j]


def _pointwise(writer: Writer, i: int, j: int, k: int, dim: int = 0) -> Step:
    r = writer.random
    number, alpha = r.choice((0, 1, 2, -1, 0.5, 3)), r.choice((1, 2))
    table: dict[str, Step] = {
        "add": lambda v: v[i].add_(_apart(v, i, j), alpha=alpha), "sub": lambda v: v[i].sub_(number), "mul": lambda v: v[i].mul_(_apart(v, i, j)),
        "div": lambda v: v[i].div_(number or 4), "relu": lambda v: v[i].relu_(), "neg": lambda v: v[i].neg_(), "zero": lambda v: v[i].zero_(),
        "fill": lambda v: v[i].fill_(number), "clamp": lambda v: v[i].clamp_(-1, 2), "mask": lambda v: v[i].masked_fill_(v[k] > 0, number),
        "addcmul": lambda v: v[i].addcmul_(_apart(v, i, j), _apart(v, i, j), value=2), "copy": lambda v: v[i].copy_(_apart(v, i, j)),
        "swap": lambda v: _swap(v[i], v[j]), "abs": lambda v: v[i].abs_(), "square": lambda v: v[i].square_(), "minimum": lambda v: v[i].copy_(
            torch.minimum(v[i], v[j])), "where": lambda v: v[i].copy_(torch.where(v[k] > 0, v[i], v[j])),
    }
    name = r.choice([*table, "add", "mul", "copy"])
    return refused if name == "swap" and not writer.exact else table[name]


def _swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    old = x.clone()
    x.copy_(y.clone())
    y.copy_(old)
    return x


def _moved(writer: Writer, i: int, j: int, k: int, dim: int) -> Step:
    """Copies of values that read other elements than they replace."""
    r, x = writer.random, writer.values[i]
    order, other = r.sample(range(x.dim()), x.dim()), r.randrange(x.dim())
    floats = x.dtype.is_floating_point and writer.exact
    table: dict[str, Step] = {
        "transposed": lambda v: v[i].copy_(v[j].permute(order).clone()), "own": lambda v: v[i].copy_(v[i].transpose(dim, other) + v[j]),
        "flip": lambda v: v[i].copy_(v[i].flip(dim)), "flip other": lambda v: v[i].copy_(v[j].flip(dim) * 2),
        "roll": lambda v: v[i].add_(v[i].roll(1, dim)), "amax": lambda v: v[i].copy_(v[i].amax(dim, keepdim=True)),
        "less amax": lambda v: v[i].sub_(v[i].amax(dim, keepdim=True)), "column": lambda v: v[i].add_(v[j].amin(dim)), "all": lambda v: v[i].sub_(v[j].amax()),
    }
    if not floats:
        table["sum"] = lambda v: v[i].copy_(v[i].sum(dim, keepdim=True))
        table["less sum"] = lambda v: v[i].sub_(v[j].sum(dim))
    if not writer.exact:
        table["softmax"] = lambda v: v[i].copy_(torch.softmax(v[i], dim))
    return table[r.choice(list(table))]


def _part(writer: Writer, i: int, j: int, k: int, dim: int) -> Step:
    r, x = writer.random, writer.values[i]
    number, start, step, place = r.choice((0, 1, -2)), r.randint(-2, 2), r.choice((1, 1, 2)), r.randrange(max(x.shape[dim], 1))
    before = (slice(None),) * dim

    def some(x: torch.Tensor) -> torch.Tensor:
        return x[(*before, slice(start, None, step))]

    def taken(v: list[torch.Tensor]) -> torch.Tensor:
        some(v[i]).copy_(some(v[j]).clone())
        return v[i]

    def row(v: list[torch.Tensor]) -> torch.Tensor:
        v[i].select(dim, place).copy_(v[i].select(dim, 0) * 2)
        return v[i]

    table: dict[str, Step] = {
        "number": lambda v: some(v[i]).fill_(number), "add": lambda v: some(v[i]).add_(1), "taken": taken, "row": row,
        "shown": lambda v: v[i].select(dim, place).mul_(2), "back": lambda v: some(v[i]).copy_(some(v[i]).flip(dim)),
        "diagonal": lambda v: v[i].diagonal(0, dim, dim - 1).zero_(), "other": lambda v: some(v[i]).mul_(_apart(v, i, j).select(dim, 0).unsqueeze(dim)),
    }
    return table[r.choice(list(table))]


def _placed(writer: Writer, i: int, j: int, k: int, dim: int) -> Step:
    """Writes at places that a tensor gives: each place once where the values differ."""
    r, x = writer.random, writer.values[i]
    size = max(x.shape[dim], 1)
    once = [p - size if r.random() < 0.3 else p for p in r.sample(range(size), r.randint(1, size))]
    above = [p % size for p in once]
    number = r.choice((0, 1, -2))
    before: list[Any] = [slice(None)] * dim

    def put(v: list[torch.Tensor], value: Any) -> torch.Tensor:
        v[i][(*before, torch.tensor(once))] = value
        return v[i]

    def repeated(v: list[torch.Tensor]) -> torch.Tensor:
        v[i][(*before, torch.atleast_1d(v[k].nan_to_num(1, 2, 3).clamp(-100, 100).long() % v[i].shape[dim]))] = number
        return v[i]

    def along(x: torch.Tensor) -> torch.Tensor:
        return x[(*before, slice(0, len(above)))]

    def scattered(v: list[torch.Tensor]) -> torch.Tensor:
        index = torch.tensor(above).reshape([-1 if d == dim else 1 for d in range(v[i].dim())])
        return v[i].scatter_(dim, index.expand_as(along(v[i])), along(v[j] if v[j].shape == v[i].shape else v[i]).clone())

    def accumulated(v: list[torch.Tensor]) -> torch.Tensor:
        return v[i].index_put_([*[None] * dim, torch.tensor(above)], v[i].select(dim, 0).unsqueeze(dim).clone(), accumulate=True)

    table: dict[str, Step] = {
        "number": lambda v: put(v, number), "own": lambda v: put(v, along(v[i]) * 2), "taken": lambda v: put(v, along(_apart(v, i, j))), "repeated": repeated,
        "fill": lambda v: v[i].index_fill_(dim, torch.tensor(above), number), "scatter": scattered, "accumulated": accumulated,
        "copy": lambda v: v[i].index_copy_(dim, torch.tensor(above), along(v[i]).flip(dim) + 1),
        "index add": lambda v: v[i].index_add_(dim, torch.tensor(above), along(v[i]).clone()),
        "mask": lambda v: v[i].masked_fill_(v[k].flatten()[:1] > 0, number),
    }
    return table[r.choice(list(table))]
