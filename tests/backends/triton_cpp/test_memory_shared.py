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
