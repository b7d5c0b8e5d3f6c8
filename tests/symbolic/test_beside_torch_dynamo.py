# mypy: ignore-errors
"""torch._dynamo wraps nn.Module.__init__ once it has run: modules made in the trace are captured all the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo_nb


@pytest.fixture
def patched_modules(monkeypatch):
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(nn.Module, name, getattr(nn.Module, name))
    monkeypatch.setattr(nn.Module, "___needs_generation_tag_patch", True, raising=False)
    install_generation_tagging_init()
    assert nn.Module.__init__.__module__ == "torch._dynamo.mutation_guard"


class Scale(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        return x * self.k


def test_modules_made_in_the_trace(patched_modules):
    compiled = dynamo_nb.compile(lambda x, k: Scale(k)(x), backend="eager", fullgraph=True)
    for k in (2, 3, 4):
        assert torch.equal(compiled(torch.ones(2), k), torch.ones(2) * k)
