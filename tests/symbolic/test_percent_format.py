# mypy: ignore-errors
# ruff: noqa: UP031, F505, F507, F504
"""The % operator of str on values that are only partly known, against Python."""

from __future__ import annotations

import pytest
import torch

from tests.differ import differ

TEMPLATES = {
    "tuple": lambda x, n: (x + n, "%s/%d" % ("a", n)),
    "nested": lambda x, n: (x + n, "%s %r" % ([n, "a"], {"k": (n,)})),
    "number_of_a_list": lambda x, n: (x + n, "%d" % [n]),
    "number_of_a_list_in_a_tuple": lambda x, n: (x + n, "%s %d" % (n, [n])),
    "one_list": lambda x, n: (x + n, "%s" % [n]),
    "mapping": lambda x, n: (x + n, "%(a)d %(b)s" % {"a": n, "b": (n,)}),
    "missing_key": lambda x, n: (x + n, "%(a)d %(b)s" % {"a": n, "c": (n,)}),
    "too_few": lambda x, n: (x + n, "%d %s" % (n,)),
    "too_many": lambda x, n: (x + n, "%d" % (n, n)),
    "widths": lambda x, n: (x + n, "%.2f|%5s|%x|%%" % (n, n, n)),
    "no_conversion": lambda x, n: (x + n, "abc" % {"a": n}),
    "sizes": lambda x, n: (x + n, "%s %d" % (x.shape, x.size(0))),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_percent(name) -> None:
    differ(TEMPLATES[name], *((torch.ones(k + 1), k) for k in range(1, 5)))
