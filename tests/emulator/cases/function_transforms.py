"""torch.func: grad, vmap, jvp, vjp, jacobians and Hessians over functions of every kind, and forward mode."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, layouts
from hypothesis import strategies as st

COUNT = 80
SETUP = "from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap\nimport torch.autograd.forward_ad as fwAD\n"
FUNCTIONS = (
    "lambda x: x.sin().sum()",
    "lambda x: (x ** 2).mean()",
    "lambda x: (x @ x.mT).exp().sum() if x.dim() > 1 else x.exp().sum()",
    "lambda x: F.softmax(x, -1).square().sum()",
    "lambda x: F.layer_norm(x, x.shape[-1:]).pow(3).sum()",
    "lambda x: F.gelu(x).cumsum(-1).sum()",
    "lambda x: torch.logsumexp(x, -1).sum()",
    "lambda x: x.sort(-1)[0].prod()",
    "lambda x: x.clamp(-1, 1).norm()",
    "lambda x: torch.where(x > 0, x, x * 0.1).var()",
    "lambda x: x[..., :1].mul(x).sum()",
    "lambda x: x.index_select(-1, torch.tensor([0], device=D)).sum()",
    "lambda x: torch.cat([x, x.cos()]).sum()",
    "lambda x: x.flatten().dot(x.flatten())",
)


@st.composite
def _scalar(draw: st.DrawFn) -> Case:
    shape = draw(st.sampled_from(((3,), (2, 3), (3, 2, 2), (1,))))
    f = draw(st.sampled_from(FUNCTIONS))
    x = Input(
        shape, draw(st.sampled_from(("float32", "float64"))), draw(layouts(len(shape))), draw(st.booleans())
    )
    code = draw(
        st.sampled_from(
            (
                "grad(f)(x)", "grad_and_value(f)(x)", "vmap(f)(x)", "vmap(grad(f))(x)", "jvp(f, (x,), (torch.ones_like(x),))", "vjp(f, x)[1](torch.ones((), device=D, dtype=x.dtype))",
                "hessian(f)(x)", "jacrev(f)(x)", "jacfwd(f)(x)", "jacrev(grad(f))(x)", "vmap(jacrev(f))(x)", "vmap(f, in_dims=-1)(x)", "vmap(f, in_dims=7)(x)",
                "linearize(f, x)[1](x)", "grad(grad(f))(x)", "torch.autograd.functional.hvp(f, x, x)", "torch.autograd.functional.jacobian(f, x)", "torch.autograd.functional.vhp(f, x, x)",
                "vmap(f, chunk_size=1)(x)", "torch.autograd.grad(f(x), x)" if x.grad else "grad(f)(x)", "vmap(lambda x: x.item())(x)",
            )
        )
    )  # fmt: skip
    return Case(code, (("x", x),), f"{SETUP}f = {f}")


@st.composite
def _layered(draw: st.DrawFn) -> Case:
    layer, shape = draw(
        st.sampled_from(
            (
                ("nn.Linear(3, 2)", (4, 3)), ("nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))", (5, 3)), ("nn.Conv2d(2, 3, 3, padding=1)", (4, 2, 4, 4)),
                ("nn.LayerNorm(3)", (4, 3)), ("nn.GroupNorm(1, 2)", (4, 2, 3)), ("nn.Embedding(5, 2)", (4, 3)), ("nn.MultiheadAttention(4, 2, batch_first=True)", (3, 2, 4)),
                ("nn.LSTM(3, 2, batch_first=True)", (3, 4, 3)), ("nn.GRU(3, 2, batch_first=True)", (3, 4, 3)), ("nn.RNN(3, 2)", (3, 4, 3)), ("nn.LSTMCell(3, 2)", (4, 3)), ("nn.BatchNorm1d(3, track_running_stats=False)", (4, 5, 3)),
            )
        )
    )  # fmt: skip
    integers = layer.startswith("nn.Embedding")
    x = Input(
        shape,
        "int64" if integers else "float32",
        grad=False,
        values="index" if integers else "normal",
        below=5,
    )
    call = (
        "functional_call(layer, p, (x, x, x))" if "Multihead" in layer else "functional_call(layer, p, (x,))"
    )
    setup = (
        f"{SETUP}layer = {layer}.to(D)\np = dict(layer.named_parameters())\n"
        f"def f(p, x):\n    out = {call}\n    return (out[0] if isinstance(out, tuple) else out).square().sum()\n"
    )
    code = draw(
        st.sampled_from(
            (
                "grad(f)(p, x)", "vmap(grad(f), (None, 0))(p, x)", "vmap(f, (None, 0))(p, x)", "jvp(lambda p: f(p, x), (p,), (p,))", "vmap(grad(f), (None, 0), randomness='same')(p, x)",
                "vjp(lambda p: f(p, x), p)[1](torch.ones((), device=D))", "jacrev(f)(p, x)", "torch.func.stack_module_state([layer, layer])[0]", "hessian(lambda b: f({**p, 'bias': b}, x))(p['bias']) if 'bias' in p else f(p, x)",
            )
        )
    )  # fmt: skip
    return Case(code, (("x", x),), setup)


@st.composite
def _forward_mode(draw: st.DrawFn) -> Case:
    shape = draw(st.sampled_from(((3,), (2, 3), (2, 3, 2))))
    x = Input(shape, draw(st.sampled_from(("float32", "float64"))), draw(layouts(len(shape))), False)
    f = draw(st.sampled_from(FUNCTIONS))
    setup = f"{SETUP}f = {f}\nwith fwAD.dual_level():\n    out = fwAD.unpack_dual(f(fwAD.make_dual(x, x * 2)))\n    out = (out.primal, out.tangent)"
    return Case("out", (("x", x),), setup)


CASES = st.one_of(_scalar(), _scalar(), _layered(), _forward_mode())
