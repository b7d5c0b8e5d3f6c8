"""Random programs of 5 to 40 tensor operators: sizes, strides, dtypes and sharing at random; compiled by triton_cpp against eager.

Even seeds use operators whose results are exact, with comparisons and rounding, and are compared bit for bit (folds of
floats apart); odd ones use transcendental functions, and nothing that a last bit could turn. Of four seeds, two give programs
that change values in place, inputs among them (random_changes.py), and come through AOTAutograd; the memory of the inputs is
compared too. In: a seed. Out: what differs, '' for nothing. Used by the tests, and by hand:
`python -m tests.backends.triton_cpp.random_graphs COUNT SEED [CODEGEN]`, where CODEGEN=triton needs TRITON_INTERPRET=1.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from dynamo_nb.backends.aot import aot_compile, decompositions, run_as_is
from dynamo_nb.backends.triton_cpp.backend import compile_graph, triton_cpp
from dynamo_nb.core import events
from tests.backends.triton_cpp.random_changes import change, shares
from tests.backends.triton_cpp.reference import run_graph

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 2e-4, torch.float64: 1e-5}
Step = Callable[[list[torch.Tensor]], torch.Tensor]


class Writer:
    """Writes one program as a list of steps, each taking the values so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.exact = seed % 2 == 0
        self.changes = seed % 4 > 1
        self.values: list[torch.Tensor] = []
        self.steps: list[Step] = []
        torch.manual_seed(seed)
        for _ in range(self.random.randint(1, 4)):
            self.values.append(self._input())
        self.inputs = twins(self.values)

    def _input(self) -> torch.Tensor:
        r = self.random
        sizes = [r.choice((1, 2, 3, 5, 8, 17)) for _ in range(r.randint(0, 4))]
        if r.random() < 0.03 and sizes:
            sizes[0] = 0
        made = torch.randn([n * 2 for n in sizes] or []) * r.choice((1, 3, 20))
        dtype = r.choice(DTYPES) if r.random() < 0.5 else torch.float32
        made = made.to(dtype) if dtype is not torch.bool else made > 0
        made = made[tuple(slice(0, n) if r.random() < 0.5 else slice(0, 2 * n, 2) for n in sizes)]
        if r.random() < 0.3:
            made = made.contiguous()
        return made.permute(r.sample(range(made.dim()), made.dim()))

    def write(self) -> None:
        wanted = self.random.randint(5, 40)
        for _ in range(wanted * 3):
            if len(self.steps) >= wanted:
                break
            step = self._step()
            try:
                with torch.no_grad():
                    value = step(self.values)
            except (RuntimeError, IndexError, NotImplementedError, TypeError, ValueError):
                continue
            if isinstance(value, torch.Tensor) and value.numel() <= 20_000:
                self.values.append(value)
                self.steps.append(step)

    def _pick(self) -> int:
        recent = len(self.values) - 1 - int(self.random.expovariate(0.5))
        return max(recent, 0) if self.random.random() < 0.8 else self.random.randrange(len(self.values))

    def _step(self) -> Step:
        r, i, j, k = self.random, self._pick(), self._pick(), self._pick()
        if self.changes and r.random() < 0.35:
            return change(self, r.randrange(len(self.inputs)) if r.random() < 0.6 else i, j, k)
        x = self.values[i]
        dim = r.randrange(x.dim()) if x.dim() else 0
        number = r.choice((0, 1, 2, -1, 0.5, -2.5, 3))
        kind = r.random()
        if kind < 0.3:
            steps = "add sub mul div maximum minimum fmax" + (" lt ge eq ne logical_and" if self.exact else " atan2")
            op = getattr(torch, r.choice(steps.split()))
            return lambda v: op(v[i], v[j])
        if kind < 0.4:
            op = getattr(torch, r.choice(("add sub mul div" + (" gt le remainder floor_divide" if self.exact else " pow")).split()))
            return lambda v: op(v[i], number)
        if kind < 0.6:
            names = "relu neg abs reciprocal square" + (
                " floor round sign isnan logical_not ceil" if self.exact else " exp tanh sigmoid sqrt rsqrt log sin cos erf log1p expm1")
            op = getattr(torch, r.choice(names.split()))
            return lambda v: op(v[i])
        if kind < 0.75:
            return self._reduction(i, dim)
        if kind < 0.85:
            return self._view(i, j, dim)
        if kind < 0.92:
            return self._indexing(i, k, dim)
        if kind < 0.96 and self.exact:
            return lambda v: torch.where(v[k] > 0, v[i], v[j])
        dtype = r.choice(DTYPES if self.exact or not x.dtype.is_floating_point else FLOATS)
        return lambda v: v[i].to(dtype)

    def _reduction(self, i: int, dim: int) -> Step:
        r, keep, x = self.random, self.random.random() < 0.5, self.values[i]
        inexact = x.dtype.is_floating_point and self.exact
        name = r.choice((
            "amax amin" + ("" if inexact else " sum prod") + (" any all argmax" if self.exact else " mean var softmax log_softmax logsumexp")
        ).split())
        if name in ("softmax", "log_softmax"):
            return lambda v: getattr(torch, name)(v[i], dim)
        if name == "argmax" or name in ("any", "all"):
            return lambda v: getattr(torch, name)(v[i], dim, keepdim=keep)
        if r.random() < 0.2 and name in ("sum", "mean", "prod", "amax"):
            return lambda v: getattr(torch, name)(v[i])
        return lambda v: getattr(torch, name)(v[i], dim, keepdim=keep)

    def _view(self, i: int, j: int, dim: int) -> Step:
        r, x = self.random, self.values[i]
        kind = r.choice("permute flatten unsqueeze slice select expand cat flip split pad repeat reshape squeeze clone".split())
        order = r.sample(range(x.dim()), x.dim())
        start, step = r.randint(-2, 2), r.choice((1, 1, 2))
        other = r.randrange(max(x.dim(), 1))
        table: dict[str, Step] = {
            "permute": lambda v: v[i].permute(order), "flatten": lambda v: v[i].flatten(), "unsqueeze": lambda v: v[i].unsqueeze(dim),
            "slice": lambda v: v[i].narrow(dim, 0, v[i].shape[dim])[(slice(None),) * dim + (slice(start, None, step),)],
            "select": lambda v: v[i].select(dim, 0), "expand": lambda v: v[i].unsqueeze(0).expand(3, *v[i].shape),
            "cat": lambda v: torch.cat([v[i], v[j], v[i]], dim), "flip": lambda v: v[i].flip(dim), "split": lambda v: v[i].split(2, dim)[-1],
            "pad": lambda v: torch.nn.functional.pad(v[i], (1, 2, 0, 1)[: 2 * v[i].dim()], value=3),
            "repeat": lambda v: v[i].repeat(2, *[1] * (v[i].dim() - 1)),
            "reshape": lambda v: v[i].reshape(*v[i].shape[:other], -1), "squeeze": lambda v: v[i].squeeze(dim), "clone": lambda v: v[i].clone(),
        }
        return table[kind]

    def _indexing(self, i: int, k: int, dim: int) -> Step:
        """Reading value i by the places that value k gives: any numbers, brought into bounds."""
        r, x = self.random, self.values[i]
        kind = r.choice("index pair apart gather take_along index_select embedding".split())
        narrow, other, negative = r.choice((torch.int64, torch.int32)), r.randrange(max(x.dim(), 1)), r.random() < 0.5
        wrapped = r.random() < 0.3
        if not self.exact:      # a last bit could turn a place
            k = 0 if self.changes else r.randrange(len(self.inputs))

        def places(v: list[torch.Tensor], size: int, negative: bool = False) -> torch.Tensor:
            whole = torch.atleast_1d(v[k].nan_to_num(1, 2, 3).clamp(-100, 100).to(narrow))
            return whole % size - (size if negative else 0) if wrapped else whole.clamp(-size if negative else 0, size - 1)

        def pair(v: list[torch.Tensor], apart: bool) -> torch.Tensor:
            index: list[Any] = [slice(None)] * v[i].dim()
            index[dim], index[other] = places(v, v[i].shape[dim], True), places(v, v[i].shape[other])[..., :1]
            return v[i][(*index[:1], None, *index[1:])] if apart else v[i][tuple(index)]

        table: dict[str, Step] = {
            "index": lambda v: v[i][(slice(None),) * dim + (places(v, v[i].shape[dim], negative),)],
            "pair": lambda v: pair(v, False), "apart": lambda v: pair(v, True),
            "gather": lambda v: v[i].gather(dim, places(v, v[i].shape[dim]).long()), "embedding": lambda v: torch.embedding(v[i], places(v, len(v[i]))),
            "take_along": lambda v: torch.take_along_dim(v[i], places(v, v[i].shape[dim]).long(), dim),
            "index_select": lambda v: v[i].index_select(dim, places(v, v[i].shape[dim]).flatten()),
        }
        return table[kind]

    def program(self) -> Callable[..., list[torch.Tensor]]:
        """Its function; of tensors, and `noise`: whether what each step computes is off by a last bit."""
        count, steps = len(self.inputs), list(self.steps)
        results = sorted({len(self.values) - 1, *(self.random.randrange(len(self.values)) for _ in range(3))} - set(range(count)))

        def run(*inputs: torch.Tensor, noise: bool = False) -> list[torch.Tensor]:
            values = [_off(v) if noise else v for v in inputs]
            for step in steps:
                value = step(values)
                values.append(_off(value) if noise and not any(shares(value, v) for v in values) else value)
            return [values[i] for i in results]

        return run


