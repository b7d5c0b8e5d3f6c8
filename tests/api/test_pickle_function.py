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


@dynamo_nb.compile(backend="eager")
def decorated(x):
    return x + 2


def doubled(gm, inputs):
    return gm.forward


def test_pickle_of_a_decorated_function_is_by_name() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_pickle_keeps_a_backend_given_as_a_function() -> None:
    again = pickle.loads(pickle.dumps(dynamo_nb.compile(pickled, backend=doubled)))
    assert again(torch.ones(1)).item() == 2
