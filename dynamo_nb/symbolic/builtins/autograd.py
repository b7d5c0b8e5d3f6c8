"""Autograd inside a frame: grad-mode switches become graph nodes and effects; engine calls break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...core.exc import StepUnsupported
from ...core.reasons import AutogradInFrame
from ..variables.base import VariableTracker, const
from ..variables.constant import NONE
from . import handles

if TYPE_CHECKING:
    from ..interpreter import InstructionTranslatorBase as Tx


@handles(torch._C._set_grad_enabled)
def set_grad_enabled(tx: Tx, mode: VariableTracker) -> VariableTracker:
    tx.recorder.state.set(tx, "grad", bool(const(mode)))
    return NONE


@handles(torch.autograd.backward, torch.autograd.grad)
def engine(tx: Tx, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    raise StepUnsupported(AutogradInFrame("torch.autograd.backward() or grad()"))
