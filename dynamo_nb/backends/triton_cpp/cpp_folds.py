"""How each reduction folds: C types, start values, steps and results of accumulators.

A fold has two stages: elements of a block accumulate in a part, parts are merged into a total. Sums of f32 and of half
types use blocks so short that a vector lane adds few numbers, and totals in f64; f64 totals carry their rounding errors
along. That is at least as exact as pairwise summation. In: a `Reduce`. Out: a `Fold`, whose functions give C text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from . import cpp_exprs as exprs
from .ir import DType, Reduce

Ref = Callable[[str], str]                  # a field's suffix -> the C lvalue (a scalar or an array's element)
Field = tuple[str, str, str]                # suffix, C type, start value
SIZES = {"f32": 4, "i32": 4, "u32": 4, "f64": 8, "i64": 8, "u64": 8}


@dataclasses.dataclass(frozen=True)
class Fold:
    """step(part, value, position) takes one element; join(part, part) and merge(total, part) take a whole part.

    operator: OpenMP's reduction that joins parts, None where it has none. blocked: parts must stay short.
    """

    part: tuple[Field, ...]
    total: tuple[Field, ...]
    step: Callable[[Ref, str, str], str]
    join: Callable[[str, str], str]
    merge: Callable[[Ref, Ref], str]
    result: Callable[[Ref], str]
    operator: str | None
    convert: Callable[[str], str]
    blocked: bool = False

    @property
    def lane_bytes(self) -> int:
        """Of a part's one field; 0 where parts are no lanes of vectors."""
        return SIZES.get(self.part[0][1], 0) if self.operator is not None else 0


def fold_of(reduce: Reduce, dtype: DType) -> Fold:
    """dtype: that of the buffer reduced into."""
    source = reduce.value.dtype
    if reduce.kind in ("argmax", "argmin"):
        return _position(reduce.kind, source, dtype)
    kind = reduce.kind
    if dtype is DType.b1:
        kind = {"max": "any", "sum": "any", "min": "all", "prod": "all"}.get(kind, kind)
    if kind in ("any", "all"):
        return _logical(kind, source, dtype)
    if kind in ("max", "min"):
        return _extreme(kind, source, dtype)
    if kind == "sum" and dtype.is_float:
        return _float_sum(source, dtype)
    assert kind in ("sum", "prod"), kind
    return _arithmetic(kind, source, dtype)


def _value(source: DType, dtype: DType, text: str) -> str:
    """The element in the accumulator's type: f32 for half types, unrounded."""
    return exprs.cast(source, DType.f32 if exprs.is_half(dtype) else dtype, text)


def _simple(kind: str, start: str, step: Callable[[str, str], str], convert: Callable[[str], str], result: Callable[[str], str], operator: str) -> Fold:
    field = (("", kind, start),)
    return Fold(
        field, field, lambda a, v, _: step(a(""), convert(v)), step, lambda a, b: step(a(""), b("")), lambda a: result(a("")), operator, convert,
    )


def _arithmetic(kind: str, source: DType, dtype: DType) -> Fold:
    sign = "+" if kind == "sum" else "*"
    register = exprs.register_type(dtype)
    wide = register if dtype.is_float else "u64" if dtype is DType.i64 else "u32"
    return _simple(
        wide, f"({wide}){0 if kind == 'sum' else 1}", lambda a, v: f"{a} {sign}= {v};", lambda v: f"({wide}){_value(source, dtype, v)}",
        lambda a: exprs.cast(DType.f32, dtype, a) if exprs.is_half(dtype) else f"({register}){a}", sign,
    )


def _logical(kind: str, source: DType, dtype: DType) -> Fold:
    sign, start = ("|", 0) if kind == "any" else ("&", 1)
    return _simple(
        "u8", f"(u8){start}", lambda a, v: f"{a} {sign}= {v};", lambda v: f"(u8){exprs.cast(source, DType.b1, v)}",
        lambda a: exprs.cast(DType.b1, dtype, f"({a} != 0)"), sign,
    )


