"""Reductions over tiles: kind and types in, lines of Triton out. A `Fold` is one Reduce of a phase."""

from __future__ import annotations

from dynamo_nb.backends.triton_cpp.ir import DType
from dynamo_nb.backends.triton_cpp.triton_index import CannotPrint
from dynamo_nb.backends.triton_cpp.triton_operations import MEMORY, REGISTER, rounded

LAST = 2**63 - 1       # the position of nothing: any real one is smaller
POSITIONS = ("argmax", "argmin")


class Fold:
    """Accumulates `kind` of values of type `value` into a buffer of type `result`; names: what its variables start with."""

    def __init__(self, kind: str, value: DType, result: DType, name: str) -> None:
        self.kind, self.value, self.result, self.name = kind, value, result, name
        kept = value if kind in POSITIONS else result
        self.type = REGISTER[kept] if kept.is_float or kept.itemsize > 4 else "tl.int32"
        self.is_float = kept.is_float
        if kind in ("sum", "prod", "max", "min") and result is DType.b1:
            raise CannotPrint(f"{kind} into a b1 buffer; use any or all")

    def operand(self, value: str) -> str:
        """The value in the accumulator's type."""
        if self.kind in ("any", "all"):
            return f"({value} != 0).to(tl.int32)"
        kept = f"{value}.to({self.type})" if REGISTER[self.value] != self.type else value
        narrow = self.kind in ("max", "min") and not self.is_float and self.value is not self.result
        return f"{value}.to({MEMORY[self.result]}).to({self.type})" if narrow else kept

    def identity(self) -> str:
        if self.kind in ("sum", "any"):
            return "0"
        if self.kind in ("prod", "all"):
            return "1"
        largest = self.kind in ("max", "argmax")
        if self.is_float:
            return 'float("-inf")' if largest else 'float("inf")'
        bits = 64 if self.type == "tl.int64" else 32
        return f"{-2**(bits - 1)}" if largest else f"{2**(bits - 1) - 1}"

    def combined(self, a: str, b: str) -> str:
        if self.kind == "sum":
            return f"{a} + {b}"
        if self.kind == "prod":
            return f"{a} * {b}"
        word = "minimum" if self.kind in ("min", "all") else "maximum"
        nan = ", propagate_nan=tl.PropagateNan.ALL" if self.is_float else ""
        return f"tl.{word}({a}, {b}{nan})"

    def reduced(self, tile: str) -> str:
        """One value a row of the tile, rounded to the result's type."""
        if self.kind == "sum":
            text = f"tl.sum({tile}, axis=1, keep_dims=True)"
        elif self.kind == "prod":
            text = f"tl.reduce({tile}, 1, device.fold_multiply, keep_dims=True)"
        elif self.is_float:
            fold = "fold_smaller" if self.kind == "min" else "fold_larger"
            text = f"tl.reduce({tile}, 1, device.{fold}, keep_dims=True)"
        else:
            word = "min" if self.kind in ("min", "all") else "max"
            text = f"tl.{word}({tile}, axis=1, keep_dims=True)"
        return self.converted(text)

    def converted(self, text: str) -> str:
        if self.result is DType.b1:
            return f"{text} != 0"
        if self.result.is_float:
            return rounded(text, self.result)
        return f"{text}.to({MEMORY[self.result]})"

    def reduced_position(self, values: str, positions: str) -> str:
        fold = "fold_first_largest" if self.kind == "argmax" else "fold_first_smallest"
        return f"tl.reduce(({values}, {positions}), 1, device.{fold}, keep_dims=True)[1].to({MEMORY[self.result]})"

    # -- a tile that holds everything -------------------------------------------------------------------
    def whole(self, value: str, r: str, mask: str) -> str:
        if self.kind in POSITIONS:
            return self.reduced_position(f"tl.where({mask}, {value}, {self.filled('(1, 1)')})", f"tl.where({mask}, {r}.to(tl.int64), {LAST})")
        return self.reduced(f"tl.where({mask}, {value}, {self.filled('(1, 1)')})")

    # -- a loop over tiles --------------------------------------------------------------------------------
    def start(self) -> list[str]:
        lines = [f"{self.name} = {self.filled('(XBLOCK, RBLOCK)')}"]
        if self.kind in POSITIONS:
            lines.append(f"{self.name}_at = tl.full((XBLOCK, RBLOCK), {LAST}, tl.int64)")
        return lines

    def step(self, value: str, r: str, mask: str) -> list[str]:
        if self.kind in POSITIONS:
            # Later tiles hold later positions, so only a strictly better value takes over.
            sign = ">" if self.kind == "argmax" else "<"
            better = f"(({value} {sign} {self.name}) | (({value} != {value}) & ({self.name} == {self.name})) | ({self.name}_at == {LAST}))"
            return [f"{self.name}_takes = {mask} & {better}", f"{self.name} = tl.where({self.name}_takes, {value}, {self.name})",
                    f"{self.name}_at = tl.where({self.name}_takes, {r}.to(tl.int64), {self.name}_at)"]
        return [f"{self.name} = tl.where({mask}, {self.combined(self.name, value)}, {self.name})"]

    def finish(self) -> str:
        if self.kind in POSITIONS:
            return self.reduced_position(self.name, f"{self.name}_at")
        return self.reduced(self.name)

    def filled(self, shape: str) -> str:
        return f"tl.full({shape}, {self.identity()}, {self.type})"
