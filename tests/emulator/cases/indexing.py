"""Indexing of all kinds: slices, lists, masks, gather and scatter, index operators, views and in-place writes."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards, index, layouts
from hypothesis import strategies as st

COUNT = 130
DTYPES = ("float32", "float32", "float64", "bfloat16", "int64")


@st.composite
def _subscript(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 4))
    shape = draw(st.tuples(*[st.integers(1, 5)] * dims))
    parts, inputs, spent = [], [], 0
    together = draw(st.sampled_from(((), (1,), (2,), (2, 3))))
    while spent < dims:
        kind = draw(
            st.sampled_from(("slice", "slice", "int", "none", "index", "mask", "ellipsis", "list", "stop"))
        )
        if kind == "stop":
            break
        if kind == "ellipsis":
            if "..." in parts:
                break
            parts.append("...")
            break  # what follows would count from the end
        if kind == "none":
            parts.append("None")
            continue
        size = shape[spent]
        spent += 1
        name = f"i{len(inputs)}"
        if kind == "slice":
            start, stop = draw(st.integers(-size - 1, size)), draw(st.integers(-size - 1, size + 2))
            parts.append(
                draw(st.sampled_from((":", f"{start}:{stop}", f"::{draw(st.integers(1, 3))}", f"{start}:")))
            )
        elif kind == "int":
            parts.append(str(draw(st.integers(-size, size - 1)) if draw(st.integers(0, 9)) else size))
        elif kind == "index":
            inputs.append((name, index(together, size)))
            parts.append(name)
        elif kind == "list":
            parts.append(str(draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=3))))
        else:
            wrong = draw(st.sampled_from((0,) * 7 + (1,)))
            inputs.append((name, Input((size + wrong,), "bool", grad=False, values="mask")))
            parts.append(name)
    subscript = ", ".join(parts) or "..."
    x = Input(shape, draw(st.sampled_from(DTYPES)), draw(layouts(dims)), draw(st.booleans()))
    use = draw(st.sampled_from(("get", "get", "get", "set", "add", "tensor")))
    if use == "get":
        return Case(f"x[{subscript}]", (("x", x), *inputs), backward=draw(backwards()))
    x = Input(shape, x.dtype, x.layout, grad=False)
    value = {"set": f"y[{subscript}] = 2", "add": f"y[{subscript}] += 1"}.get(
        use, f"y[{subscript}] = y[{subscript}].clone() * 2"
    )
    return Case("(x, y)", (("x", x), *inputs), f"y = x.clone(); {value}")


@st.composite
def _along(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    shape = draw(st.tuples(*[st.integers(1, 5)] * dims))
    dim = draw(st.integers(-dims, dims - 1)) if draw(st.integers(0, 9)) else dims
    size = shape[dim] if dim < dims else 1
    x = Input(
        shape,
        draw(st.sampled_from(("float32", "float32", "float64", "bfloat16"))),
        draw(layouts(dims)),
        draw(st.booleans()),
    )
    smaller = tuple(draw(st.integers(1, s)) for s in shape)
    smaller = smaller if draw(st.integers(0, 7)) else (*smaller, 1)
    integer = draw(st.sampled_from(("int64",) * 5 + ("int32", "float32")))
    i = Input(smaller, integer, draw(layouts(len(smaller))), False, "index", size)
    source = Input(smaller, x.dtype, draw(layouts(len(smaller))), draw(st.booleans()))
    name = draw(
        st.sampled_from(
            ("gather", "scatter", "scatter_add", "scatter_reduce", "value", "take_along_dim", "in-place")
        )
    )
    reduce = draw(st.sampled_from(("sum", "prod", "mean", "amax", "amin")))
    code = {
        "gather": f"x.gather({dim}, i)",
        "scatter": f"x.scatter({dim}, i, s)",
        "scatter_add": f"x.scatter_add({dim}, i, s)",
        "scatter_reduce": f"x.scatter_reduce({dim}, i, s, {reduce!r}, include_self={draw(st.booleans())})",
        "value": f"x.scatter({dim}, i, 1.5)",
        "take_along_dim": f"torch.take_along_dim(x, i, {dim})",
        "in-place": f"x.clone().scatter_add_({dim}, i, s)",
    }[name]
    inputs = [("x", x), ("i", i)] + ([("s", source)] if "s)" in code or "s," in code else [])
    return Case(code, tuple(inputs), backward=draw(backwards()))


@st.composite
def _by_index(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    shape = draw(st.tuples(*[st.integers(1, 5)] * dims))
    dim = draw(st.integers(-dims, dims - 1))
    count = draw(st.integers(0, shape[dim]))
    source_shape = list(shape)
    source_shape[dim] = count
    if not draw(st.integers(0, 7)):
        source_shape[dim] += 1
    x = Input(
        shape,
        draw(st.sampled_from(("float32", "float32", "bfloat16"))),
        draw(layouts(dims)),
        draw(st.booleans()),
    )
    i = Input(
        (count,),
        draw(st.sampled_from(("int64", "int64", "int32"))),
        grad=False,
        values="index",
        below=shape[dim],
    )
    s = Input(tuple(source_shape), x.dtype, grad=draw(st.booleans()))
    name = draw(st.sampled_from(("select", "add", "fill", "take", "put", "swap", "copy", "reduce")))
    code = {
        "select": f"x.index_select({dim}, i)",
        "add": f"x.index_add({dim}, i, s, alpha=2)",
        "fill": f"x.index_fill({dim}, i, 3.0)",
        "take": "x.take(i)",
        "put": "x.put(i, x.new_ones(i.shape), accumulate=True)",
        "swap": "torch.index_select(x.mT if x.dim() > 1 else x, 0, i)",
        "copy": f"x.index_copy({dim}, torch.arange(s.shape[{dim}], device=D), s)",
        "reduce": f"x.index_reduce({dim}, i, s, 'amax')",
    }[name]
    inputs = [("x", x), ("i", i), ("s", s)]
    inputs = [
        entry
        for entry in inputs
        if entry[0] == "x" or entry[0] in code.replace("index", "").replace("torch.", "")
    ]
    return Case(code, tuple(inputs), backward=draw(backwards()))


@st.composite
def _mask(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    shape = draw(st.tuples(*[st.sampled_from((0, 1, 2, 3, 4))] * dims))
    x = Input(
        shape,
        draw(st.sampled_from(("float32", "bfloat16", "float64"))),
        draw(layouts(dims)),
        draw(st.booleans()),
    )
    mask_shape = draw(st.sampled_from((shape, shape[-1:], (1,) * dims, (7,))))
    m = Input(mask_shape, draw(st.sampled_from(("bool", "bool", "bool", "uint8"))), grad=False, values="mask")
    code = draw(
        st.sampled_from(
            (
                "x.masked_fill(m, 0.5)",
                "x.masked_fill(m, torch.tensor(2.0, device=D))",
                "torch.where(m, x, 0.0)",
                "torch.where(m, x, torch.zeros_like(x))",
                "x.masked_select(m)",
                "x.masked_scatter(m, torch.ones(200, device=D, dtype=x.dtype))",
                "x.clone().masked_fill_(m, 1.0)",
                "torch.where(m)",
                "x[m]",
            )
        )
    )
    return Case(code, (("x", x), ("m", m)), backward=draw(backwards()))


@st.composite
def _view(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 4))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 4, 0))] * dims))
    dim, other = draw(st.integers(-dims - 1, dims)), draw(st.integers(-dims, dims - 1))
    x = Input(
        shape,
        draw(st.sampled_from(DTYPES)),
        draw(st.one_of(layouts(dims), st.just("expanded"))),
        draw(st.booleans()),
    )
    order = draw(st.permutations(range(dims)))
    code = draw(
        st.sampled_from(
            (
                f"x.select({dim}, 0)",
                f"x.narrow({dim}, 0, 1)",
                f"x.unsqueeze({dim})",
                f"x.squeeze({dim})",
                "x.squeeze()",
                f"x.transpose({dim}, {other})",
                f"x.permute({list(order)})",
                f"x.flatten({other})",
                "x.reshape(-1)",
                "x.view(-1)",
                f"x.unfold({dim}, 2, 1)",
                "x.expand(2, *x.shape)",
                f"x.expand({list(shape)})",
                f"x.split(2, {dim})",
                f"x.chunk(3, {dim})",
                f"x.tensor_split(2, {dim})",
                f"x.unbind({dim})",
                f"x.diagonal(0, {dim}, {other})",
                f"x.movedim({dim}, {other})",
                f"x.flip({other})",
                f"x.roll(1, {other})",
                "x.rot90(1, (0, -1))",
                "x.T if x.dim() <= 2 else x.mT",
                "x.as_strided((1, 1), (1, 1), 0)",
                "x.view(torch.uint8)",
                "x.view(torch.float16)",
                "x.contiguous()",
                "x.clone(memory_format=torch.preserve_format)",
                "torch.empty_like(x).shape",
                "torch.zeros_like(x)",
                "x.to(torch.float16)",
                "x.to(torch.float32, copy=True)",
                f"torch.repeat_interleave(x, 2, {other})",
                f"x.repeat({', '.join(['2'] * dims)})",
                "x.to(memory_format=torch.channels_last)",
                "x.detach()",
                "x.view_as(x)",
                f"torch.stack([x, x], {dim})",
                f"torch.cat([x, x[:1], x], {dim})",
                "x.swapaxes(0, -1)",
                "x.tile((2,))",
                "x.is_contiguous(), x.is_non_overlapping_and_dense() if hasattr(x, 'is_non_overlapping_and_dense') else 0",
                f"x.sum_to_size({[1] * dims})",
                "x.unflatten(0, (1, -1))",
                "torch.atleast_3d(x)",
                "torch.hsplit(x, 1)",
                "torch.broadcast_tensors(x, torch.ones(1, device=D))",
                f"x.slice_scatter(torch.zeros_like(x), {other})",
                f"torch.select_scatter(x, torch.zeros_like(x.select({other}, 0)), {other}, 0)",
            )
        )
    )
    return Case(code, (("x", x),), backward=draw(backwards()))


CASES = st.one_of(_subscript(), _subscript(), _along(), _by_index(), _mask(), _view(), _view())
