# mypy: ignore-errors
"""Loops, conditions, comprehensions, match, unpacking, assignments of every kind.

PYTEST_DONT_REWRITE: the programs are compiled as they are written.
"""

from __future__ import annotations

import pytest
import torch

from tests.differ import Cases

cases = Cases()
X = torch.tensor([1.0, -2.0, 3.0, -4.0])


@cases.add()
def loop_with_else_break_continue(x):
    for i in range(6):
        if i % 2:
            continue
        if i > 4:
            break
        x = x + i
    else:
        x = x * 1000
    for _ in ():
        x = x * 7
    else:
        x = x - 1
    return x, i


@cases.add()
def while_with_else(x):
    n = 0
    while n < 3:
        n += 1
        x = x * n
    else:
        x = x + n
    while True:
        n -= 1
        if not n:
            break
    return x, n


@cases.add()
def nested_comprehensions(x):
    table = {(i, j): x * i + j for i in range(3) for j in range(i) if (i + j) % 2}
    flat = [v for row in [[1, 2], [3]] for v in row]
    return list(table), sum(table.values()), flat, {len(w) for w in ("a", "bb", "cc")}


@cases.add()
def comprehension_scope(x):
    i = 10
    made = [lambda t, k=i: t + k + i for i in range(3)]  # noqa: B023
    return [f(x) for f in made], i


@cases.add()
def walrus_in_conditions(x):
    if (n := x.dim()) == 1 and (m := n + 4) > 4:
        x = x + n * m
    return x, [y := 1, y + 1, y**2]


@cases.add()
def short_circuit(x):
    log = []

    def say(value):
        log.append(value)
        return value

    out = say(0) or say(2) and say(3)
    none = say(None) and say(5)
    chained = say(1) < say(2) < say(0) < say(9)
    return x + out, none, chained, log, not log, 1 if x is None else 2


@cases.add()
def starred_assignment(x):
    a, (b, *c), *d = x, (1, 2, 3), 4, 5
    *e, f = "xyz"
    [g, h] = {7: 0, 8: 0}
    return a * b, c, d, e, f, g + h, [*c, *d], (*d, a), {*c, *d} == {2, 3, 4, 5}, {**{"a": 1}, "b": 2, **{"a": 3}}


@cases.add()
def augmented_targets(x):
    box = {"k": [1, 2]}
    box["k"][0] += 5
    box["k"] += [3]
    box["k"] *= 2
    values = [x, x]
    values[1] *= 3
    text = "a"
    text += "b"
    bits = 6
    bits |= 1
    bits ^= 2
    bits <<= 2
    bits >>= 1
    bits &= ~4
    power = 2
    power **= 5
    power //= 3
    power %= 7
    return box, values, text, bits, power


@cases.add()
def swaps_and_chained_assignment(x):
    a = b = [x]
    a, c = c_first, a = (x + 1, x + 2), b
    c, a = a, c
    return a, b, c, c_first


@cases.add()
def deletion(x):
    values = [0, 1, 2, 3, 4]
    del values[1], values[-1]
    del values[:1]
    table = {"a": 1, "b": x}
    y = table["b"]
    del table["b"]
    z = y + 1
    del y
    return values, table, z


class Spot:
    __match_args__ = ("px", "py")

    def __init__(self, px, py):
        self.px, self.py = px, py


@cases.add()
def match_everything(x):
    out = []
    for subject in (0, -3, "go", ["a", 1, 2], (1, 2), {"k": 1, "z": 2}, {"k": 5}, Spot(1, 2), Spot(0, 0), None, 2.5, [[1], [2]]):
        match subject:
            case 0 | 1:
                out.append("small")
            case int(n) if n < 0:
                out.append(("negative", n))
            case str() as s:
                out.append(s)
            case ["a", *rest]:
                out.append(rest)
            case (p, q) if p is not None and not isinstance(p, list):
                out.append((q, p))
            case {"k": 1, **others}:
                out.append(others)
            case {"k": k}:
                out.append(k)
            case Spot(px=1, py=py):
                out.append(py)
            case Spot(a, b):
                out.append(a + b)
            case None:
                out.append("none")
            case [[p], [q]]:
                out.append(p * 10 + q)
            case _:
                out.append("other")
    return x + len(out), out


