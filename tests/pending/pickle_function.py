# mypy: ignore-errors
"""A compiled module-level function survives pickling."""

import pickle

import torch

import dynamo_nb


def pickled(x):
    return x + 1


def test_pickle() -> None:
    again = pickle.loads(pickle.dumps(dynamo_nb.compile(pickled, backend="eager")))
    assert again(torch.ones(1)).item() == 2
