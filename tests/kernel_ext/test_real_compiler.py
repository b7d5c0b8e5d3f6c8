"""`%%compile` with the real compiler: results, report, failures that leave nothing half-applied."""

from __future__ import annotations

import shutil
import time

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import dynamo_nb
from dynamo_nb.backends.triton_cpp import cpp_build


@pytest.fixture
def run(bare_shell: InteractiveShell, capsys):
    """run(cell) -> (result, what was printed)."""
    dynamo_nb.reset()
    bare_shell.run_line_magic("load_ext", "dynamo_nb")
    bare_shell.user_ns["torch"] = torch

    def run_cell(cell):
        capsys.readouterr()
        result = bare_shell.run_cell(cell)
        captured = capsys.readouterr()
        return result, captured.out + captured.err

    yield run_cell
    bare_shell.run_line_magic("unload_ext", "dynamo_nb")
    dynamo_nb.reset()


def test_one_whole_graph_and_one_recompile(run):
    run("%%compile\ndef f(x):\n    y = x * 2\n    return y + 1\n")
    result, out = run("f(torch.ones(3)).tolist()")
    assert result.result == [3.0, 3.0, 3.0]
    assert "f: 1 graph, no graph break" in out and "    3 ●     y = x * 2" in out and "    4 ●     return y + 1" in out
    _, out = run("y = f(torch.ones(4))")
    assert "1 recompile" in out and "expected 3, actual 4" in out
    _, out = run("y = f(torch.ones(5)); y = f(torch.ones(6))")
    assert out == ""


def test_break_is_marked_on_its_line(run):
    result, out = run("%%compile\ndef f(x):\n    y = x * 2\n    if y.sum() > 0:\n        y = y - 1\n    return y\nf(torch.ones(2)).tolist()")
    assert result.result == [1.0, 1.0]
    assert "    4 ✖     if y.sum() > 0:" in out and "fix: " in out and "1 graph break" in out


def test_module_class(run, bare_shell):
    cell = """%%compile
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x):
        return torch.relu(self.layer(x))
net = Net()
x = torch.ones(3, 4)
y = net(x)
y.sum().backward()
"""
    result, out = run(cell)
    assert result.success and "Net.forward: 1 graph, no graph break" in out
    net, x = bare_shell.user_ns["net"], bare_shell.user_ns["x"]
    torch.testing.assert_close(bare_shell.user_ns["y"], torch.relu(x @ net.layer.weight.T + net.layer.bias))
    assert net.layer.weight.grad is not None
    assert list(net.state_dict()) == ["layer.weight", "layer.bias"]


def test_functions_of_the_same_cell_are_inlined(run):
    _, out = run("%%compile\ndef inner(x):\n    return x * 2\ndef outer(x):\n    return inner(x) + 1\ny = outer(torch.ones(2))")
    assert "1 graph, no graph break" in out and "    3 ●     return x * 2" in out and "    5 ●     return inner(x) + 1" in out


def test_modules_of_the_same_cell_are_inlined(run):
    _, out = run("""%%compile
class Inner(torch.nn.Module):
    def forward(self, x):
        return x * 2
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        return self.inner(x) + 1
y = Outer()(torch.ones(2))
""")
    assert "1 graph, no graph break" in out and "    4 ●         return x * 2" in out


def test_rerunning_a_cell_gives_the_new_definition(run):
    cell = "%%compile\ndef f(x):\n    return x * 2\nf(torch.ones(2)).tolist()"
    assert run(cell)[0].result == [2.0, 2.0]
    assert run(cell)[0].result == [2.0, 2.0]
    assert run(cell.replace("* 2", "* 3"))[0].result == [3.0, 3.0]


def test_fullgraph_error_names_line_cause_and_fix(run, bare_shell):
    result, out = run("%%compile --fullgraph\ndef f(x):\n    if x.sum() > 0:\n        return x + 1\n    return x\nf(torch.ones(2))")
    assert type(result.error_in_exec) is dynamo_nb.exc.Unsupported
    message = str(result.error_in_exec)
    assert "line 3" in message and "if x.sum() > 0:" in message and "Hint: " in message and "NB0001" in message
    result, _ = run("f.__wrapped__(torch.ones(2)).tolist()")
    assert result.result == [2.0, 2.0]