def _extreme(kind: str, source: DType, dtype: DType) -> Fold:
    register = exprs.register_type(dtype)
    compare = ">" if kind == "max" else "<"
    if dtype.is_float:
        return _simple(
            register, f"({register}){'-' if kind == 'max' else ''}__builtin_inf()",
            lambda a, v: f"{{ const auto v = {v}, m = v {compare} {a} ? v : {a}; {a} = v == v ? m : v; }}", lambda v: _value(source, dtype, v),
            lambda a: exprs.cast(DType.f32, dtype, a) if exprs.is_half(dtype) else a, f"n{kind}_{register}",
        )
    return _simple(
        register, _least(dtype) if kind == "max" else _greatest(dtype), lambda a, v: f"{a} = {v} {compare} {a} ? {v} : {a};",
        lambda v: _value(source, dtype, v), lambda a: a, kind,
    )


def _least(dtype: DType) -> str:
    bits = dtype.itemsize * 8
    return f"({dtype.value}){exprs.integer(0 if dtype is DType.u8 else -(2 ** (bits - 1)))}"


def _greatest(dtype: DType) -> str:
    bits = dtype.itemsize * 8
    return f"({dtype.value}){exprs.integer(255 if dtype is DType.u8 else 2 ** (bits - 1) - 1)}"


def _float_sum(source: DType, dtype: DType) -> Fold:
    register = exprs.register_type(dtype)
    part: tuple[Field, ...] = (("", register, f"({register})0"),)

    def convert(value: str) -> str:
        return _value(source, dtype, value)

    def step(a: Ref, value: str, _: str) -> str:
        return f"{a('')} += {convert(value)};"

    def join(a: str, b: str) -> str:
        return f"{a} += {b};"

    if dtype is not DType.f64:
        return Fold(
            part, (("", "f64", "0.0"),), step, join, lambda t, a: f"{t('')} += (f64){a('')};",
            lambda t: exprs.cast(DType.f64, dtype, t("")), "+", convert, True,
        )

    def merge(t: Ref, a: Ref) -> str:       # the error of every addition, exactly (two-sum)
        total, error, x = t(""), t("c"), a("")
        return f"{{ const f64 s = {total} + {x}, z = s - {total}; {error} += ({total} - (s - z)) + ({x} - z); {total} = s; }}"

    return Fold(
        part, (("", "f64", "0.0"), ("c", "f64", "0.0")), step, join, merge,
        lambda t: f"(__builtin_fabs({t('')}) < __builtin_inf() ? {t('')} + {t('c')} : {t('')})", "+", convert, True,
    )


def _position(kind: str, source: DType, dtype: DType) -> Fold:
    register = exprs.register_type(source)
    if source.is_float:
        start = f"({register}){'-' if kind == 'argmax' else ''}__builtin_inf()"
    elif source is DType.b1:
        start = "false" if kind == "argmax" else "true"
    else:
        start = _least(source) if kind == "argmax" else _greatest(source)
    fields: tuple[Field, ...] = (("", register, start), ("i", "i64", "(i64)0"))

    def take(a: Ref, value: str, position: str) -> str:
        best, at = a(""), a("i")
        return f"{{ const b1 n = {better(kind, source, value, best)}; {best} = n ? {value} : {best}; {at} = n ? {position} : {at}; }}"

    return Fold(
        fields, fields, take, lambda a, v: "", lambda t, a: take(t, a(""), a("i")), lambda t: exprs.cast(DType.i64, dtype, t("i")), None, lambda v: v,
    )


def better(kind: str, source: DType, value: str, best: str) -> str:
    """Whether value displaces best: a NaN displaces every number, nothing displaces a NaN."""
    text = f"{value} {'>' if kind == 'argmax' else '<'} {best}"
    return f"({text}) | (({value} != {value}) & ({best} == {best}))" if source.is_float else text


def same(source: DType, value: str, best: str) -> str:
    return f"({value} == {best}) | (({value} != {value}) & ({best} != {best}))" if source.is_float else f"{value} == {best}"
