"""The backend `triton_cpp` by name; its parts are imported by the first compile that asks for it."""

from __future__ import annotations

from typing import Any

import torch.fx

from .registry import register_builtin


@register_builtin("triton_cpp")
def triton_cpp(gm: torch.fx.GraphModule, example_inputs: list[Any], *, fake_inputs: list[Any] | None = None, **options: Any) -> Any:
    """Our own code generator: fused C++ kernels on the CPU; everything else is called."""
    from .triton_cpp.backend import triton_cpp as generate

    return generate(gm, example_inputs, fake_inputs=fake_inputs, **options)


triton_cpp.takes_fake_inputs = True  # type: ignore[attr-defined]
