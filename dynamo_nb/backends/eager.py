"""Backends that do not compile: they show or check what was captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx

from .registry import register_builtin


@register_builtin("eager", "debug")
def eager(gm: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the graph as it is."""
    return gm.forward


@register_builtin("eager_noexcept", "debug")
def eager_noexcept(gm: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the graph as it is; an exception names the graph."""

    def run(*args: Any) -> Any:
        try:
            return gm(*args)
        except Exception as err:
            raise RuntimeError(f"the captured graph raised {type(err).__name__}: {err}") from err

    return run


@register_builtin("pre_dispatch_eager", "debug")
def pre_dispatch_eager(gm: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """Run the graph through make_fx before dispatch, then as it is."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def flat(*args: Any) -> Any:
        return torch.fx.Interpreter(gm).run(*args)

    return make_fx(flat, pre_dispatch=True)(*example_inputs).forward
