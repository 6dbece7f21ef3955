"""Sort, topk, unique, nonzero, scans, searches and counts."""

from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 80


@st.composite
def _ordered(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(0, 3))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5, 7, 0))] * dims))
    dim = draw(st.integers(-dims - 1, dims))
    dtype = draw(st.sampled_from(("float32", "float32", "float64", "bfloat16", "int64", "int32")))
    x = Input(shape, dtype, draw(layouts(dims)), draw(st.booleans()))
    if dtype.startswith("int"):
        x = Input(shape, dtype, x.layout, False, "index", 4)
    flag, k = draw(st.booleans()), draw(st.sampled_from((0, 1, 2, 9)))
    code = draw(
        st.sampled_from(
            (
                f"x.sort({dim}, descending={flag})",
                f"torch.sort(x, stable=True, dim={dim}, descending={flag})",
                f"x.argsort({dim})",
                "x.msort()",
                f"x.topk({k}, {dim}, largest={flag}, sorted={draw(st.booleans())})",
                f"x.kthvalue({k}, {dim}, keepdim={flag})",
                f"x.median({dim}, keepdim={flag})",
                "x.median()",
                f"x.nanmedian({dim})",
                f"x.mode({dim}, {flag})",
                f"x.max({dim}, keepdim={flag})",
                f"x.argmin({dim}, keepdim={flag})",
                "x.argmax()",
                f"x.amax({dim}, keepdim={flag})",
                "x.amin()",
                f"torch.aminmax(x, dim={dim}, keepdim={flag})",
                f"x.cummax({dim})",
                f"x.cummin({dim})",
                f"x.cumsum({dim})",
                f"x.cumprod({dim})",
                f"x.logcumsumexp({dim})",
                f"x.cumsum({dim}, dtype=torch.float64)",
                f"torch.diff(x, dim={dim})",
                f"x.unique(return_inverse={flag})",
                f"x.unique(return_counts={flag}, dim=0)",
                f"torch.unique_consecutive(x, return_inverse={flag}, return_counts=True)",
                f"torch.unique_consecutive(x, dim={dim})",
                f"x.nonzero(as_tuple={flag})",
                "torch.argwhere(x)",
                f"x.count_nonzero({dim})",
                "(x > 0).nonzero()",
                f"torch.quantile(x, 0.5, dim={dim}, keepdim={flag})",
                f"torch.quantile(x, torch.tensor([0.1, 0.9], device=D, dtype=x.dtype), {dim})",
                "torch.nanquantile(x, 0.3)",
                "x.histc(4, -1, 1)",
                "torch.isin(x, torch.tensor([0, 1], device=D, dtype=x.dtype))",
                "torch.searchsorted(torch.arange(4, device=D, dtype=x.dtype), x)",
                f"torch.bucketize(x, torch.arange(4, device=D, dtype=x.dtype), right={flag})",
                "torch.tril(x)",
                f"torch.triu(x, {draw(st.integers(-2, 2))})",
            )
        )
    )
    return Case(code, (("x", x),), backward=draw(backwards()))


@st.composite
def _counted(draw: st.DrawFn) -> Case:
    count = draw(st.integers(0, 7))
    i = Input(
        (count,), draw(st.sampled_from(("int64", "int32", "uint8"))), grad=False, values="index", below=4
    )
    w = Input((count + draw(st.sampled_from((0, 0, 0, 1))),), grad=False)
    code = draw(
        st.sampled_from(
            (
                "torch.bincount(i)",
                "torch.bincount(i, minlength=6)",
                "torch.bincount(i, w)",
                "torch.repeat_interleave(i.long())",
                "torch.repeat_interleave(w, i.long(), 0)",
                "F.one_hot(i.long(), 5)",
                "torch.combinations(w)",
                "torch.histc(w, 3)",
            )
        )
    )
    inputs = [("i", i)] + ([("w", w)] if "w" in code.replace("view", "") else [])
    return Case(code, tuple(inputs))


CASES = st.one_of(_ordered(), _ordered(), _ordered(), _counted())
