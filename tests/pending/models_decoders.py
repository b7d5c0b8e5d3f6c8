# mypy: ignore-errors
"""GPT-2 and Llama, whole and equal as the models of tests/test_models.py."""

import pytest
import torch

from tests import test_models as models


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100)), torch.randint(0, 100, (2, 7))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=100, **models.SMALL)), torch.randint(0, 100, (2, 7))


@pytest.mark.parametrize("make", [gpt2, llama], ids=lambda f: f.__name__)
def test_decoder(make) -> None:
    models.test_whole_and_equal(make)
