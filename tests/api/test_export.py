"""export(): whole programs as ExportedProgram or as (graph module, guards)."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import io

import pytest
import torch

import dynamo_nb
from dynamo_nb import exc

Pair = collections.namedtuple("Pair", "left right")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2
        self.fc = torch.nn.Linear(3, 3)
        self.unused = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("steps", torch.zeros(2))
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def forward(self, x, *, bias=None):
        self.scale = 5
        out = self.fc(x).relu() * self.scale + self.hidden
        return {"out": out, "twice": (out, out)} if bias is None else out + bias


class Breaks(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Counts(torch.nn.Module):
    """Replaces its buffers, returns the old one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", torch.ones(2))

    def forward(self, x):
        old = self.a
        self.a, self.b = self.b, self.a + x
        return old.view(1, 2), self.a


def same(got, expected):
    flat, spec = torch.utils._pytree.tree_flatten(got)
    wanted, wanted_spec = torch.utils._pytree.tree_flatten(expected)
    assert spec == wanted_spec
    for a, b in zip(flat, wanted, strict=True):
        assert type(a) is type(b)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


# -- ExportedProgram ----------------------------------------------------------------------------------
def test_strict_is_off_by_default():
    assert inspect.signature(dynamo_nb.export).parameters["strict"].default is False


@pytest.mark.parametrize("strict", [True, False])
def test_program_computes_what_the_module_does_and_leaves_it_alone(strict):
    net, x = Net(), torch.randn(4, 3)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    program = dynamo_nb.export(net, (x,), strict=strict)
    assert type(program) is torch.export.ExportedProgram
    assert net.scale == 2 and list(vars(net)) == list(vars(Net()))
    same(dict(net.state_dict()), before)
    assert set(program.state_dict) == set(net.state_dict())
    same(program.module()(x), net(x))


@pytest.mark.parametrize("strict", [True, False])
def test_keyword_arguments(strict):
    net, x, bias = Net(), torch.randn(4, 3), torch.randn(3)
    program = dynamo_nb.export(net, (x,), {"bias": bias}, strict=strict)
    same(program.module()(x, bias=bias), net(x, bias=bias))


def test_strict_refuses_a_break_and_names_the_line():
    with pytest.raises(exc.Unsupported) as caught:
        dynamo_nb.export(Breaks(), (torch.ones(2),), strict=True)
    assert __file__ in str(caught.value) and "in forward" in str(caught.value)


def test_save_and_load():
    net, x = Net(), torch.randn(4, 3)
    file = io.BytesIO()
    torch.export.save(dynamo_nb.export(net, (x,), strict=True), file)
    file.seek(0)
    same(torch.export.load(file).module()(x), net(x))


def test_other_shapes_are_refused():
    program = dynamo_nb.export(Net(), (torch.ones(4, 3),), strict=True)
    with pytest.raises(Exception, match="size"):
        program.module()(torch.ones(5, 3))


def test_dynamic_shapes_keep_the_branch_taken():
    class Sized(torch.nn.Module):
        def forward(self, x):
            return x.sum(0) * x.shape[0] if x.shape[0] > 4 else x.mean(0)

    module, batch = Sized(), torch.export.Dim("batch", min=5)
    program = dynamo_nb.export(module, (torch.ones(6, 3),), dynamic_shapes={"x": {0: batch}}, strict=True)
    same(program.module()(torch.ones(9, 3)), module(torch.ones(9, 3)))
    with pytest.raises(Exception, match="5"):
        program.module()(torch.ones(3, 3))
    with pytest.raises(Exception, match="5"):
        dynamo_nb.export(module, (torch.ones(6, 3),), dynamic_shapes={"x": {0: torch.export.Dim("batch")}}, strict=True)


def test_a_compiled_module_exports():
    net, x = Net(), torch.randn(2, 3)
    same(dynamo_nb.export(dynamo_nb.compile(net), (x,), strict=True).module()(x), net(x))


def test_replaced_buffers_are_state_of_the_program():
    module, x = Counts(), torch.tensor([1.0, 2.0])
    run = dynamo_nb.export(module, (x,), strict=True).module()
    same((module.a, module.b), (torch.zeros(2), torch.ones(2)))
    eager = Counts()
    for _ in range(3):
        same(run(x), eager(x))


# -- (graph module, guards) ---------------------------------------------------------------------------
def structures(x, pair, k, *rest, **named):
    y = x + k
    return [y, [x, y]], (None, "text", x.shape), {"pair": pair, 3: rest}, Pair(named["z"], y), torch.topk(x, 1), slice(0, x.size(0))


ARGS = (torch.arange(3.0), Pair(torch.ones(1), 4), 2, torch.zeros(2), 7)


@pytest.mark.parametrize("aten", [False, True])
def test_result_has_the_structure_of_the_callable(aten):
    gm, guards = dynamo_nb.export(structures, *ARGS, z=torch.ones(2), aten_graph=aten)
    assert isinstance(gm, torch.fx.GraphModule) and guards
    new = (torch.tensor([5.0, 1.0, 9.0]), Pair(torch.zeros(1), 4), 2, torch.ones(2), 7)
    same(gm(*new, z=torch.zeros(2)), structures(*new, z=torch.zeros(2)))
    same(copy.deepcopy(gm)(*new, z=torch.zeros(2)), structures(*new, z=torch.zeros(2)))
    if aten:
        assert all(isinstance(n.target, torch._ops.OpOverload) or "getitem" in str(n.target) for n in gm.graph.nodes if n.op == "call_function")


