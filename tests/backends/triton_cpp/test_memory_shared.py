# mypy: ignore-errors
"""Which results show the memory of an argument or of one another: exactly where eager's do, and with its strides."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils import _pytree as pytree

import dynamo_nb

# Some are copies for some shapes only, some never or always.
EXPRESSIONS = """torch.max(x, 0); torch.median(x, 0); torch.sort(x, 0)[0]; torch.sum(x, 0); torch.flip(x, [0]) if x.dim() else x; torch.squeeze(x)
torch.atleast_1d(x); torch.broadcast_to(x, x.shape); torch.where(c, x, x); torch.clamp(x, -1000); torch.dropout(x, 0.5, False)
F.pad(x, (0, 0)) if x.dim() else x; torch.cat([x]) if x.dim() else x; torch.stack([x]); torch.einsum('...->...', x)
x.to(torch.float32); x.contiguous(); x.type_as(x); x.clone(); x.sum_to_size(x.shape); x.expand_as(x); F.dropout(x, 0.0)
torch.positive(x); x.masked_fill(~c, 1.0); torch.amax(x, ()); x.reshape(x.shape); x.unsqueeze(0).squeeze(0); x.flatten(); x.ravel()
x.mT if x.dim() > 1 else x; x[...]; x[()]; torch.split(x, 5) if x.dim() else x; torch.unbind(x) if x.dim() else x
x.narrow(0, 0, 1) if x.dim() else x; torch.triu(x, -10) if x.dim() == 2 else x; x * 1; x + 0; torch.maximum(x, x); x.detach(); x.data
torch.aminmax(x); x.as_strided(x.size(), x.stride()); x.view(torch.int32); x.view(torch.int32).view(torch.float32)
torch.broadcast_tensors(x, x); torch.sort(x.clone())[0]; x.mT.clone() if x.dim() > 1 else x; (x.clone(), x.clone().view(torch.int32))
(lambda y: (torch.sort(y)[0], y))(x.clone()); (lambda y: (torch.sort(y)[0], y))(x.mT.clone() if x.dim() > 1 else x)
(lambda y: (torch.sort(y)[0], y[..., :1] if y.dim() else y, y))(x * 2)
(lambda y: (y, y.clone(), y.reshape(y.shape), torch.sort(y.clone())[0]))(x * 2)"""


def described(results, x):
    tensors = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]
    places = [x, *tensors]
    memory = [[t.untyped_storage().data_ptr() == s.untyped_storage().data_ptr() for s in places] for t in tensors]
    return memory, [(t.dtype, t.shape, t.stride() if t.numel() > 1 else ()) for t in tensors]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", ((), (1,), (2, 3)))
@pytest.mark.parametrize("line", EXPRESSIONS.splitlines())
def test_as_eager(line, shape) -> None:
    torch.manual_seed(0)
    x, c = torch.randn(shape), torch.ones(shape, dtype=torch.bool)
    differ = []
    for expression in line.split("; "):
        fn = eval(f"lambda x, c: {expression}", {"torch": torch, "F": F})
        dynamo_nb.reset()
        if described(fn(x, c), x) != described(dynamo_nb.compile(fn)(x, c), x):
            differ.append(expression)
    assert differ == []


LAID_OUT = """torch.select_scatter(x, x[:, 0], 1, -1); torch.slice_scatter(x, x[1:2], 0, 1, 2); torch.diagonal_scatter(x, torch.zeros(5, 5), 0)
torch.baddbmm(x, x, x); x.masked_fill(x > 0, 1.0); torch.where(x > 0, x, x[0]); x.cumsum(0); x.flip(0); x.roll(1, 0); torch.triu(x)
torch.zeros_like(x); x.clone(); x.sort(0)[0]; x.softmax(0); torch.addcmul(x, x, x); x.lerp(x, 0.5); x.clamp(0); F.layer_norm(x, (5,))
F.pad(x, (1, 1)); torch.cat([x, x]); torch.stack([x, x]); x.repeat(1, 1, 2); x.double(); x.bool(); x @ x[0]; torch.bmm(x, x); F.gelu(x)
x.cummax(0)[0]; F.normalize(x); x.index_select(0, torch.tensor([0, 1])); x[torch.tensor([0, 1])]; x[:, torch.tensor([0, 1])]
F.instance_norm(x); F.batch_norm(x, None, None, training=True); x.sum(0); x.amax(1, keepdim=True); x.mean((0, 2))
torch.addbmm(x[0], x, x); F.dropout(x, 0.0)"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LAID_OUT.splitlines())
def test_layouts_of_transposed(line) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 5, 5).transpose(1, 2)
    differ = []
    for expression in line.split("; "):
        fn = eval(f"lambda x: {expression}", {"torch": torch, "F": F})
        dynamo_nb.reset()
        if described(fn(x), x) != described(dynamo_nb.compile(fn)(x), x):
            differ.append(expression)
    assert differ == []
