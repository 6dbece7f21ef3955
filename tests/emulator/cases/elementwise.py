"""Elementwise operators, type promotion, reductions, casts and in-place writes."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 120
DTYPES = ("float32", "float32", "float64", "bfloat16", "float16", "int64", "int32", "bool", "uint8")
BINARY = ("a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** 2", "a == b", "a < b", "torch.maximum(a, b)", "torch.fmin(a, b)", "torch.atan2(a, b)", "a & b", "a << 1", "torch.logical_xor(a, b)",
          "torch.add(a, b, alpha=2)", "torch.div(a, b, rounding_mode='floor')", "torch.lerp(a, b, 0.3)", "torch.addcmul(a, a, b)", "torch.where(a > b, a, b)", "torch.hypot(a, b)", "torch.copysign(a, b)",
          "torch.isclose(a, b)", "torch.float_power(a, 2)", "torch.true_divide(a, 2)", "torch.remainder(a, 3)", "torch.gcd(a, b)", "torch.xlogy(a, b)", "torch.nextafter(a, b)", "a.add_(b)", "a.mul_(b)",
          "a.copy_(b)", "a.type_as(b)", "torch.result_type(a, b)", "torch.dist(a, b)", "torch.equal(a, b)", "torch.allclose(a, b)", "torch.stack([a, b])", "torch.cat([a, b])", "torch.ldexp(a, b)", "torch.heaviside(a, b)",
          "torch.rsub(a, b)", "1 - a", "2 ** a", "a.pow(b)", "torch.bitwise_or(a, b)", "torch.logaddexp(a, b)")  # fmt: skip
UNARY = ("exp", "log", "sqrt", "rsqrt", "sin", "tanh", "sigmoid", "relu", "abs", "neg", "sign", "floor", "round", "trunc", "frac", "erf", "reciprocal", "square", "isnan", "isfinite", "logical_not", "bitwise_not", "digamma", "lgamma", "nan_to_num", "positive", "deg2rad", "exp2", "log1p", "expm1", "acosh", "logit", "sinc", "i0", "signbit", "isinf", "asin")  # fmt: skip
ACTIVATIONS = ("relu", "gelu", "silu", "mish", "elu", "selu", "celu", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "softplus", "softsign", "tanhshrink", "softshrink", "hardshrink", "logsigmoid", "relu6", "glu")  # fmt: skip
REDUCTIONS = ("sum", "mean", "prod", "std", "var", "amax", "logsumexp", "all", "any", "nansum", "nanmean", "norm", "count_nonzero", "argmax", "cumsum", "var_mean", "std_mean", "softmax", "log_softmax", "max", "min")  # fmt: skip


def _any(draw: st.DrawFn, shape: tuple[int, ...], grad: bool | None = None) -> Input:
    dtype = draw(st.sampled_from(DTYPES))
    integral = dtype in ("int64", "int32", "uint8")
    values = (
        "index" if integral else "mask" if dtype == "bool" else draw(st.sampled_from(("normal", "positive")))
    )
    layout = draw(st.one_of(layouts(len(shape)), st.just("expanded")))
    return Input(shape, dtype, layout, draw(st.booleans()) if grad is None else grad, values, 5)


@st.composite
def _binary(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(0, 3))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5, 0))] * dims))
    other = tuple(draw(st.sampled_from((size, size, size, 1))) for size in shape)[
        draw(st.integers(0, dims)) :
    ]
    if not draw(st.integers(0, 9)):
        other = (*other, 4)
    code = draw(st.sampled_from(BINARY))
    a, b = _any(draw, shape), _any(draw, other)
    inputs = (("a", a), ("b", b)) if "b)" in code or " b" in code or "b]" in code else (("a", a),)
    return Case(code, inputs, backward=draw(backwards()))


@st.composite
def _unary(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(0, 4))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 0))] * dims))
    a = _any(draw, shape)
    name = draw(st.sampled_from(UNARY))
    kind = draw(st.sampled_from(("function", "function", "in-place", "activation", "cast", "clamp", "out")))
    if kind == "activation":
        name = draw(st.sampled_from(ACTIVATIONS))
        inplace = (
            ", inplace=True"
            if name in ("relu", "silu", "elu", "hardtanh", "leaky_relu") and draw(st.booleans())
            else ""
        )
        code = f"F.{name}(a * 1{inplace})"
    elif kind == "cast":
        code = f"a.to(torch.{draw(st.sampled_from((*DTYPES, 'complex64', 'float8_e4m3fn')))}, copy={draw(st.booleans())})"
    elif kind == "clamp":
        code = draw(
            st.sampled_from(
                (
                    "a.clamp(0, 1)",
                    "a.clamp(min=0)",
                    "a.clamp_(max=2.5)",
                    "torch.clamp(a)",
                    "a.clamp(a, a)",
                    "a.clip(1, 0)",
                )
            )
        )
    elif kind == "out":
        code = (
            f"torch.{name}(a, out=torch.empty({draw(st.sampled_from(('0', '0', '3', 'a.shape')))}, device=D))"
        )
        a = Input(a.shape, a.dtype, a.layout, False, a.values, a.below)
    elif kind == "in-place":
        code = f"a.{name}_()"
    else:
        code = f"torch.{name}(a)"
    return Case(code, (("a", a),), backward=draw(backwards()))


@st.composite
def _reduction(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(0, 4))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5, 0))] * dims))
    a = _any(draw, shape)
    name = draw(st.sampled_from(REDUCTIONS))
    dim = draw(st.integers(-dims - 1, dims))
    arguments = [f"dim={dim}"]
    if name in ("sum", "mean", "std", "var", "amax", "logsumexp", "nansum", "norm"):
        arguments = draw(st.sampled_from((arguments, [], [f"dim=({dim}, 0)"], [f"dim={list(range(dims))}"])))
    elif name in ("all", "any", "argmax", "count_nonzero", "prod", "max", "min"):
        arguments = draw(st.sampled_from((arguments, [])))
    arguments = list(arguments)
    if (
        arguments
        and name not in ("cumsum", "softmax", "log_softmax", "count_nonzero")
        and draw(st.booleans())
    ):
        arguments.append("keepdim=True")
    if name in ("sum", "mean", "prod", "nansum", "softmax", "cumsum") and draw(st.booleans()):
        arguments.append(f"dtype=torch.{draw(st.sampled_from(('float32', 'float64', 'int64')))}")
    return Case(f"a.{name}({', '.join(arguments)})", (("a", a),), backward=draw(backwards()))


@st.composite
def _foreach(draw: st.DrawFn) -> Case:
    shapes = draw(st.lists(st.sampled_from(((2, 3), (3,), (), (0,), (1, 2, 2))), min_size=1, max_size=3))
    inputs = tuple((f"a{n}", _any(draw, shape, grad=False)) for n, shape in enumerate(shapes))
    listed = "[" + ", ".join(name for name, _ in inputs) + "]"
    code = draw(
        st.sampled_from(
            (
                f"torch._foreach_add({listed}, {listed}, alpha=2)",
                f"torch._foreach_mul_({listed}, 2)",
                f"torch._foreach_norm({listed})",
                f"torch._foreach_div({listed}, {listed})",
                f"torch._foreach_addcmul({listed}, {listed}, {listed}, 0.5)",
                f"torch._foreach_sqrt({listed})",
                f"torch._foreach_zero_({listed})",
                f"torch._foreach_maximum({listed}, 0)",
                f"torch._foreach_copy_({listed}, {listed})",
                f"torch._foreach_lerp({listed}, {listed}, 0.3)",
                f"torch._foreach_pow({listed}, 2)",
                f"torch.nn.utils.get_total_norm({listed})",
                f"torch._utils._flatten_dense_tensors({listed})",
                f"torch._foreach_max({listed})",
            )
        )
    )
    return Case(code, inputs)


CASES = st.one_of(_binary(), _binary(), _unary(), _unary(), _reduction(), _reduction(), _foreach())
