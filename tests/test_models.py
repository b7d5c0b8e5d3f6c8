# mypy: ignore-errors
"""Models captured whole: forward and one training step equal eager, without a graph break."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import dynamo_nb
from dynamo_nb.testing import EagerAndRecordGraphs


class Block(nn.Module):
    """A residual block as in ResNet-18."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        shortcut = stride != 1 or inside != outside
        self.down = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)) if shortcut else None

    def forward(self, x):
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + (x if self.down is None else self.down(x)))


def mlp() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 2)), torch.randn(3, 4)


def cnn() -> Any:
    body = (Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU(), *body, *head), torch.randn(2, 3, 16, 16)


def transformer() -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2), torch.randn(2, 5, 16)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def bert() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(vocab_size=100, **SMALL)), torch.randint(0, 100, (2, 7))


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100)), torch.randint(0, 100, (2, 7))


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=100, **SMALL)), torch.randint(0, 100, (2, 7))


def vit() -> Any:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(image_size=32, patch_size=8, **SMALL)), torch.randn(2, 3, 32, 32)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "values") and callable(value.values):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def step(model: nn.Module, call: Any, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    torch.manual_seed(1)
    loss = sum((t.float() ** 2).mean() for t in tensors(call(x)))
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("make", [mlp, cnn, transformer, bert, gpt2, llama, vit], ids=lambda f: f.__name__)
def test_whole_and_equal(make: Any) -> None:
    torch.manual_seed(0)
    model, x = make()
    record = EagerAndRecordGraphs()
    compiled = dynamo_nb.compile(model, backend=record, fullgraph=True)
    model.eval()
    with torch.no_grad():
        got, want = compiled(x), model(x)
    assert type(got) is type(want) and len(record.graphs) == 1
    assert all(torch.allclose(g, w, atol=1e-5) for g, w in zip(tensors(got), tensors(want), strict=True))
    model.train()
    loss, grads = step(model, compiled, x)
    expected, expected_grads = step(model, model, x)
    assert len(record.graphs) == 2 and torch.allclose(loss, expected, atol=1e-5)
    assert all(torch.allclose(g, w, atol=1e-5) for g, w in zip(grads, expected_grads, strict=True))
