"""What one `compile()` call asks for. Equal requests share a region, hence cache entries."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """backend: a callable (gm, example_inputs) -> callable; name: what the user called it."""

    backend: Any
    name: str
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    backend_options: tuple[tuple[str, Any], ...] = ()
    export: bool = False
    hooks: Any = None

    def key(self) -> tuple[Any, ...]:
        return (self.backend, self.fullgraph, self.dynamic, self.mode, self.backend_options, self.export, self.hooks)
