"""Facts about operations that the trace depends on: may it raise on values, does it draw random
numbers, does it write one of its operands.

The facts come from the ATen schemas where an operation has one and from naming rules (`add_`,
`__iadd__`, `out=`) elsewhere; the tables below only name what neither tells.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import torch

# Raise depending on element values: indices out of range, division by zero, singular matrices, bad targets.
MAY_RAISE = frozenset(
    """
    index index_select gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take take_along_dim
    embedding embedding_bag index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put index_put_ put put_
    one_hot bincount multinomial bernoulli bernoulli_ normal poisson binomial nll_loss nll_loss2d nll_loss_nd cross_entropy ctc_loss
    multi_margin_loss multilabel_margin_loss repeat_interleave inverse solve cholesky inv lu_factor eig eigh svd lstsq qr
    floor_divide floor_divide_ remainder remainder_ fmod fmod_ div_floor masked_select masked_scatter masked_scatter_ _assert_async
    item tolist __floordiv__ __ifloordiv__ __rfloordiv__ __mod__ __imod__ __rmod__ floordiv mod ifloordiv imod
    __getitem__ __setitem__ getitem setitem bucketize histc histogram unique_consecutive _unsafe_index adaptive_max_pool2d
    max_unpool1d max_unpool2d max_unpool3d grid_sample pack_padded_sequence linalg_inv linalg_solve linalg_cholesky cdist pow __pow__
    """.split()
)
RANDOM = frozenset(
    """
    rand randn randint randperm rand_like randn_like randint_like bernoulli bernoulli_ multinomial normal normal_ uniform_ random_
    exponential_ geometric_ log_normal_ cauchy_ poisson binomial dropout dropout_ alpha_dropout feature_dropout feature_alpha_dropout
    dropout1d dropout2d dropout3d native_dropout rrelu rrelu_ gumbel_softmax scaled_dot_product_attention fractional_max_pool2d
    multi_head_attention_forward rnn_tanh rnn_relu lstm gru _standard_gamma _sample_dirichlet manual_seed seed
    """.split()
)
# Change state outside their operands: never dropped as dead, never reordered.
EFFECT = frozenset(
    """
    _set_grad_enabled set_grad_enabled _enter_inference_mode _exit_inference_mode _enter_autocast _exit_autocast manual_seed
    set_autocast_enabled set_autocast_dtype set_autocast_cache_enabled autocast_increment_nesting autocast_decrement_nesting
    clear_autocast_cache _assert_async _assert _check backward requires_grad_ retain_grad set_rng_state
    """.split()
)
INPLACE_OPERATORS = frozenset("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift imatmul".split())
NOT_INPLACE = frozenset({"requires_grad_", "retain_grad", "is_leaf"})


@dataclasses.dataclass(frozen=True)
class Facts:
    may_raise: bool
    random: bool
    effect: bool
    mutates: tuple[int | str, ...]


def name(target: Any) -> str:
    if isinstance(target, str):
        return target
    return getattr(target, "__name__", None) or str(target)


@functools.lru_cache(maxsize=4096)
def _facts(op: str, target: Any) -> Facts:
    declared = getattr(target, "dynamo_nb_facts", None)
    if declared is not None:
        return Facts(declared["may_raise"], False, False, declared["mutates"])
    short = name(target).split(".")[0]
    mutates: tuple[int | str, ...] = ()
    module = getattr(target, "__module__", "") or ""
    if isinstance(target, torch._ops.OpOverload):
        schema = target._schema
        mutates = tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
        short = schema.name.split("::")[-1]
    elif short in ("__setitem__", "setitem", "_index_put_impl_"):
        mutates = (0,)
    elif module in ("_operator", "operator"):
        mutates = (0,) if short in INPLACE_OPERATORS else ()
    elif short.startswith("__i") and short.endswith("__") and short[3:-2] not in ("nvert", "ndex", "ter", "nt"):
        mutates = (0,)
    elif short.endswith("_") and not short.endswith("__") and short not in NOT_INPLACE:
        mutates = (0,)
    unknown = op == "call_function" and not _is_torch(target)
    return Facts(short in MAY_RAISE or unknown, short in RANDOM or unknown, short in EFFECT or unknown, mutates)


def _is_torch(target: Any) -> bool:
    module = getattr(target, "__module__", None) or ""
    return module.split(".")[0] in ("torch", "_operator", "operator", "math", "builtins", "") or isinstance(target, torch._ops.OpOverloadPacket)


def facts(op: str, target: Any) -> Facts:
    return _facts(op, target)


INDEXING = frozenset({"getitem", "setitem", "__getitem__", "__setitem__"})
INTEGER_DIVISION = frozenset(
    """floor_divide floor_divide_ remainder remainder_ fmod fmod_ div_floor __floordiv__ __ifloordiv__ __rfloordiv__ __mod__ __imod__ __rmod__
    floordiv mod ifloordiv imod pow __pow__""".split()
)


def depends_on_values(target: Any, args: Any) -> bool:
    """Of an operation that may raise on values: can it with these operands? Indexing needs a tensor index, division integers."""
    short = name(target).split(".")[0]
    if short in INDEXING:
        return len(args) < 2 or any(True for _ in tensors(args[1] if isinstance(args[1], (tuple, list)) else [args[1]]))
    if short in INTEGER_DIVISION:
        return not any(isinstance(a, float) or (isinstance(a, torch.Tensor) and a.dtype.is_floating_point) for a in args)
    return True


def given_results(kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    yield from tensors(kwargs.get("out"))


def mutated_operands(facts: Facts, args: Any, kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for place in facts.mutates:
        if isinstance(place, int) and place < len(args):
            yield from tensors(args[place])
    yield from given_results(kwargs)
    if kwargs.get("inplace") is True and args:
        yield from tensors(args[0])


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