def test_flat_leaves_and_keywords_are_accepted():
    def f(items, scale=3):
        return items[1] * scale, items[0]

    items = [torch.ones(2), torch.arange(2.0)]
    gm, _ = dynamo_nb.export(f, items)
    for got in (gm(items), gm(*items), gm(items=items)):
        same(got, f(items))
    with pytest.raises(TypeError, match="structure"):
        gm(items, items, items)


def test_called_in_two_steps():
    result = dynamo_nb.export(lambda x, y: x @ y)(torch.ones(2, 2), y=torch.eye(2))
    gm, guards = result
    assert result.graph_module is gm and result.guards is guards
    same(gm(torch.ones(2, 2), torch.ones(2, 2)), torch.full((2, 2), 2.0))


def test_no_arguments():
    exported = dynamo_nb.export(lambda: torch.arange(3) + 1)
    same(exported[0](), torch.arange(3) + 1)
    assert len(exported) == 2 and exported.graph_module is exported[0]


def test_methods_modules_and_other_callables():
    net, x = Net(), torch.randn(2, 3)
    for fn in (net, net.forward, functools.partial(net, bias=torch.ones(3)), torch.relu):
        gm, _ = dynamo_nb.export(fn, x)
        same(gm(x), fn(x))
    gm, _ = dynamo_nb.export(net, x)
    assert gm.fc.weight is net.fc.weight and list(gm.state_dict()) == list(net.state_dict())
    assert dict(gm.named_buffers()).keys() == dict(net.named_buffers()).keys()


def test_a_constant_that_was_used_is_checked_one_passed_through_is_not():
    gm, _ = dynamo_nb.export(lambda x, k, label: (x * k, label), torch.ones(2), 2, "a")
    same(gm(torch.ones(2), 2, "b"), (torch.full((2,), 2.0), "b"))
    with pytest.raises(ValueError, match="k was 2"):
        gm(torch.ones(2), 3, "a")


def test_tensors_that_were_one_must_stay_one():
    x = torch.ones(2)
    gm, _ = dynamo_nb.export(lambda a, b: a + b, x, x)
    same(gm(x, x), x * 2)
    with pytest.raises(ValueError, match="one tensor"):
        gm(x, torch.zeros(2))


def test_symbolic_tracing_keeps_sizes_open():
    def f(x, n):
        return x.reshape(-1), x.shape, x.shape[0] * n

    gm, _ = dynamo_nb.export(f, torch.ones(4, 3), 7, aten_graph=True, tracing_mode="symbolic")
    same(gm(torch.ones(6, 5), 9), f(torch.ones(6, 5), 9))


def test_decompositions_need_the_aten_graph():
    def f(x):
        return x.t() + x.t()

    gm, _ = dynamo_nb.export(f, torch.ones(3), aten_graph=True, decomposition_table={torch.ops.aten.t.default: torch.cos})
    assert not [n for n in gm.graph.nodes if n.target is torch.ops.aten.t.default]
    with pytest.raises(AssertionError):
        dynamo_nb.export(f, torch.ones(3), decomposition_table={})
    with pytest.raises(AssertionError):
        dynamo_nb.export(f, torch.ones(3), tracing_mode="symbolic")


def test_nodes_carry_the_users_lines():
    net = torch.nn.Linear(2, 2)
    gm, _ = dynamo_nb.export(lambda x: net(x + 1), torch.ones(2))
    assert all(n.stack_trace for n in gm.graph.nodes if n.op not in ("placeholder", "output"))
    assert any(__file__ in n.stack_trace for n in gm.graph.nodes if n.op == "call_function")


# -- what cannot be exported --------------------------------------------------------------------------
def test_breaks_raise():
    with pytest.raises(exc.Unsupported, match="NB"):
        dynamo_nb.export(Breaks(), torch.ones(2))

    def prints(x):
        print("seen")
        return x

    with pytest.raises(exc.Unsupported, match="print"):
        dynamo_nb.export(prints, torch.ones(2))


def test_an_exception_of_the_program_is_refused():
    def fails(x):
        raise ValueError("no")

    with pytest.raises(exc.Unsupported, match="ValueError"):
        dynamo_nb.export(fails, torch.ones(2))


def test_changed_arguments_are_refused():
    def grows(items):
        items.append(items[0] + 1)
        return items[1]

    given = [torch.ones(2)]
    with pytest.raises(exc.Unsupported, match="arguments"):
        dynamo_nb.export(grows, given)
    assert len(given) == 1


def test_changed_containers_of_the_program():
    history = []
    outer = [history]

    def remembers(x):
        history.append(x)
        return history

    def nested(x):
        history.append(x)
        return outer

    gm, _ = dynamo_nb.export(remembers, torch.ones(2))
    assert history == []
    same(gm(torch.zeros(2)), [torch.zeros(2)])
    with pytest.raises(exc.Unsupported, match="container"):
        dynamo_nb.export(nested, torch.ones(2))


def test_values_no_graph_can_hold_are_refused():
    with pytest.raises(exc.Unsupported, match="no value of a graph"):
        dynamo_nb.export(lambda x: (x, object), torch.ones(2))


def test_random_state_is_untouched():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    gm, _ = dynamo_nb.export(lambda x: torch.rand(2) + x, torch.ones(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(gm(torch.ones(2)), gm(torch.ones(2)))


def test_wrong_calls():
    with pytest.raises(TypeError, match="callable"):
        dynamo_nb.export(3, torch.ones(2))
    with pytest.raises(TypeError):
        dynamo_nb.export(lambda x: x, torch.ones(2), torch.ones(2))
    with pytest.raises(exc.UserError, match="module"):
        dynamo_nb.export(lambda x: x, torch.ones(2), strict=True)
    with pytest.raises(TypeError, match="arguments of f"):
        dynamo_nb.export(lambda x: x)[0]