@cases.add()
def slices_and_subscripts(x):
    values = list(range(10))
    values[2:5] = [x, "b"]
    values[::3] = [None] * len(values[::3])
    part = slice(1, None, 2)
    return values, values[part], "hello"[::-1], (1, 2, 3)[-2:], x[1:3], x[..., None, 0], x[part], part.indices(7)


@cases.add()
def numbers(x):
    n = x.shape[0]
    return x + n // 3 + -n % 3, divmod(-7, 2), 7 / 2, 2**10, round(2.675, 2), abs(-3), pow(3, 4, 5), (5).bit_length(), 1e3 == 1000, 3 + 4j, int("12"), float("1.5"), bin(5), True + True, 0.1 + 0.2, (2.5).is_integer(), min(3, 1, 2), sum([1, 2], 10)  # noqa: E501


@cases.add()
def text(x):
    n = x.shape[0]
    name = "w"
    out = [f"{name!r:>6}|{n:03d}|{1 / 3:.3e}|{name=}", "%s-%5.2f-%x" % (name, 2.0, 255), "{0}{b:>{w}}".format(1, b=2, w=4)]  # noqa: UP030, UP031, UP032
    out += ["a-b-c".rsplit("-", 1), "abc".replace("b", "B").title(), " pad ".strip(), "abc".find("c"), "k=v".partition("="), "ß".upper(), "x".join("ab")]
    out += ["abc".startswith(("x", "a")), "5".isdigit(), "a\tb".expandtabs(4), "abc".encode().hex(), b"ab", "ab" * 2, "b" in "abc", ord("a"), chr(98), "%%"]  # noqa: UP012
    return x + len(out[0]), out


@cases.add((X,), (X + 1,), (X.double(),), graphs=2)
def conditions_on_metadata(x):
    if x.dtype == torch.float64:
        return x - 1
    return x + 1 if x.dim() == 1 and not x.requires_grad and x.device.type == "cpu" else x


@cases.breaks((X,), (-X,), (X * 0 + 1,))
def data_dependent_loop(x):
    steps = 0
    while x.abs().max() > 1:
        x = x / 2
        steps += 1
        if (x > 0).all():
            break
    return x, steps


@cases.breaks((X,), (-X,))
def data_dependent_expressions(x):
    a = 1 if x.sum() > 0 else 2
    b = [v * 2 for v in x if v > 0]
    c = x.max() > 2 and x.min() < -3
    d = not x.any()
    return a, b, c, d, x + a


@cases.breaks((X,), (-X,))
def tensor_values_as_numbers(x):
    total = x.sum().item()
    return x + total, int(x[0]), float(x[1]), x.tolist(), [1, 2, 3, 4][x.long()[0]], bool(x[0] > 0), f"{x[0]:.1f}", range(abs(int(x[0])))


@cases.breaks((X,), (-X,))
def asserts_on_tensors(x):
    assert x.dim() == 1, "a vector, please"
    assert x.sum() < 0, f"sum is {x.sum()}"
    return x + 1


@cases.breaks((X,))
def sizes_that_depend_on_values(x):
    picked = x[x > 0]
    return picked.sum(), x.nonzero(), picked.shape[0], torch.unique(x.abs().round())


@cases.breaks((X,))
def dynamic_code(x):
    scope = {"k": 3}
    exec("k = k + 1", scope)
    return x + eval("1 + 2") + scope["k"], "X" in globals(), vars()["x"] is x


@pytest.mark.parametrize("name", cases)
def test_control_flow(name: str) -> None:
    cases.check(name)