def twins(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The same views of copies of the memory."""
    memory = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    copies = {at: storage.clone() for at, storage in memory.items()}
    return [torch.empty(0, dtype=t.dtype).set_(copies[t.untyped_storage().data_ptr()], t.storage_offset(), t.size(), t.stride()) for t in tensors]


def _off(value: torch.Tensor) -> torch.Tensor:
    if value.dtype.is_floating_point and value.numel():
        value.mul_(1 + torch.finfo(value.dtype).eps * torch.randint_like(value, -1, 2))
    return value


def memory_of(t: torch.Tensor) -> torch.Tensor:
    """All of it, what lies between the elements too."""
    return torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())


def tightened(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """In memory that ends with the last element."""
    return [torch.empty_strided(t.size(), t.stride(), dtype=t.dtype).copy_(t) for t in tensors]


def check(seed: int, reference: bool = False, codegen: str = "", tight: bool = False) -> str:
    writer = Writer(seed)
    writer.write()
    if tight:
        writer.inputs = tightened(writer.inputs)
    if not writer.steps or (reference and writer.changes):
        return ""
    program, wide = writer.program(), 0.0 if writer.exact else max(TOLERANCES.get(v.dtype, 0) for v in writer.values)
    with torch.no_grad():
        want = _results(lambda inputs: program(*inputs), writer.inputs)
        gm = make_fx(program, decomposition_table={} if writer.changes else decompositions(), tracing_mode="fake")(*twins(writer.inputs))
        got = _results(_compiled(gm, writer, reference, codegen), writer.inputs)
        if reference:       # which computes everything into memory of its own
            want[-1] = got[-1]
        different = [n for n, (w, g) in enumerate(zip(want, got, strict=True)) if difference(w, g, wide)]
        if not different:
            return ""
        plain = _plain(gm, writer, want)
        noisy = want if writer.exact else _results(lambda inputs: program(*inputs, noise=True), writer.inputs)
    if plain is want:       # other strides than eager's: other views
        different = [n for n in different if n < len(want) - 1]
    # Not where the decompositions differ from eager already, nor where a last bit makes a difference.
    different = [n for n in different if not difference(want[n], plain[n], wide) and not difference(want[n], noisy[n], wide / 4)]
    return f"seed {seed}, result {different[0]} of {len(want)}: {difference(want[different[0]], got[different[0]], wide)}" if different else ""


def _results(run: Callable[[list[torch.Tensor]], list[torch.Tensor]], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a program gives, its inputs' memory afterwards, and which of all these show the same memory."""
    mine = twins(inputs)
    results = run(list(mine))
    places = [t.untyped_storage().data_ptr() if t.numel() else -i for i, t in enumerate([*results, *mine])]
    return [*results, *map(memory_of, mine), torch.tensor([[a == b for b in places] for a in places])]


def _compiled(gm: torch.fx.GraphModule, writer: Writer, reference: bool, codegen: str) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    if reference:
        return lambda inputs: run_graph(gm, inputs)
    left: list[str] = []
    with events.listening(lambda kind, what: left.append(what.why) if kind == "generated" and what.why else None):
        run = triton_cpp(gm, twins(writer.inputs), codegen=codegen) if writer.changes else compile_graph(gm, [], codegen=codegen)
    if left:
        raise AssertionError(f"left to ATen: {left[0]}")
    return (lambda inputs: list(run(*inputs))) if writer.changes else run


def _plain(gm: torch.fx.GraphModule, writer: Writer, want: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the ATen graph gives; torch's own may not run, where its fake tensors had other strides than eager's."""
    try:
        if writer.changes:
            run = aot_compile(gm, twins(writer.inputs), None, fw_compiler=run_as_is, decompositions=decompositions())
            return _results(lambda inputs: list(run(*inputs)), writer.inputs)
        return _results(lambda inputs: gm(*inputs), writer.inputs)
    except RuntimeError:
        return want


def difference(want: torch.Tensor, got: torch.Tensor, wide: float) -> str:
    """wide: tolerance, by the narrowest type on the way. Strides are those of torch's fake tensors, which are not always eager's: they are not compared."""
    if want.shape != got.shape or want.dtype is not got.dtype:
        return f"{want.dtype}{list(want.shape)} against {got.dtype}{list(got.shape)}"
    try:
        torch.testing.assert_close(got, want, rtol=wide, atol=wide, equal_nan=True)
    except AssertionError as err:
        return " ".join(str(err).split())[:300]
    return ""


def main(count: int, first: int = 0, codegen: str = "") -> int:
    found = without = 0
    for seed in range(first, first + count):
        try:
            why = check(seed, codegen=codegen)
        except Exception as err:
            why = f"seed {seed}: {type(err).__name__}: {err}"[:400]
        if "no Triton form" in why:
            without += 1
        elif why:
            found += 1
            print(why, flush=True)
        if seed % 100 == 99:
            print(f"up to seed {seed}", file=sys.stderr, flush=True)
    print(f"{count} programs, {found} differ" + (f", {without} have no Triton form" if codegen else ""))
    return 1 if found else 0


if __name__ == "__main__":
    count, first = (*map(int, sys.argv[1:3]), *(200, 0)[len(sys.argv) - 1:])
    sys.exit(main(count, first, "".join(sys.argv[3:])))
