"""The backend `triton_cpp` by name; its parts are imported by the first compile that asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from .registry import register_builtin


@register_builtin("triton_cpp")
def triton_cpp(gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, **options: Any) -> Any:
    """Our own code generator: fused C++ kernels on the CPU; everything else is called."""
    from .triton_cpp.backend import triton_cpp as generate

    return generate(gm, example_inputs, fake_inputs=fake_inputs, **options)


def explain(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], measure: bool = False, **options: Any) -> Any:
    """What the generator makes of a captured graph, node by node and kernel by kernel, as `triton_cpp.explain(gm, example_inputs)`.

    measure: also time the kernels and compare with the speed of memory. Returns a `triton_cpp.explain.Explanation`; print it.
    """
    from .triton_cpp.explain import explain as explained

    return explained(gm, example_inputs, measure, **options)


triton_cpp.takes_fake_inputs = True  # type: ignore[attr-defined]
triton_cpp.explain = explain  # type: ignore[attr-defined]
