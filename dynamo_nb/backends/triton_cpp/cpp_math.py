"""Vectorisable elementary functions as C text: `library(code)` gives the definitions that `code` mentions.

f32 functions are straight-line code (selects, no branches or tables), so a compiler vectorises loops around them.
The often used ones stay in f32 (exp, exp2, expm1, log, sigmoid, tanh, erf); the others compute in f64, where plain
series reach f32 accuracy with room to spare. Coefficients are minimax fits or Taylor terms of the named function.
f64 functions, lgamma, atan2 and fmod are the C library's.
"""

from __future__ import annotations

import functools
import math
import re

import numpy as np


def literal(value: float, kind: str) -> str:
    """A C literal of kind f32 or f64 for that float, exact."""
    suffix = "f" if kind == "f32" else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    with np.errstate(over="ignore", under="ignore"):
        value = float(np.float32(value)) if kind == "f32" else float(value)
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    return f"{value.hex()}{suffix}"


def _horner(coefficients: list[float], variable: str, kind: str = "f64") -> str:
    """The polynomial, lowest power first, as nested fused multiply-adds."""
    result = literal(coefficients[-1], kind)
    for c in reversed(coefficients[:-1]):
        result = f"FMA_{kind}({result}, {variable}, {literal(c, kind)})"
    return result


