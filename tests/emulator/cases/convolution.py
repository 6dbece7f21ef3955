"""Convolutions: 1 to 3 dimensions, transposed, grouped, depthwise, channels-last, and mistaken ones."""

from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 110


@st.composite
def _convolution(draw: st.DrawFn) -> Case:
    dims = draw(st.sampled_from((1, 2, 2, 2, 3)))
    transposed = draw(st.sampled_from((False, False, True)))
    groups = draw(st.sampled_from((1, 1, 2, 4)))
    depthwise = groups == 4
    channels_in = groups * (1 if depthwise else draw(st.integers(1, 3)))
    channels_out = groups * draw(st.integers(1, 3))
    mistake = draw(
        st.sampled_from((None, None, None, None, None, "channels", "dtype", "small", "bias", "stride"))
    )
    kernel = draw(st.tuples(*[st.integers(1, 3)] * dims))
    dilation = draw(st.sampled_from((1, 1, 2)))
    low = 1 if mistake == "small" else dilation * (max(kernel) - 1) + 1
    spatial = draw(st.tuples(*[st.integers(low, low + 4)] * dims))
    batch = draw(st.sampled_from((1, 2, 3, 0)))
    unbatched = draw(st.sampled_from((False, False, False, True)))
    dtype = draw(st.sampled_from(("float32", "float32", "float64", "bfloat16")))
    grad = draw(st.booleans())
    shape = (channels_in + (1 if mistake == "channels" else 0), *spatial)
    shape = shape if unbatched else (batch, *shape)
    if transposed:
        weight_shape = (channels_in, channels_out // groups, *kernel)
    else:
        weight_shape = (channels_out, channels_in // groups, *kernel)
    # (Convolutions of no images are computed without a library, which would ask for equal dtypes.)
    weight_dtype = "float64" if mistake == "dtype" and dtype != "float64" and batch else dtype
    inputs = [
        ("x", Input(shape, dtype, draw(layouts(len(shape))), grad)),
        (
            "w",
            Input(weight_shape, weight_dtype, draw(layouts(len(weight_shape))), grad or draw(st.booleans())),
        ),
    ]
    with_bias = draw(st.booleans()) or mistake == "bias"
    if with_bias:
        inputs.append(("b", Input((channels_out + (1 if mistake == "bias" else 0),), dtype, grad=grad)))
    stride = 0 if mistake == "stride" else draw(st.sampled_from((1, 1, 2, 3)))
    options = f"stride={stride}, dilation={dilation}, groups={groups}"
    if transposed:
        options += f", padding={draw(st.integers(0, 1))}"
        options += f", output_padding={draw(st.integers(0, 1)) if max(stride, dilation) > 1 else 0}"
    else:
        padding = draw(st.sampled_from(("0", "1", "2", "'same'", "'valid'")))
        options += f", padding={padding}"
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    code = f"F.{name}(x, w, {'b' if with_bias else 'None'}, {options})"
    autocast = dtype == "float32" and not mistake and draw(st.sampled_from((False, False, True)))
    return Case(code, tuple(inputs), backward=draw(backwards()), autocast=autocast)


@st.composite
def _layer(draw: st.DrawFn) -> Case:
    dims = draw(st.sampled_from((1, 2, 3)))
    kind = draw(st.sampled_from(("Conv", "Conv", "ConvTranspose", "LazyConv")))
    channels = draw(st.sampled_from((2, 4)))
    groups = draw(st.sampled_from((1, 2, channels)))
    mode = (
        "'zeros'"
        if kind != "Conv"
        else draw(st.sampled_from(("'zeros'", "'circular'", "'reflect'", "'replicate'")))
    )
    arguments = "" if kind == "LazyConv" else f"{channels}, "
    channels_last = dims == 2 and draw(st.booleans())
    format_ = ", memory_format=torch.channels_last" if channels_last and kind != "LazyConv" else ""
    setup = (
        f"layer = nn.{kind}{dims}d({arguments}{2 * channels}, 3, padding=1, groups={groups}, "
        f"bias={draw(st.booleans())}, padding_mode={mode}).to(D{format_})"
    )
    shape = (2, channels, *draw(st.tuples(*[st.integers(3, 6)] * dims)))
    x = Input(shape, "float32", draw(layouts(len(shape))), draw(st.booleans()))
    backward = draw(st.sampled_from(("none", "sum", "dense", "double")))
    autocast = backward != "double" and draw(st.sampled_from((False, False, True)))
    # A lazy layer draws its weights on its device.
    return Case("layer(x)", (("x", x),), setup, backward, autocast, values=kind != "LazyConv")


@st.composite
def _patches(draw: st.DrawFn) -> Case:
    kernel, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    padding, stride = draw(st.integers(0, 2)), draw(st.integers(1, 2))
    options = f"{kernel}, dilation={dilation}, padding={padding}, stride={stride}"
    if draw(st.booleans()):
        shape = (
            *draw(st.sampled_from(((), (2,), (0,)))),
            3,
            draw(st.integers(4, 7)),
            draw(st.integers(2, 7)),
        )
        x = Input(shape, draw(st.sampled_from(("float32", "bfloat16"))), draw(layouts(len(shape))))
        return Case(f"F.unfold(x, {options})", (("x", x),), backward=draw(backwards()))
    height = width = 6
    blocks = ((height + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1) ** 2
    blocks += draw(st.sampled_from((0, 0, 0, 1)))
    shape = (*draw(st.sampled_from(((), (2,)))), 2 * kernel * kernel, blocks)
    x = Input(shape, "float32", draw(layouts(len(shape))))
    return Case(f"F.fold(x, ({height}, {width}), {options})", (("x", x),), backward=draw(backwards()))


CASES = st.one_of(_convolution(), _convolution(), _convolution(), _layer(), _patches())
