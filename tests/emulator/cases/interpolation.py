"""Resizing images, sampling on grids, and the grids."""

from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 70


@st.composite
def _resized(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    modes = {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}
    mode = draw(st.sampled_from((*modes[dims], "area", "nearest-exact", "bilinear")))
    front = draw(st.sampled_from(((2, 3), (1, 1), (2, 4), (0, 3))))
    shape = (*front, *draw(st.tuples(*[st.integers(1, 6)] * dims)))
    dtype = draw(st.sampled_from(("float32", "float32", "float64", "bfloat16")))
    x = Input(shape, dtype, draw(layouts(len(shape))), draw(st.booleans()))
    if draw(st.booleans()):
        size = f"size={draw(st.sampled_from((1, 3, 7, 0)))}"
    else:
        size = f"scale_factor={draw(st.sampled_from((0.5, 1.0, 1.7, 2)))}"
        size += draw(st.sampled_from(("", ", recompute_scale_factor=True")))
    linear = mode in ("linear", "bilinear", "bicubic", "trilinear")
    align = f", align_corners={draw(st.booleans())}" if linear else ""
    smooth = ", antialias=True" if mode in ("bilinear", "bicubic") and draw(st.booleans()) else ""
    code = f"F.interpolate(x, {size}, mode={mode!r}{align}{smooth})"
    return Case(code, (("x", x),), backward=draw(backwards()))


@st.composite
def _sampled(draw: st.DrawFn) -> Case:
    volume = draw(st.booleans())
    spatial = draw(st.tuples(*[st.integers(1, 5)] * (3 if volume else 2)))
    batch, channels = draw(st.sampled_from((1, 2, 3))), draw(st.integers(1, 3))
    points = draw(st.tuples(*[st.integers(1, 4)] * (3 if volume else 2)))
    modes = ("bilinear", "nearest") if volume else ("bilinear", "nearest", "bicubic")
    options = (
        f"mode={draw(st.sampled_from(modes))!r}, "
        f"padding_mode={draw(st.sampled_from(('zeros', 'border', 'reflection')))!r}, "
        f"align_corners={draw(st.booleans())}"
    )
    dtype = draw(st.sampled_from(("float32", "float32", "float64")))
    wrong = draw(st.sampled_from((0,) * 6 + (1,)))
    shape = (batch, channels, *spatial)
    x = Input(shape, dtype, draw(layouts(len(shape))), draw(st.booleans()))
    grid_shape = (batch + wrong, *points, len(points))
    grid = Input(grid_shape, dtype, draw(st.sampled_from(("contiguous", "sliced"))), draw(st.booleans()))
    return Case(f"F.grid_sample(x, grid, {options})", (("x", x), ("grid", grid)), backward=draw(backwards()))


@st.composite
def _grid(draw: st.DrawFn) -> Case:
    volume = draw(st.booleans())
    batch = draw(st.integers(1, 3))
    size = [batch, 2, *draw(st.tuples(*[st.integers(1, 5)] * (3 if volume else 2)))]
    theta = Input((batch, 3, 4) if volume else (batch, 2, 3), grad=draw(st.booleans()))
    code = f"F.affine_grid(theta, {size}, align_corners={draw(st.booleans())})"
    return Case(code, (("theta", theta),), backward=draw(backwards()))


CASES = st.one_of(_resized(), _resized(), _sampled(), _grid())
