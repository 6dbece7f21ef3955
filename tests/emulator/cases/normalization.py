"""Batch, group, instance, layer, RMS and local response normalization, by function and by layer."""

from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 80
DTYPES = ("float32", "float32", "float64", "bfloat16")


def _image(draw: st.DrawFn, channels: int, dims: int, least: int = 1) -> Input:
    spatial = draw(st.tuples(*[st.integers(least, 5)] * dims))
    shape = (draw(st.sampled_from((1, 2, 3, 0))), channels, *spatial)
    return Input(shape, draw(st.sampled_from(DTYPES)), draw(layouts(len(shape))), draw(st.booleans()))


@st.composite
def _batch_norm(draw: st.DrawFn) -> Case:
    dims = draw(st.sampled_from((0, 1, 2, 2, 3)))
    channels = draw(st.integers(1, 4))
    x = _image(draw, channels, dims)
    wrong = draw(st.sampled_from((0,) * 7 + (1,)))
    parameter = Input(
        (channels,), x.dtype if x.dtype != "bfloat16" else draw(st.sampled_from(("float32", "bfloat16")))
    )
    statistic = Input((channels + wrong,), parameter.dtype, grad=False, values="positive")
    inputs = [("x", x)]
    running, affine, training = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    if running or wrong:
        inputs += [("m", statistic), ("v", statistic)]
    if affine:
        inputs += [("w", parameter), ("b", parameter)]
    names = [name if any(name == other for other, _ in inputs) else "None" for name in ("m", "v", "w", "b")]
    training = training or draw(st.booleans())
    code = f"F.batch_norm(x, {', '.join(names)}, training={training}, momentum=0.1)"
    return Case(code, tuple(inputs), backward=draw(backwards()))


@st.composite
def _layer(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    channels = draw(st.integers(1, 4))
    kind = draw(st.sampled_from(("BatchNorm", "BatchNorm", "InstanceNorm", "LazyBatchNorm")))
    arguments = "" if kind.startswith("Lazy") else f"{channels}, "
    setup = (
        f"layer = nn.{kind}{dims}d({arguments}affine={draw(st.booleans())}, "
        f"track_running_stats={draw(st.booleans())}, momentum={draw(st.sampled_from((0.1, None)))}).to(D)"
    )
    if draw(st.sampled_from((False, False, True))):
        setup += ".eval()"
    x = _image(draw, channels, dims)
    x = Input(x.shape, "float32", x.layout, x.grad)
    backward = draw(st.sampled_from(("none", "sum", "dense", "double")))
    autocast = backward != "double" and draw(st.sampled_from((False, False, True)))
    return Case("layer(x)", (("x", x),), setup, backward, autocast, values=not kind.startswith("Lazy"))


@st.composite
def _group_or_instance(draw: st.DrawFn) -> Case:
    groups, dims = draw(st.sampled_from((1, 2, 3))), draw(st.integers(0, 3))
    channels = groups * draw(st.integers(1, 2)) + draw(st.sampled_from((0,) * 6 + (1,)))
    x = _image(draw, channels, dims)
    affine = draw(st.booleans())
    inputs = [("x", x)]
    if affine:
        inputs += [("w", Input((channels,), x.dtype)), ("b", Input((channels,), x.dtype))]
    pair = "w, b" if affine else "None, None"
    if draw(st.booleans()):
        return Case(f"F.group_norm(x, {groups}, {pair})", tuple(inputs), backward=draw(backwards()))
    code = f"F.instance_norm(x, None, None, {pair})"
    return Case(code, tuple(inputs), backward=draw(backwards()))


@st.composite
def _trailing(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 4))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5, 0))] * dims))
    x = Input(shape, draw(st.sampled_from(DTYPES)), draw(layouts(dims)), draw(st.booleans()))
    taken = draw(st.integers(1, dims))
    normalized = list(shape[-taken:])
    if draw(st.sampled_from((False,) * 6 + (True,))):
        normalized[-1] += 1
    inputs = [("x", x)]
    affine = draw(st.sampled_from(("none", "weight", "both")))
    if affine != "none":
        inputs.append(("w", Input(tuple(normalized), x.dtype)))
    if affine == "both":
        inputs.append(("b", Input(tuple(normalized), x.dtype)))
    if draw(st.booleans()):
        arguments = ", ".join(name for name, _ in inputs[1:])
        code = f"F.layer_norm(x, {normalized}{', ' + arguments if arguments else ''})"
    else:
        code = f"F.rms_norm(x, {normalized}{', w' if affine != 'none' else ''})"
        inputs = inputs[:2]
    return Case(code, tuple(inputs), backward=draw(backwards()))


@st.composite
def _others(draw: st.DrawFn) -> Case:
    x = _image(draw, 4, 2)
    dim = draw(st.sampled_from((1, -1, 0, 5)))
    code = draw(
        st.sampled_from(
            (
                f"F.normalize(x, p={draw(st.sampled_from((1, 2, 3.0)))}, dim={dim})",
                f"F.local_response_norm(x, {draw(st.integers(1, 5))})",
                f"x.renorm(2, {dim}, 1.0)",
                f"F.softmax(x, {dim})",
                f"F.log_softmax(x, {dim}, dtype=torch.float32)",
                f"F.softmin(x, {dim})",
                f"F.gumbel_softmax(x, dim={dim}).shape",
            )
        )
    )
    return Case(code, (("x", x),), backward=draw(backwards()))


CASES = st.one_of(_batch_norm(), _layer(), _group_or_instance(), _trailing(), _others())