def test_backend_that_raises_is_named(run):
    run("""def broken_backend(gm, inputs):
    raise RuntimeError("no code today")
import dynamo_nb
@dynamo_nb.compile(backend=broken_backend)
def f(x): return x + 1""")
    result, _ = run("f(torch.ones(2))")
    assert type(result.error_in_exec) is dynamo_nb.exc.BackendCompilerFailed
    assert "broken_backend" in str(result.error_in_exec) and "no code today" in str(result.error_in_exec)


def test_shape_error_is_the_users_own(run):
    result, out = run("%%compile\ndef f(a, b):\n    c = a + 1\n    return c @ b\nf(torch.ones(2, 3), torch.ones(2, 3))")
    assert isinstance(result.error_in_exec, RuntimeError) and "mat1 and mat2 shapes cannot be multiplied" in str(result.error_in_exec)
    assert "----> 4     return c @ b" in out


def test_random_state_and_namespace_stay(run, bare_shell):
    run("def plain(x):\n    return x * torch.rand(2)\ntorch.manual_seed(3)\nexpected = plain(torch.ones(2)).tolist(), torch.rand(1).item()")
    before = {name for name in bare_shell.user_ns if not name.startswith("_")}
    run("%%compile\ndef plain(x):\n    return x * torch.rand(2)\ntorch.manual_seed(3)\ngot = plain(torch.ones(2)).tolist(), torch.rand(1).item()")
    assert bare_shell.user_ns["got"] == bare_shell.user_ns["expected"]
    assert {name for name in bare_shell.user_ns if not name.startswith("_")} - before == {"got"}


def test_unknown_backend_lists_the_real_ones(run):
    _, out = run("%%compile --backend nope\n1")
    assert "unknown backend 'nope'; valid ones: " in out and "aot_eager" in out and "eager" in out


def test_report_outside_a_cell():
    dynamo_nb.reset()

    def f(x):
        y = x * 2
        print("seen")
        return y + 1

    report = dynamo_nb.report(f, torch.ones(3))
    assert [(item.id, item.location.text) for item, _ in report.breaks] == [("NB0003", 'print("seen")')]
    marks = {line.split()[1] for line in report.text(("source",)).splitlines() if line.strip()[:1].isdigit()}
    assert {"●", "✖"} <= marks
    again = dynamo_nb.report(f, torch.ones(3))
    assert not again.records and "earlier compiled code answered it" in again.text()
    with pytest.raises(ZeroDivisionError):
        dynamo_nb.report(lambda x: 1 / 0, torch.ones(1))


def test_a_backward_graph_joins_the_report_of_its_cell(run):
    _, out = run("%%compile --backend triton_cpp --show kernels\ndef f(x):\n    return torch.tanh(x).sum()\n"
                 "x = torch.ones(3, requires_grad=True)\ny = f(x)")
    assert "forward graph: 2 operations in 1 kernel" in out and "cell:3" in out and "backward graph" not in out
    _, out = run("y.backward()")
    assert "backward graph: " in out and "fused into k0" in out
    _, out = run("f(x).backward()")
    assert out == ""


def test_tiers_show_in_the_report(run, tmp_path, monkeypatch):
    real = shutil.which("g++")
    script = tmp_path / "cxx"
    script.write_text(f'#!/bin/sh\nif [ "$1" != --version ]; then while [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done; fi\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("DYNAMO_NB_CACHE_DIR", str(tmp_path / "cache"))
    cpp_build.clear()
    try:
        _, out = run("%%compile --tiered --show kernels\ndef f(x):\n    return torch.tanh(x).sum()\ny = f(torch.ones(3))")
        assert "1 kernel, 0 calls of ATen; ATen runs it until they are built" in out
        (tmp_path / "go").touch()
        end = time.monotonic() + 60
        while "ATen runs it until" in out or not out:
            assert time.monotonic() < end
            _, out = run("import time; time.sleep(0.1); y = f(torch.ones(3))")
        assert "inference graph: 2 operations in 1 kernel, 0 calls of ATen" in out
    finally:
        cpp_build.clear()
