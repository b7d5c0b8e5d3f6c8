# mypy: ignore-errors
"""disable, allow_in_graph, graph_break, is_compiling and their kin; errors; explain; logs; config; counters."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import dynamo_nb
from dynamo_nb.testing import CompileCounter
from tests.differ import differ

X = torch.ones(3)


def names(record):
    return [[getattr(n.target, "__name__", n.target) for n in g.graph.nodes if n.op.startswith("call_")] for g in record.graphs]


def test_disable_forms() -> None:
    @dynamo_nb.disable
    def off(x):
        return helper(x) + 1

    @dynamo_nb.disable(recursive=False)
    def shallow(x):
        return helper(x) + 1

    def helper(x):
        return x * 2

    for fn, graphs in ((off, [["sub"], ["truediv"]]), (shallow, [["sub"], ["mul"], ["truediv"]])):
        record = differ(lambda x, fn=fn: fn(x - 1) / 2, (X,), trace=False)
        assert sorted(names(record)) == sorted(graphs)
    assert off.__name__ == "off"


def test_disable_on_a_module_and_a_compiled_function() -> None:
    m = dynamo_nb.disable(torch.nn.Linear(3, 3))
    count = CompileCounter()
    assert torch.equal(dynamo_nb.compile(m, backend=count)(X), m(X)) and count.frame_count == 0
    plain = dynamo_nb.disable(dynamo_nb.compile(lambda x: x + 1, backend=count))
    assert torch.equal(plain(X), X + 1) and count.frame_count == 0


def test_the_reason_of_disable_is_shown() -> None:
    @dynamo_nb.disable(reason="talks to the network")
    def off(x):
        return x

    with pytest.raises(dynamo_nb.exc.Unsupported, match="talks to the network"):
        dynamo_nb.compile(lambda x: off(x) + 1, backend="eager", fullgraph=True)(X)


def test_graph_break_with_a_message() -> None:
    def f(x):
        y = x + 1
        dynamo_nb.graph_break("here, please")
        return y * 2

    assert names(differ(f, graphs=2)) == [["add"], ["mul"]]
    with pytest.raises(dynamo_nb.exc.Unsupported, match="here, please"):
        dynamo_nb.compile(f, backend="eager", fullgraph=True)(X)


def test_allow_and_disallow_in_graph() -> None:
    @dynamo_nb.allow_in_graph
    def opaque(x):
        return x + 1

    record = differ(lambda x: opaque(x) * 2, (X,), (-X,), graphs=1)
    assert names(record) == [["opaque", "mul"]]
    dynamo_nb.disallow_in_graph(torch.erfinv)
    assert names(differ(lambda x: torch.erfinv(x * 0.5) + 1, (X,))) == [["mul"], ["add"]]


def test_is_compiling() -> None:
    def f(x):
        return x + (1 if dynamo_nb.is_compiling() else 2)

    assert f(X)[0].item() == 3 and dynamo_nb.compile(f, backend="eager")(X)[0].item() == 2 and dynamo_nb.is_compiling() is False


def test_assume_constant_result() -> None:
    calls = []

    @dynamo_nb.assume_constant_result
    def setting():
        calls.append(1)
        return 5

    f = dynamo_nb.compile(lambda x: x + setting(), backend="eager", fullgraph=True)
    assert [f(X)[0].item() for _ in range(3)] == [6, 6, 6] and len(calls) == 1


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x


def printing(x):
    print("hello")
    return x + 1


def opening(x):
    open("/dev/null").close()
    return x + 1


@pytest.mark.parametrize("fn", [branch, printing, opening], ids=lambda f: f.__name__)
def test_fullgraph_errors(fn) -> None:
    with pytest.raises(dynamo_nb.exc.Unsupported) as caught:
        dynamo_nb.compile(fn, backend="eager", fullgraph=True)(X)
    text = str(caught.value)
    shown = {branch: "if x.sum() > 0", printing: 'print("hello")', opening: "open("}[fn]
    assert f"line {fn.__code__.co_firstlineno + 1}" in text and __file__ in text and shown in text
    assert "Explanation:" in text and "Hint:" in text and "Id: NB" in text and caught.value.reason.id.startswith("NB")
    assert fn(X) is not None and dynamo_nb.cache_entries(fn) == []


def test_fullgraph_error_inside_a_callee_names_both_lines() -> None:
    def outer(x):
        return printing(x) * 2

    with pytest.raises(dynamo_nb.exc.Unsupported) as caught:
        dynamo_nb.compile(outer, backend="eager", fullgraph=True)(X)
    assert "in outer" in str(caught.value) and "in printing" in str(caught.value)


def test_fullgraph_lets_the_users_own_exception_through() -> None:
    def f(x):
        if x.dim() == 1:
            raise LookupError("mine")
        return x

    with pytest.raises(LookupError, match="mine"):
        dynamo_nb.compile(f, backend="eager", fullgraph=True)(X)


def test_explain() -> None:
    def f(x):
        y = x + 1
        print(end="")
        z = y * 2
        if z.sum() > 0:
            z = z - 1
        return z

    out = dynamo_nb.explain(f)(X)
    assert (out.graph_count, out.graph_break_count, out.op_count) == (len(out.graphs), 2, sum(len(o) for o in out.ops_per_graph))
    first = f.__code__.co_firstlineno
    assert [r.user_stack[-1].line for r in out.break_reasons] == [first + 2, first + 4]
    assert "Graph Break Count: 2" in str(out) and "Hint" in str(out) and out.out_guards
    whole = dynamo_nb.explain(lambda x: x + 1)(X)
    assert (whole.graph_count, whole.graph_break_count, whole.break_reasons) == (1, 0, [])


def test_counters() -> None:
    dynamo_nb.utils.counters.clear()
    dynamo_nb.compile(printing, backend="eager")(X)
    assert dynamo_nb.utils.counters["stats"]["unique_graphs"] == 1
    assert any("print" in reason for reason in dynamo_nb.utils.counters["graph_break"])


LOGS = {
    "graph_breaks": ["print", "Hint", "test_marks_and_reports.py"],
    "graph_code": ["TRACED GRAPH", "def forward"],
    "bytecode": ["ORIGINAL BYTECODE", "MODIFIED BYTECODE", "RETURN_VALUE"],
    "guards": ["GUARDS", "TENSOR_MATCH"],
}


@pytest.mark.parametrize("tag", LOGS)
def test_log_tags(tag: str, capfd: pytest.CaptureFixture[str]) -> None:
    dynamo_nb.set_logs(**{tag: True})
    try:
        dynamo_nb.compile(printing, backend="eager")(X)
    finally:
        dynamo_nb.set_logs()
    text = capfd.readouterr().err
    assert all(word in text for word in LOGS[tag])
    assert all(f"[__{other}]" not in text for other in LOGS if other != tag)
    dynamo_nb.reset()
    dynamo_nb.compile(printing, backend="eager")(X)
    assert f"[__{tag}]" not in capfd.readouterr().err


def test_recompile_log_names_the_failed_guard(capfd: pytest.CaptureFixture[str]) -> None:
    dynamo_nb.set_logs(recompiles=True)
    try:
        f = dynamo_nb.compile(lambda x, s: x + len(s), backend="eager")
        f(X, "a")
        f(X, "bb")
    finally:
        dynamo_nb.set_logs()
    text = capfd.readouterr().err
    assert "Recompiling function" in text and "L['s']" in text and "'a'" in text and "'bb'" in text


def test_logs_by_environment_variable() -> None:
    program = "import torch, dynamo_nb; dynamo_nb.compile(lambda x: print() or x + 1, backend='eager')(torch.ones(1))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"DYNAMO_NB_LOGS": "graph_breaks", "PATH": "", "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0 and "[__graph_breaks]" in done.stderr


def test_config_patch_forms() -> None:
    before = dynamo_nb.config.recompile_limit

    @dynamo_nb.config.patch(recompile_limit=2)
    def inside():
        return dynamo_nb.config.recompile_limit

    assert inside() == 2
    with dynamo_nb.config.patch("recompile_limit", 3), dynamo_nb.config.patch({"verbose": True, "recompile_limit": 4}):
        assert (dynamo_nb.config.recompile_limit, dynamo_nb.config.verbose) == (4, True)
    with pytest.raises(KeyError), dynamo_nb.config.patch(recompile_limit=5):
        raise KeyError
    assert dynamo_nb.config.recompile_limit == before
    with pytest.raises(AttributeError, match="recompile_limit"):
        dynamo_nb.config.patch(recompile_limt=3)
    assert "recompile_limit" in dir(dynamo_nb.config)


def test_set_logs_refuses_unknown_tags() -> None:
    with pytest.raises(ValueError, match="nothing"):
        dynamo_nb.set_logs(nothing=True)


def test_public_names_are_there_at_once() -> None:
    assert all(name in vars(dynamo_nb) for name in dynamo_nb.__all__)
    program = "import sys, dynamo_nb; print([m for m in sys.modules if m.startswith(('torch._dynamo', 'torch._inductor', 'IPython', 'ipywidgets', 'anywidget'))])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
