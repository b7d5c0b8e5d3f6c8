"""What a fuzz program is: source text plus the few facts the runner needs.

In: source written by `gen` (or cut down by `shrink`). Out: a fresh namespace for every run, so that no state is shared
between the eager and the compiled run. Called by `runner`, `batch` and `shrink`.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any, TypeVar

import torch

MODULE = "fuzzprog"
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass
class Program:
    """One program.

    `source` defines `make_state() -> dict`, `entry(st) -> callable` and `call_args(k, st) -> (args, kwargs)` for
    `0 <= k < calls`. `features` are the language features that were written into it; `backward` asks the runner to run
    a backward pass over the result; `may_raise` says that an exception that leaves the entry is intended.
    """

    seed: int
    source: str
    calls: int
    features: frozenset[str] = frozenset()
    backward: bool = False
    may_raise: bool = False
    attempt: int = 0
    tag: str = ""
    _code: CodeType | None = field(default=None, repr=False, compare=False)

    @property
    def filename(self) -> str:
        """Name under which the source is known to linecache and tracebacks."""
        return f"<fuzz {self.seed}{self.tag}>"

    def code(self) -> CodeType:
        """The compiled module; raises SyntaxError for text that is no Python."""
        if self._code is None:
            self._code = compile(self.source, self.filename, "exec")
            linecache.cache[self.filename] = (len(self.source), None, self.source.splitlines(True), self.filename)
        return self._code

    def forget(self) -> None:
        """Drop the linecache entry."""
        linecache.cache.pop(self.filename, None)
        self._code = None

    def namespace(self) -> dict[str, Any]:
        """Run the module text in a new namespace and return it."""
        module = ModuleType(MODULE)
        sys.modules[MODULE] = module
        ns = module.__dict__
        ns.update(mk=make_tensor, opaque=opaque)
        exec(self.code(), ns)
        return ns


def make_tensor(shape: tuple[int, ...], dtype: str, seed: int) -> torch.Tensor:
    """A tensor with reproducible values that leaves the global generator alone."""
    gen = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.rand(shape, generator=gen) > 0.5
    if dtype == "int64":
        return torch.randint(-3, 6, shape, generator=gen)
    return (torch.randn(shape, generator=gen) * 1.25).to(getattr(torch, dtype))


def opaque(fn: _F) -> _F:
    """Mark a function as one a compiler must not look into (torch's own marker), which forces a graph break."""
    fn._torchdynamo_disable = True  # type: ignore[attr-defined]
    return fn