def _taylor(first: int, last: int, step: int, signs: bool = False) -> list[float]:
    return [(-1.0 if signs and (k - first) // step % 2 else 1.0) / math.factorial(k) for k in range(first, last + 1, step)]


EXP = [1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166826605796814, 0.008368677459657192, 0.001382073387503624]
EXPM1 = [0.4999999701976776, 0.1666654646396637, 0.04166743531823158, 0.00836626160889864, 0.0013870657421648502]
# (exp(r) - 1 - r) / r², both |r| <= log(2) / 2
SINE = [1.0, -0.1666666716337204, 0.008333379402756691, -0.00019853065896313637, 2.8325487164693186e-06]
COSINE = [1.0, -0.5, 0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05]
# sin(r) / r and cos(r) in r², |r| <= π/4
LOG = [
    0.3333331042070362, -0.24999986728528698, 0.20002228166465397, -0.16669243770109193, 0.1421861719803593, -0.12384461635189489,
    0.11873426298797302, -0.1178925050657726, 0.06913567156368389,
]   # (log(1 + r) - r + r²/2) / r³
EXP2 = [math.log(2) ** k * c for k, c in enumerate(EXP)]
ERF_SMALL = [
    1.128379167058022, -0.376126384346528, 0.11283781974138958, -0.026865400044439002, 0.005220945439900343, -0.0008482828954307115,
    0.0001125694872944603, -9.641518493660505e-06,
]   # erf(x) / x in x², |x| <= 1
ERF_LARGE = [
    -0.00018803966026949867, 1.1295784219207532, 0.6332198971443618, 0.10841857351454803, -0.025208254626820588, 0.004204561189056354,
    -0.0004413362564206247, 2.168684104971277e-05,
]   # -log(erfc(x)), 1 <= x <= 4.1
ERFCX = [
    1.2530080589463715, -0.13562111270276866, -0.047562384265194824, 0.12964541503851976, -0.11927162075392694, 0.06830594031864733,
    -0.023787751234614265, 0.0025298266402803537, 0.0019504142056254923, -0.0007416200057499892, -0.00018306316286030642, 3.520507401083993e-05,
]   # exp(x²) erfc(x) (1 + 2 x) in (x - 3) / (x + 3)
ASIN = [
    0.9999999999849033, 0.1666666742165446, 0.07499938199912178, 0.04466203533534495, 0.030092211670158072, 0.02471152855111458,
    0.007223869799215474, 0.03495150654320424,
]   # asin(x) / x in x², |x| <= 0.5
ATAN = [
    0.9999999999412321, -0.33333331571110436, 0.1999991204755272, -0.14283980701762092, 0.11093240815211791, -0.08980237072494594,
    0.07245712467142192, -0.05427899827408058, 0.03420947646350911, -0.016111581325049754, 0.0048508913745418155, -0.0006847846742496698,
]   # atan(x) / x in x², |x| <= 1
ATANH = [1.0 / k for k in range(3, 19, 2)]
# 1/(2π) in pieces of 29 bits and a rest: a piece times an f32 is exact in f64, so is that less whole turns.
TURN = ["0x1.45f306dp-3", "0x1.9391054p-32", "0x1.4fe13abp-61", "0x1.d1f534dp-90", "0x1.b81b6c5p-119", "0x1.5993c439041fep-150"]

PRELUDE = """\
typedef float f32; typedef double f64; typedef bool b1;
typedef __INT8_TYPE__ i8; typedef __INT16_TYPE__ i16; typedef __INT32_TYPE__ i32; typedef __INT64_TYPE__ i64;
typedef __UINT8_TYPE__ u8; typedef __UINT16_TYPE__ u16; typedef __UINT32_TYPE__ u32; typedef __UINT64_TYPE__ u64;
#define INLINE static inline __attribute__((always_inline))
#ifdef __AVX__
#define VECTOR 32 // bytes of a vector register; with AVX-512 too, where two of these do as well
#else
#define VECTOR 16
#endif
#if defined(__FMA__) || defined(__aarch64__)
#define FMA_f32(a, b, c) __builtin_fmaf(a, b, c)
#define FMA_f64(a, b, c) __builtin_fma(a, b, c)
#else
#define FMA_f32(a, b, c) ((a) * (b) + (c))
#define FMA_f64(a, b, c) ((a) * (b) + (c))
#endif
INLINE u32 bits_f32(f32 x) { u32 r; __builtin_memcpy(&r, &x, 4); return r; }
INLINE f32 float_u32(u32 x) { f32 r; __builtin_memcpy(&r, &x, 4); return r; }
INLINE u64 bits_f64(f64 x) { u64 r; __builtin_memcpy(&r, &x, 8); return r; }
INLINE f64 float_u64(u64 x) { f64 r; __builtin_memcpy(&r, &x, 8); return r; }
"""


def _logarithm(name: str, of: str) -> str:
    """A logarithm in f32, where `of` gives that of (1 + r)·2^e, sqrt(1/2) <= 1 + r < sqrt(2)."""
    return f"""INLINE f32 {name}_f32(f32 x) {{
    b1 tiny = x < 0x1p-126f;
    u32 d = bits_f32(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
    f32 e = (f32)((i32)d >> 23) - (tiny ? 23.0f : 0.0f), r = float_u32((d & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    f32 y = {of};
    y = x < __builtin_inff() ? y : x;
    y = x > 0.0f ? y : __builtin_nanf("");
    return x == 0.0f ? -__builtin_inff() : y;
}}"""


# Cores in f64 for f32 functions: arguments come from f32 values, results need about 30 good bits.
CORES = {
    "expd": f"""INLINE f64 expd(f64 x) {{
    x = x < -200.0 ? -200.0 : x; x = x > 200.0 ? 200.0 : x;
    f64 k = x * {literal(1 / math.log(2), "f64")} + 0x1.8p52, n = k - 0x1.8p52;
    f64 r = FMA_f64(n, -0x1.62e42fefap-1, x); r = FMA_f64(n, -0x1.cf79abc9e3b3ap-40, r);
    f64 p = {_horner([1.0, *_taylor(1, 11, 1)], "r")};
    return p * float_u64((bits_f64(k) + 1023) << 52);
}}""",
    "logd": f"""INLINE f64 logd(f64 x) {{
    u64 d = bits_f64(x) - 0x3fe6a09e00000000ull;
    f64 e = float_u64((d >> 52 ^ 0x800) + 0x4330000000000000ull) - (0x1p52 + 0x800);
    f64 m = float_u64((d & 0xfffffffffffffull) + 0x3fe6a09e00000000ull);
    f64 f = (m - 1.0) / (m + 1.0), z = f * f, h = f + f;
    f64 p = {_horner(ATANH, "z")};
    f64 y = FMA_f64(h * z, p, h);
    y = FMA_f64(e, {literal(math.log(2), "f64")}, y);
    y = x < __builtin_inf() ? y : x;
    y = x > 0.0 ? y : __builtin_nan("");
    return x == 0.0 ? -__builtin_inf() : y;
}}""",
    "turnd": f"INLINE f64 turnd(f64 x) {{ // x in quarters of a turn, less whole turns\n    f64 s = x * {TURN[-1]}, q;\n"
    + "".join(f"    q = x * {c}; s += q - __builtin_rint(q);\n" for c in reversed(TURN[:-1])) + "    return 4.0 * s;\n}",
    "sined": f"""INLINE f64 sined(f64 r) {{ f64 z = r * r; return r * ({_horner(SINE, "z")}); }}""",
    "cosined": f"""INLINE f64 cosined(f64 r) {{ f64 z = r * r; return {_horner(COSINE, "z")}; }}""",
    "sine_f32": f"""INLINE f32 sine_f32(f32 r) {{ f32 z = r * r; return FMA_f32(r * z, {_horner(SINE[1:], "z", "f32")}, r); }}""",
    "cosine_f32": f"""INLINE f32 cosine_f32(f32 r) {{ f32 z = r * r; return {_horner(COSINE, "z", "f32")}; }}""",
    "asind": f"""INLINE f64 asind(f64 x) {{ f64 z = x * x; return x * ({_horner(ASIN, "z")}); }}""",
    "scale_f32": """INLINE f32 scale_f32(f32 p, f32 k) { // p·2^n where k = n + 254 + 1.5·2^23; in two steps, for denormals and the largest
    u32 h = bits_f32(k) << 22 & 0xff800000u;
    return p * float_u32(h) * float_u32((bits_f32(k) << 23) - h);
}""",
    "expcore": f"""INLINE f32 expcore(f32 r) {{ return {_horner(EXP, "r", "f32")}; }}""",
    "expm1core": f"""INLINE f32 expm1core(f32 r) {{ return FMA_f32(r * r, {_horner(EXPM1, "r", "f32")}, r); }}""",
    "logrest": f"""INLINE f32 logrest(f32 r) {{ f32 z = r * r; return FMA_f32(-0.5f, z, r * z * ({_horner(LOG, "r", "f32")})); }}""",
    "logcore": """INLINE f32 logcore(f32 r, f32 e) { // log(1 + r) + e·log 2
    return FMA_f32(e, 0x1.63p-1f, r + FMA_f32(e, -0x1.bd0106p-13f, logrest(r)));
}""",
    "reduce_ln2": """INLINE f32 reduce_ln2(f32 x, f32 n) { // x - n·log 2
    return FMA_f32(n, 0x1.05c61p-29f, FMA_f32(n, -0x1.62e43p-1f, x));
}""",
}

F32 = {
    # Rounded by adding 1.5·2^23 and an exponent's offset (254 = 2·127, 126): the sum's bits, shifted, are the power of two.
    "exp_f32": """INLINE f32 exp_f32(f32 x) {
    x = x < -104.0f ? -104.0f : x; x = x > 89.0f ? 89.0f : x;
    f32 k = FMA_f32(x, 0x1.715476p+0f, 0x1.8001fcp23f);
    return scale_f32(expcore(reduce_ln2(x, k - 0x1.8001fcp23f)), k);
}""",
    "exp2_f32": """INLINE f32 exp2_f32(f32 x) {
    x = x < -150.5f ? -150.5f : x; x = x > 128.0f ? 128.0f : x;
    f32 k = x + 0x1.8001fcp23f, r = x - (k - 0x1.8001fcp23f);
    return scale_f32(expcore(r * 0x1.62e43p-1f), k);
}""",
    "expm1_f32": """INLINE f32 expm1_f32(f32 x) {
    f32 a = x < -30.0f ? -30.0f : x; a = a > 89.0f ? 89.0f : a;
    f32 k = FMA_f32(a, 0x1.715476p+0f, 0x1.8000fcp23f);
    f32 q = expm1core(reduce_ln2(a, k - 0x1.8000fcp23f));
    f32 half = float_u32(bits_f32(k) << 23); // 2^n / 2: 2^128 is out of range
    f32 y = FMA_f32(half, q, half - 0.5f);
    return x == 0.0f ? x : y + y;
}""",
    "log_f32": _logarithm("log", "logcore(r, e)"),
    "log2_f32": _logarithm("log2", "e + FMA_f32(r, 0x1.715476p+0f, FMA_f32(r, 0x1.4ae0cp-26f, logrest(r) * 0x1.715476p+0f))"),
    "log10_f32": _logarithm(
        "log10", "FMA_f32(e, 0x1.344p-2f, FMA_f32(r, 0x1.bcb7b2p-2f, FMA_f32(e, 0x1.3509f8p-18f, FMA_f32(r, -0x1.5b235ep-27f, logrest(r) * 0x1.bcb7b2p-2f))))",
    ),
    "sigmoid_f32": """INLINE f32 sigmoid_f32(f32 x) { // as eager, 0 where exp(-x) overflows
    x = x < -89.0f ? -89.0f : x; x = x > 30.0f ? 30.0f : x;
    f32 k = FMA_f32(x, -0x1.715476p+0f, 0x1.8000fcp23f);
    f32 half = expcore(reduce_ln2(-x, k - 0x1.8000fcp23f)) * float_u32(bits_f32(k) << 23);
    return 1.0f / FMA_f32(half, 2.0f, 1.0f);
}""",
    "tanh_f32": """INLINE f32 tanh_f32(f32 x) {
    f32 a = __builtin_fabsf(x); a = a > 10.0f ? 10.0f : a;
    f32 k = FMA_f32(a, 0x1.715476p+1f, 0x1.8000fcp23f);
    f32 q = expm1core(reduce_ln2(a + a, k - 0x1.8000fcp23f));
    f32 half = float_u32(bits_f32(k) << 23), h = FMA_f32(half, q, half - 0.5f);
    return float_u32(bits_f32(h / (h + 1.0f)) | (bits_f32(x) & 0x80000000u));
}""",
    "erf_f32": f"""INLINE f32 erf_f32(f32 x) {{
    f32 a = __builtin_fabsf(x), z = x * x; a = a > 4.0f ? 4.0f : a;
    f32 s = x * ({_horner(ERF_SMALL, "z", "f32")});
    f32 g = {_horner([-c / math.log(2) for c in ERF_LARGE], "a", "f32")};
    f32 k = g + 0x1.8p23f, r = g - (k - 0x1.8p23f); // -26 <= g < 0: 2^g is in range
    f32 e = float_u32(bits_f32({_horner(EXP2, "r", "f32")}) + (bits_f32(k) << 23));
    f32 l = __builtin_copysignf(1.0f - e, x);
    return __builtin_fabsf(x) >= 1.0f ? l : s; // s if NaN
}}""",
    "erfc_f32": f"""INLINE f32 erfc_f32(f32 x) {{
    f64 a = __builtin_fabsf(x); a = a > 11.0 ? 11.0 : a;
    f64 t = (a - 3.0) / (a + 3.0);
    f64 y = expd(-a * a) * ({_horner(ERFCX, "t")}) / (1.0 + 2.0 * a);
    return (f32)(x < 0.0f ? 2.0 - y : y);
}}""",
    "log1p_f32": """INLINE f32 log1p_f32(f32 x) {
    f32 u = 1.0f + x, b = u - x, c = (x - (u - b)) + (1.0f - b); // u + c = 1 + x, exactly
    u32 d = bits_f32(u) - 0x3f3504f3u;
    i32 n = (i32)d >> 23;
    f32 r = float_u32((d & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    r = FMA_f32(0.5f * c, float_u32(0x40000000u - ((u32)n << 23)), r); // c / 2^n, of which the largest has no bits
    f32 y = logcore(r, (f32)n);
    y = x < __builtin_inff() ? y : x;
    y = u > 0.0f ? y : __builtin_nanf("");
    return x == 0.0f ? x : u == 0.0f ? -__builtin_inff() : y;
}""",
    "sin_f32": """INLINE f32 sin_f32(f32 x) {
    f64 t = turnd(x), k = t + 0x1.8p52;
    f32 r = (f32)((t - (k - 0x1.8p52)) * 0x1.921fb54442d18p+0);
    u32 n = (u32)bits_f64(k);
    f32 y = n & 1 ? cosine_f32(r) : sine_f32(r);
    return x == 0.0f ? x : float_u32(bits_f32(y) ^ (n & 2) << 30);
}""",
    "cos_f32": """INLINE f32 cos_f32(f32 x) {
    f64 t = turnd(x), k = t + 0x1.8p52;
    f32 r = (f32)((t - (k - 0x1.8p52)) * 0x1.921fb54442d18p+0);
    u32 n = (u32)bits_f64(k);
    f32 y = n & 1 ? sine_f32(r) : cosine_f32(r);
    return float_u32(bits_f32(y) ^ (n + 1 & 2) << 30);
}""",
    "tan_f32": """INLINE f32 tan_f32(f32 x) {
    f64 t = turnd(x), k = t + 0x1.8p52, r = (t - (k - 0x1.8p52)) * 0x1.921fb54442d18p+0;
    f64 s = sined(r), c = cosined(r);
    b1 odd = bits_f64(k) & 1;
    return x == 0.0f ? x : (f32)((odd ? -c : s) / (odd ? s : c));
}""",
    "sinh_f32": f"""INLINE f32 sinh_f32(f32 x) {{
    f64 a = __builtin_fabsf(x), z = a * a, e = expd(a);
    f64 s = a * ({_horner(_taylor(1, 11, 2), "z")});
    return __builtin_copysignf((f32)(a < 1.0 ? s : 0.5 * (e - 1.0 / e)), x);
}}""",
    "cosh_f32": "INLINE f32 cosh_f32(f32 x) { f64 e = expd(x); return (f32)(0.5 * (e + 1.0 / e)); }",
    "asin_f32": """INLINE f32 asin_f32(f32 x) {
    f64 a = __builtin_fabsf(x); b1 big = a > 0.5;
    f64 s = asind(big ? __builtin_sqrt(0.5 - 0.5 * a) : a);
    return __builtin_copysignf((f32)(big ? 0x1.921fb54442d18p+0 - 2.0 * s : s), x);
}""",
    "acos_f32": """INLINE f32 acos_f32(f32 x) {
    f64 a = __builtin_fabsf(x); b1 big = a > 0.5;
    f64 s = asind(big ? __builtin_sqrt(0.5 - 0.5 * a) : (f64)x), d = s + s;
    return (f32)(big ? (x < 0.0f ? 0x1.921fb54442d18p+1 - d : d) : 0x1.921fb54442d18p+0 - s);
}""",
    "atan_f32": f"""INLINE f32 atan_f32(f32 x) {{
    f64 a = __builtin_fabsf(x); b1 big = a > 1.0;
    f64 b = big ? 1.0 / a : a, z = b * b, s = b * ({_horner(ATAN, "z")});
    return __builtin_copysignf((f32)(big ? 0x1.921fb54442d18p+0 - s : s), x);
}}""",
    "asinh_f32": """INLINE f32 asinh_f32(f32 x) {
    f64 a = __builtin_fabsf(x), z = a * a;
    f64 y = logd(1.0 + (a + z / (1.0 + __builtin_sqrt(1.0 + z))));
    y = a < 0x1p-12 ? a - a * z * 0x1.5555555555555p-3 : y;
    return __builtin_copysignf((f32)(a < __builtin_inf() ? y : a), x);
}""",
    "acosh_f32": "INLINE f32 acosh_f32(f32 x) { f64 d = x; f64 y = logd(d + __builtin_sqrt(d * d - 1.0)); "
    "return (f32)(x >= 1.0f ? y : __builtin_nan(\"\")); }",
    "atanh_f32": """INLINE f32 atanh_f32(f32 x) {
    f64 a = __builtin_fabsf(x), y = 0.5 * logd((1.0 + a) / (1.0 - a));
    return __builtin_copysignf((f32)(a < 0x1p-12 ? a + a * a * a * 0x1.5555555555555p-2 : y), x);
}""",
    "pow_f32": """INLINE f32 pow_f32(f32 x, f32 y) {
    f64 a = __builtin_fabsf(x), d = y;
    f64 r = expd(d * logd(a));
    r = (a == 1.0 && (y == y || x == 1.0f) && __builtin_fabs(d) == __builtin_inf()) || x == 1.0f || y == 0.0f ? 1.0 : r;
    b1 whole = __builtin_rint(d) == d, odd = whole && __builtin_rint(d * 0.5) != d * 0.5;
    r = odd && __builtin_signbit(x) ? -r : r;
    return x < 0.0f && !whole && a < __builtin_inf() ? __builtin_nanf("") : (f32)r;
}""",
    "sqrt_f32": "INLINE f32 sqrt_f32(f32 x) { return __builtin_sqrtf(x); }",
    "rsqrt_f32": "INLINE f32 rsqrt_f32(f32 x) { return 1.0f / __builtin_sqrtf(x); }",
    "hypot_f32": """INLINE f32 hypot_f32(f32 x, f32 y) {
    f64 a = x, b = y; b1 infinite = __builtin_fabs(a) == __builtin_inf() || __builtin_fabs(b) == __builtin_inf();
    return infinite ? __builtin_inff() : (f32)__builtin_sqrt(a * a + b * b);
}""",
    "lgamma_f32": 'extern "C" float lgammaf_r(float, int *);\nINLINE f32 lgamma_f32(f32 x) { int s; return lgammaf_r(x, &s); }',
    "atan2_f32": "INLINE f32 atan2_f32(f32 y, f32 x) { return __builtin_atan2f(y, x); }",
}

_LIBM = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sqrt".split(), "pow atan2 hypot".split(),
)
F64 = {f"{n}_f64": f"INLINE f64 {n}_f64(f64 x) {{ return __builtin_{n}(x); }}" for n in _LIBM[0]}
F64 |= {f"{n}_f64": f"INLINE f64 {n}_f64(f64 x, f64 y) {{ return __builtin_{n}(x, y); }}" for n in _LIBM[1]}
F64 |= {
    "rsqrt_f64": "INLINE f64 rsqrt_f64(f64 x) { return 1.0 / __builtin_sqrt(x); }",
    "sigmoid_f64": "INLINE f64 sigmoid_f64(f64 x) { return 1.0 / (1.0 + __builtin_exp(-x)); }",
    "lgamma_f64": 'extern "C" double lgamma_r(double, int *);\nINLINE f64 lgamma_f64(f64 x) { int s; return lgamma_r(x, &s); }',
}


def _rounded(kind: str, c: str) -> dict[str, str]:
    """floor, fmod and their like for f32 (suffix f) and f64 (none); python: a - b·floor(a / b) without its rounding."""
    return {
        f"mod_{kind}": f"""INLINE {kind} mod_{kind}({kind} a, {kind} b) {{
    {kind} m = __builtin_fmod{c}(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}}""",
        f"fmod_{kind}": f"INLINE {kind} fmod_{kind}({kind} a, {kind} b) {{ return __builtin_fmod{c}(a, b); }}",
        f"floordiv_{kind}": f"""INLINE {kind} floordiv_{kind}({kind} a, {kind} b) {{
    {kind} m = __builtin_fmod{c}(a, b), q = (a - m) / b;
    q = m != 0 && (m < 0) != (b < 0) ? q - 1 : q;
    {kind} f = __builtin_floor{c}(q);
    f = q - f > ({kind})0.5 ? f + 1 : f;
    return b == 0 ? a / b : q != 0 ? f : __builtin_copysign{c}(({kind})0, a / b);
}}""",
        f"max_{kind}": f"INLINE {kind} max_{kind}({kind} a, {kind} b) {{ {kind} m = a < b ? b : a; return b == b ? m : b; }}",
        f"min_{kind}": f"INLINE {kind} min_{kind}({kind} a, {kind} b) {{ {kind} m = a > b ? b : a; return b == b ? m : b; }}",
        f"fmax_{kind}": f"INLINE {kind} fmax_{kind}({kind} a, {kind} b) {{ {kind} m = a < b ? b : a; return a == a ? m : b; }}",
        f"fmin_{kind}": f"INLINE {kind} fmin_{kind}({kind} a, {kind} b) {{ {kind} m = a > b ? b : a; return a == a ? m : b; }}",
        f"sign_{kind}": f"INLINE {kind} sign_{kind}({kind} a) {{ return a > 0 ? ({kind})1 : a < 0 ? ({kind})-1 : ({kind})0; }}",
        f"i32_of_{kind}": f"""INLINE i32 i32_of_{kind}({kind} a) {{ // as cvttss2si, which gives the least integer out of range
    return a {'>= -2147483648.0f' if kind == 'f32' else '> -2147483649.0'} && a < 2147483648.0{c} ? (i32)a : (i32)0x80000000u;
}}""",
        f"i64_of_{kind}": f"""INLINE i64 i64_of_{kind}({kind} a) {{
    return a >= -0x1p63{c} && a < 0x1p63{c} ? (i64)a : (i64)(1ull << 63);
}}""",
    }


FLOAT = _rounded("f32", "f") | _rounded("f64", "")
FLOAT |= {
    f"floordiv_{half}": f"""INLINE f32 floordiv_{half}(f32 a, f32 b) {{ // as eager: every step rounded
    f32 m = __builtin_fmodf(a, b), q = round_{half}(round_{half}(a - m) / b);
    q = m != 0 && (m < 0) != (b < 0) ? round_{half}(q - 1) : q;
    f32 f = __builtin_floorf(q);
    f = q - f > 0.5f ? round_{half}(f + 1) : f;
    return b == 0 ? round_{half}(a / b) : q != 0 ? f : __builtin_copysignf(0, a / b);
}}"""
    for half in ("f16", "bf16")
}

INTEGER = {
    "neg_int": "template <class T> INLINE T neg_int(T a) { return (T)(0 - (u64)a); }",
    "abs_int": "template <class T> INLINE T abs_int(T a) { return a < 0 ? neg_int(a) : a; }",
    "truncdiv_int": "template <class T> INLINE T truncdiv_int(T a, T b) { return b == 0 ? (T)0 : b == (T)-1 && (T)-1 < 0 ? neg_int(a) : (T)(a / b); }",
    "fmod_int": "template <class T> INLINE T fmod_int(T a, T b) { return b == 0 || (b == (T)-1 && (T)-1 < 0) ? (T)0 : (T)(a % b); }",
    "floordiv_int": """template <class T> INLINE T floordiv_int(T a, T b) {
    T m = fmod_int(a, b), q = truncdiv_int(a, b);
    return m != 0 && (m < 0) != (b < 0) ? (T)(q - 1) : q;
}""",
    "mod_int": "template <class T> INLINE T mod_int(T a, T b) { T m = fmod_int(a, b); return m != 0 && (m < 0) != (b < 0) ? (T)(m + b) : m; }",
    "sign_int": "template <class T> INLINE T sign_int(T a) { return (T)((a > 0) - (a < 0)); }",
    "shl_int": "template <class T> INLINE T shl_int(T a, T b) { return b < 0 || (u64)b >= sizeof(T) * 8 ? (T)0 : (T)((u64)a << (b & 63)); }",
    "shr_int": "template <class T> INLINE T shr_int(T a, T b) { return b < 0 || (u64)b >= sizeof(T) * 8 ? (T)(a < 0 ? -1 : 0) : (T)(a >> (b & 63)); }",
    "pow_int": """template <class T> INLINE T pow_int(T a, T b) {
    if (b < 0) return a == 1 || (a == (T)-1 && b % 2 == 0) ? (T)1 : a == (T)-1 ? (T)-1 : (T)0;
    u64 r = 1, f = (u64)a;
    for (; b; b >>= 1, f *= f) r *= b & 1 ? f : 1;
    return (T)r;
}""",
}

# f16 and bf16: u16 in memory, f32 in registers. round_* gives the f32 that is the nearest f16 (bf16).
HALF = {
    "f32_of_f16": """INLINE f32 f32_of_f16(u16 h) {
    u32 a = (u32)(h & 0x7fff) << 13;
    u32 r = bits_f32(float_u32(a) * 0x1p112f) | (a >= 0x0f800000u ? 0x7f800000u : 0u);
    return float_u32(r | (u32)(h & 0x8000) << 16);
}""",
    "f16_of_f32": """INLINE u16 f16_of_f32(f32 x) {
    u32 w = bits_f32(x), a = w & 0x7fffffffu;
    u32 n = ((a + 0xfff + (a >> 13 & 1)) >> 13) - (112 << 10);
    n = n > 0x7c00 ? 0x7c00 : n;
    u32 d = bits_f32(float_u32(a) + 0.5f) - 0x3f000000u;
    u32 r = a < 0x38800000u ? d : a > 0x7f800000u ? 0x7e00u : n;
    return (u16)(r | (w >> 16 & 0x8000));
}""",
    "round_f16": """INLINE f32 round_f16(f32 x) {
    u32 w = bits_f32(x), a = w & 0x7fffffffu;
    u32 n = (a + 0xfff + (a >> 13 & 1)) & ~0x1fffu;
    n = n >= 0x47800000u ? 0x7f800000u : n;
    u32 d = bits_f32(float_u32(a) + 0.5f - 0.5f);
    u32 r = a < 0x38800000u ? d : a > 0x7f800000u ? a : n;
    return float_u32(r | (w & 0x80000000u));
}""",
    "f32_of_bf16": "INLINE f32 f32_of_bf16(u16 h) { return float_u32((u32)h << 16); }",
    "bf16_of_f32": "INLINE u16 bf16_of_f32(f32 x) { u32 a = bits_f32(x); return x != x ? (u16)0x7fc0 : (u16)((a + 0x7fff + (a >> 16 & 1)) >> 16); }",
    "round_bf16": "INLINE f32 round_bf16(f32 x) { u32 a = bits_f32(x); return x != x ? x : float_u32((a + 0x7fff + (a >> 16 & 1)) & 0xffff0000u); }",
}

# Reductions that OpenMP's simd lacks: extremes that keep NaN.
DECLARED = {
    f"n{name}_{kind}": f"#pragma omp declare reduction(n{name}_{kind} : {kind} : omp_out = {name}_{kind}(omp_in, omp_out)) "
    f"initializer(omp_priv = {sign}__builtin_inf())"
    for kind in ("f32", "f64") for name, sign in (("max", "-"), ("min", ""))
}

INDEX = {
    "floor_div": "INLINE i64 floor_div(i64 a, i64 b) { i64 q = a / b; return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q; }",
    "floor_mod": "INLINE i64 floor_mod(i64 a, i64 b) { i64 m = a % b; return m != 0 && (m < 0) != (b < 0) ? m + b : m; }",
    "index_min": "INLINE i64 index_min(i64 a, i64 b) { return a < b ? a : b; }",
    "index_max": "INLINE i64 index_max(i64 a, i64 b) { return a > b ? a : b; }",
    "index_pow": "INLINE i64 index_pow(i64 a, i64 b) { i64 r = 1; for (; b > 0; b--) r *= a; return r; }",
}

# Of one check: its note in memory (failed, index, size), shared by threads, and the largest place seen, as an unsigned number.
CHECKS = {
    "note": """INLINE void note(i64 *slot, u64 place, i64 size, b1 wraps) {
    if (place < (u64)size || __atomic_exchange_n(slot, 1, __ATOMIC_RELAXED)) return;
    slot[1] = wraps && (i64)place < 0 ? (i64)place - size : (i64)place;
    slot[2] = size;
}""",
}

FUNCTIONS: dict[str, str] = CORES | F32 | F64 | FLOAT | INTEGER | HALF | DECLARED | INDEX | CHECKS
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@functools.cache
def _needs(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(w for w in _WORD.findall(FUNCTIONS[name]) if w in FUNCTIONS and w != name))


def library(code: str) -> str:
    """The definitions of every function that the code calls, callees first, after the types they use."""
    chosen: dict[str, None] = {}

    def choose(name: str) -> None:
        if name not in chosen:
            for other in _needs(name):
                choose(other)
            chosen[name] = None

    for word in dict.fromkeys(_WORD.findall(code)):
        if word in FUNCTIONS:
            choose(word)
    return PRELUDE + "\n".join(FUNCTIONS[name] for name in chosen) + "\n"
