"""Pooling of every kind, unpooling, padding and pixel shuffles."""

from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 80
DTYPES = ("float32", "float32", "float64", "bfloat16")


def _image(draw: st.DrawFn, dims: int, least: int = 3, most: int = 8) -> Input:
    spatial = draw(st.tuples(*[st.integers(least, most)] * dims))
    front = draw(st.sampled_from(((2, 3), (1, 2), (3,), (0, 2), (2, 0))))
    shape = (*front, *spatial)
    return Input(shape, draw(st.sampled_from(DTYPES)), draw(layouts(len(shape))), draw(st.booleans()))


@st.composite
def _window(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    x = _image(draw, dims)
    kernel = draw(st.sampled_from((1, 2, 3, 3, 9)))
    stride = draw(st.sampled_from(("None", "1", "2", "3")))
    padding = draw(st.sampled_from((0, 0, 1, 2)))
    ceil = draw(st.booleans())
    if draw(st.booleans()):
        dilation = draw(st.sampled_from((1, 1, 2)))
        indices = draw(st.booleans())
        code = (
            f"F.max_pool{dims}d(x, {kernel}, {stride}, {padding}, {dilation}, ceil_mode={ceil}, "
            f"return_indices={indices})"
        )
    else:
        extra = f", count_include_pad={draw(st.booleans())}"
        if dims > 1 and draw(st.booleans()):
            extra += ", divisor_override=3"
        code = f"F.avg_pool{dims}d(x, {kernel}, {stride}, {padding}, ceil_mode={ceil}{extra})"
    return Case(code, (("x", x),), backward=draw(backwards()))


@st.composite
def _adaptive(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    x = _image(draw, dims, least=1)
    size = draw(st.sampled_from(("1", "2", "5", "3", "-1")))
    if dims > 1 and draw(st.booleans()):
        size = "(" + ", ".join(draw(st.sampled_from(("1", "4", "None"))) for _ in range(dims)) + ")"
    kind = draw(st.sampled_from(("avg", "max")))
    extra = f", return_indices={draw(st.booleans())}" if kind == "max" else ""
    return Case(f"F.adaptive_{kind}_pool{dims}d(x, {size}{extra})", (("x", x),), backward=draw(backwards()))


@st.composite
def _other(draw: st.DrawFn) -> Case:
    x = _image(draw, 2, least=4)
    code = draw(
        st.sampled_from(
            (
                "F.lp_pool2d(x, 2, 2)",
                "F.lp_pool1d(x.flatten(-2), 2.0, 3, ceil_mode=True)",
                "F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[-2:])",
                "F.pixel_unshuffle(x[..., :4, :4], 2)",
                "F.pixel_shuffle(x.repeat_interleave(4, -3), 2)",
                "F.channel_shuffle(x.repeat_interleave(2, -3), 2)",
                "torch.nn.functional.fractional_max_pool2d(x, 2, output_size=2).shape",
                "torch.nn.functional.fractional_max_pool2d(x, 2, output_ratio=0.5).shape",
            )
        )
    )
    return Case(code, (("x", x),), backward=draw(backwards()))


@st.composite
def _padding(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    x = _image(draw, dims)
    mode = draw(st.sampled_from(("constant", "reflect", "replicate", "circular")))
    amounts = [draw(st.sampled_from((0, 1, 2, -1, 9 if mode == "reflect" else 2))) for _ in range(2 * dims)]
    value = f", value={draw(st.sampled_from((0.0, 2.5)))}" if mode == "constant" else ""
    return Case(f"F.pad(x, {amounts}, mode={mode!r}{value})", (("x", x),), backward=draw(backwards()))


CASES = st.one_of(_window(), _window(), _adaptive(), _other(), _padding())
