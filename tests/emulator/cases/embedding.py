"""Embeddings and embedding bags, dense and sparse gradients, one-hot and embedding-like losses."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards, index
from hypothesis import strategies as st

COUNT = 80


@st.composite
def _embedding(draw: st.DrawFn) -> Case:
    rows, width = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    shape = draw(st.sampled_from(((3,), (2, 3), (0,), (), (2, 1, 2))))
    dtype = draw(st.sampled_from(("float32", "float32", "float64", "bfloat16")))
    weight = Input((rows, width), dtype, draw(st.sampled_from(("contiguous", "transposed"))))
    options = ""
    if draw(st.booleans()):
        options += f", padding_idx={draw(st.sampled_from((0, -1, rows + 1)))}"
    if draw(st.booleans()):
        options += ", scale_grad_by_freq=True"
    elif draw(st.booleans()):
        options += ", sparse=True"
    indices = Input(
        shape,
        draw(st.sampled_from(("int64", "int64", "int32", "float32"))),
        grad=False,
        values="index",
        below=rows,
    )
    inputs = (("i", indices), ("w", weight))
    return Case(f"F.embedding(i, w{options})", inputs, backward=draw(st.sampled_from(("none", "dense"))))


@st.composite
def _bag(draw: st.DrawFn) -> Case:
    rows, width = draw(st.integers(2, 9)), draw(st.integers(1, 5))
    mode = draw(st.sampled_from(("sum", "mean", "max")))
    weight = Input((rows, width), draw(st.sampled_from(("float32", "float32", "float64"))))
    options = f"mode={mode!r}"
    inputs = [("w", weight)]
    sparse = draw(st.booleans())
    options += f", sparse={sparse}"
    integers = draw(st.sampled_from(("int64", "int32")))
    if draw(st.booleans()):
        shape: tuple[int, ...] = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
        code = "F.embedding_bag(i, w, "
    else:
        count = draw(st.integers(1, 6))
        shape = (count,)
        offsets = sorted(draw(st.lists(st.integers(0, count), min_size=1, max_size=3)))
        offsets[0] = draw(st.sampled_from((0, 0, 0, 0, 1)))
        if draw(st.booleans()):
            options += ", include_last_offset=True"
            offsets.append(count)
        code = f"F.embedding_bag(i, w, torch.tensor({offsets}, device=D, dtype=torch.{integers}), "
    inputs.insert(0, ("i", Input(shape, integers, grad=False, values="index", below=rows)))
    if draw(st.sampled_from((False, False, True))):
        inputs.append(("s", Input(shape, weight.dtype, grad=draw(st.booleans()))))
        options += ", per_sample_weights=s"
    if draw(st.sampled_from((False, False, True))):
        options += ", padding_idx=0"
    return Case(f"{code}{options})", tuple(inputs), backward=draw(st.sampled_from(("none", "dense"))))


@st.composite
def _layer(draw: st.DrawFn) -> Case:
    sparse = draw(st.booleans())
    bag = draw(st.booleans())
    kind = "EmbeddingBag" if bag else "Embedding"
    options = f", sparse={sparse}" + (f", mode={draw(st.sampled_from(('sum', 'mean')))!r}" if bag else "")
    optimizer = draw(
        st.sampled_from(
            (
                "SGD(layer.parameters(), lr=0.1)",
                "SparseAdam(layer.parameters())",
                "Adagrad(layer.parameters())",
            )
            if sparse
            else ("SGD(layer.parameters(), lr=0.1, momentum=0.9)", "Adam(layer.parameters())")
        )
    )
    clip = draw(st.sampled_from(("", "", "    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)\n")))
    twice = draw(st.sampled_from(("", "    layer(i.flip(0)).sum().backward()\n")))
    setup = (
        f"layer = nn.{kind}(7, 3{options}).to(D)\n"
        f"optimizer = torch.optim.{optimizer}\n"
        "for _ in range(2):\n"
        f"    optimizer.zero_grad(set_to_none={draw(st.booleans())})\n"
        "    layer(i).square().sum().backward()\n"
        f"{twice}{clip}"
        "    optimizer.step()\n"
    )
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    return Case("layer.weight", (("i", index(shape, 7)),), setup)


@st.composite
def _loss(draw: st.DrawFn) -> Case:
    batch, classes = draw(st.sampled_from((1, 3, 4, 0))), draw(st.integers(1, 5))
    spatial = draw(st.sampled_from(((), (), (2,), (2, 3))))
    dtype = draw(st.sampled_from(("float32", "float32", "bfloat16", "float64")))
    x = Input(
        (batch, classes, *spatial), dtype, draw(st.sampled_from(("contiguous", "transposed", "sliced")))
    )
    reduction = draw(st.sampled_from(("mean", "sum", "none", "all")))
    options = f"reduction={reduction!r}"
    wrong = draw(st.sampled_from((0,) * 6 + (1,)))
    if draw(st.booleans()):
        target = Input(
            (batch + wrong, *spatial),
            draw(st.sampled_from(("int64", "int64", "int64", "int32"))),
            grad=False,
            values="index",
            below=classes,
        )
        options += draw(st.sampled_from(("", ", ignore_index=0", ", label_smoothing=0.1")))
        return Case(
            f"F.cross_entropy(x, t, {options})", (("x", x), ("t", target)), backward=draw(backwards())
        )
    name = draw(
        st.sampled_from(
            ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits",
             "soft_margin_loss", "poisson_nll_loss", "hinge_embedding_loss", "multilabel_soft_margin_loss")
        )
    )  # fmt: skip
    target = Input((batch + wrong, classes, *spatial), dtype, grad=False, values="unit")
    return Case(f"F.{name}(x, t, {options})", (("x", x), ("t", target)), backward=draw(backwards()))


CASES = st.one_of(_embedding(), _bag(), _layer(), _loss())
