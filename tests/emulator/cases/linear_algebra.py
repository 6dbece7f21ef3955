"""Products and factorizations of matrices, batched, mistaken and of no size."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 110
REAL = ("float32", "float32", "float64")


@st.composite
def _product(draw: st.DrawFn) -> Case:
    m, k, n = (draw(st.sampled_from((1, 2, 3, 5, 0))) for _ in range(3))
    wrong = draw(st.sampled_from((0,) * 8 + (1,)))
    batch = draw(st.sampled_from((1, 2, 3, 0)))
    dtype = draw(st.sampled_from(("float32", "float32", "float64", "bfloat16", "complex64")))
    # (No product of an empty batch asks for its dtypes on the CPU.)
    other = (
        dtype
        if 0 in (batch, m, k, n) or draw(st.integers(0, 9))
        else ("float32" if dtype == "float64" else "float64")
    )
    kind = draw(
        st.sampled_from(
            (
                "mm",
                "bmm",
                "addmm",
                "baddbmm",
                "matmul",
                "linear",
                "mv",
                "dot",
                "outer",
                "einsum",
                "tensordot",
                "multi_dot",
                "addmv",
                "addr",
                "chain",
                "bilinear",
                "kron",
                "vecdot",
            )
        )
    )
    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    third: tuple[int, ...] | None = None
    if kind in ("mm", "addmm", "linear", "tensordot", "multi_dot", "chain", "kron"):
        a_shape, b_shape = (m, k), (k + wrong, n)
        third = draw(st.sampled_from(((m, n), (n,), (1, n), (1,), (m + 1, n)))) if kind == "addmm" else None
    elif kind in ("bmm", "baddbmm", "einsum"):
        a_shape, b_shape = (batch, m, k), (batch, k + wrong, n)
        third = draw(st.sampled_from(((batch, m, n), (n,), (1, m, n)))) if kind == "baddbmm" else None
    elif kind == "matmul":
        front = draw(
            st.sampled_from((((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((2,), (3,)), ((1,), (4,))))
        )
        a_shape, b_shape = (*front[0], m, k), (*front[1], k + wrong, n)
        cut = draw(st.sampled_from(("", "", "a", "b")))
        a_shape = (k,) if cut == "a" else a_shape
        b_shape = (k + wrong,) if cut == "b" else b_shape
    elif kind in ("mv", "addmv"):
        a_shape, b_shape = (m, k), (k + wrong,)
        third = (
            draw(st.sampled_from(((m,), (1,) if m and k else (m,), (m + 1,)))) if kind == "addmv" else None
        )
    elif kind == "addr":
        a_shape, b_shape, third = (m,), (n,), (m, n)
    elif kind == "bilinear":
        a_shape, b_shape, third = (batch, k), (batch + wrong, n), (2, k, n)
    else:
        a_shape, b_shape = (k,), (k + wrong,)
    a = Input(a_shape, dtype, draw(layouts(len(a_shape))), draw(st.booleans()))
    b = Input(b_shape, other, draw(layouts(len(b_shape))), draw(st.booleans()))
    code = {
        "mm": "torch.mm(a, b)", "bmm": "torch.bmm(a, b)", "addmm": "torch.addmm(c, a, b, beta=0.5)",
        "baddbmm": "torch.baddbmm(c, a, b, alpha=2)", "matmul": "a @ b", "linear": "F.linear(a, b.mT)",
        "mv": "torch.mv(a, b)", "dot": "torch.dot(a, b)", "outer": "torch.outer(a, b)",
        "einsum": "torch.einsum('bij,bjk->bik', a, b)", "tensordot": "torch.tensordot(a, b, 1)",
        "multi_dot": "torch.linalg.multi_dot([a, b, b.mT])", "addmv": "torch.addmv(c, a, b)", "addr": "torch.addr(c, a, b)",
        "chain": "torch.chain_matmul(a, b)", "bilinear": "F.bilinear(a, b, c)", "kron": "torch.kron(a, b)",
        "vecdot": "torch.linalg.vecdot(a, b)",
    }[kind]  # fmt: skip
    inputs = [("a", a), ("b", b)]
    if third is not None:
        inputs.append(("c", Input(third, dtype, draw(layouts(len(third))), draw(st.booleans()))))
    autocast = (
        dtype == other == "float32"
        and kind in ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear")
        and draw(st.booleans())
    )
    return Case(code, tuple(inputs), backward=draw(backwards()), autocast=autocast)


@st.composite
def _factorization(draw: st.DrawFn) -> Case:
    batch = draw(st.sampled_from(((), (), (2,), (0,), (2, 1))))
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    # (Whether a batch of no matrices is refused for its dtype depends on the library.)
    dtype = draw(st.sampled_from((*REAL, "complex64") if 0 in batch else (*REAL, "complex64", "bfloat16")))
    square = Input(
        (*batch, n, n),
        dtype,
        draw(st.sampled_from(("contiguous", "transposed"))),
        draw(st.booleans()),
        "definite",
    )
    tall = Input(
        (*batch, m + n, n), dtype, draw(st.sampled_from(("contiguous", "transposed"))), draw(st.booleans())
    )
    side = Input((*batch, n, draw(st.integers(1, 3))), dtype, grad=draw(st.booleans()))
    flag = draw(st.booleans())
    code = draw(
        st.sampled_from(
            (
                f"torch.linalg.cholesky(a, upper={flag})",
                "torch.linalg.cholesky_ex(a)",
                "torch.linalg.inv(a)",
                "torch.linalg.inv_ex(a)",
                "torch.linalg.det(a)",
                "torch.linalg.slogdet(a)",
                "torch.linalg.solve(a, b)",
                "torch.linalg.solve(a, b.mT, left=False)",
                "torch.linalg.lu(a)",
                "torch.linalg.lu_factor(a)",
                "torch.linalg.ldl_factor(a)",
                f"torch.linalg.eigh(a, UPLO={'U' if flag else 'L'!r})",
                "torch.linalg.eigvalsh(a)",
                "torch.linalg.eigvals(a.detach())",
                "torch.linalg.qr(t)",
                "torch.linalg.qr(t, mode='r')",
                "torch.linalg.svdvals(t)",
                f"torch.linalg.svd(t, full_matrices={flag})[1]",
                "torch.linalg.pinv(t)",
                "torch.linalg.lstsq(t, t).solution",
                "torch.linalg.matrix_power(a, 3)",
                "torch.linalg.matrix_exp(a)",
                "torch.linalg.matrix_rank(t)",
                "torch.linalg.cond(a)",
                "torch.linalg.norm(t)",
                "torch.linalg.vector_norm(t, 3, dim=-1)",
                "torch.linalg.matrix_norm(t, 'nuc')",
                "torch.linalg.cross(side[..., :1].expand(*side.shape[:-2], 3, 1), side[..., :1].expand(*side.shape[:-2], 3, 1), dim=-2) if side.shape[-2] == 3 else side",
                "torch.linalg.solve_triangular(torch.tril(a), b, upper=False)",
                "torch.cholesky_solve(b, torch.linalg.cholesky(a))",
                "torch.cholesky_inverse(torch.linalg.cholesky(a))",
                "torch.linalg.inv(t)",
                "torch.linalg.cholesky(-a)",
                "torch.linalg.solve(a * 0, b)",
                "torch.trace(a)",
                "torch.diag_embed(t)",
                "torch.cdist(t, t)",
                "torch.linalg.householder_product(t, t[..., 0, :])",
                "torch.linalg.vander(t[..., 0])",
                "torch.linalg.diagonal(t)",
                "torch.linalg.tensorinv(a.detach().reshape(*a.shape)) if a.dim() == 2 else a",
                "torch.linalg.multi_dot([t, a, t.mT]) if t.dim() == 2 else t",
                "torch.logdet(a) if not a.is_complex() else a",
            )
        )
    )
    code = code.replace("side", "b")
    letters = code.replace("torch", "").replace("linalg", "")
    used = [("a", square), ("b", side), ("t", tall)]
    inputs = [entry for entry in used if any(f"{mark}{entry[0]}" in letters for mark in ("(", " ", "-", "["))]
    return Case(code, tuple(inputs), backward=draw(backwards()))


CASES = st.one_of(_product(), _factorization())
