# mypy: ignore-errors
"""User-defined equality runs exactly as often as in eager."""

import torch

from tests.differ import differ

LOG: list[str] = []


class Key:
    def __eq__(self, other):
        LOG.append("eq")
        return False

    def __hash__(self):
        LOG.append("hash")
        return 1


def world():
    LOG.clear()
    return LOG


def program(x, a, b):
    table = {a: 1}
    table[b] = 2
    return x + len(table)


def test_equality_calls() -> None:
    differ(program, (torch.ones(2), Key(), Key()), state=world)
