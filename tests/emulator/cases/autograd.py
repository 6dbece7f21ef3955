"""Hooks, double backward, custom functions, checkpoints, saved-tensor hooks and rules of autograd."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, layouts
from hypothesis import strategies as st

COUNT = 90

FUNCTIONS = {
    "square": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g
""",
    "dirty": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)
    @staticmethod
    def backward(ctx, g):
        return g * 2
""",
    "index": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, where = x.sort(0)
        ctx.mark_non_differentiable(where)
        ctx.save_for_backward(where)
        return values, where
    @staticmethod
    def backward(ctx, g, _):
        where, = ctx.saved_tensors
        return torch.zeros_like(g).scatter(0, where, g)
""",
    "lazy": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x + 1, x * 2
    @staticmethod
    def backward(ctx, a, b):
        return a if b is None else b * 2 if a is None else a + 2 * b
""",
    "once": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 3
""",
    "wrong count": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()
    @staticmethod
    def backward(ctx, g):
        return g, g
""",
    "wrong shape": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()
    @staticmethod
    def backward(ctx, g):
        return torch.ones(11, 13, device=D)
""",
    "setup": """
class Own(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        return x.sin()
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()
    @staticmethod
    def jvp(ctx, g):
        return g
""",
}


def _leaf(draw: st.DrawFn) -> Input:
    shape = draw(st.sampled_from(((3,), (2, 3), (2, 3, 2), ())))
    return Input(shape, draw(st.sampled_from(("float32", "float64"))), draw(layouts(len(shape))), True)


@st.composite
def _custom(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(list(FUNCTIONS)))
    argument = draw(st.sampled_from(("x", "x * 1", "x.detach()", "x.clone()")))
    x = _leaf(draw)
    if kind == "index" and not x.shape:
        x = Input((3,), x.dtype)
    code = f"Own.apply({argument})"
    if kind == "setup":
        code = draw(
            st.sampled_from(
                (
                    code,
                    f"torch.func.grad(lambda y: Own.apply(y).sum())({argument})",
                    f"torch.func.vmap(Own.apply)({argument}) if x.dim() else x",
                )
            )
        )
    return Case(code, (("x", x),), FUNCTIONS[kind], draw(st.sampled_from(("none", "sum", "dense", "double"))))


@st.composite
def _hooks(draw: st.DrawFn) -> Case:
    x = _leaf(draw)
    setup = draw(
        st.sampled_from(
            (
                "seen = []\nx.register_hook(lambda g: (seen.append(g), g * 2)[1])\ny = x.exp()\ny.sum().backward()",
                "seen = []\nh = x.register_hook(lambda g: g * 0)\nh.remove()\nx.cos().sum().backward()",
                "seen = []\nx.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))\n(x * x).sum().backward()",
                "seen = []\ny = x * 2\ny.retain_grad()\ny.square().sum().backward()\nseen.append(y.grad)",
                "seen = []\nz = x * 2\nw = z * z\ntorch.autograd.graph.register_multi_grad_hook((z, w), lambda gs: seen.extend(gs))\nw.sum().backward()",
                "seen = []\nz = x * 2\nw = z * z\ntorch.autograd.graph.register_multi_grad_hook((z, w), lambda g: seen.append(g), mode='any')\nw.sum().backward()",
                "seen = []\ny = x.tanh()\ny.grad_fn.register_hook(lambda i, o: seen.extend(i))\ny.sum().backward()",
                "seen = []\ny = x.tanh()\ny.grad_fn.register_prehook(lambda o: tuple(g * 3 for g in o))\ny.sum().backward()",
                "seen = []\nwith torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):\n    y = x * x\ny.sum().backward()",
                "seen = []\nwith torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(D)):\n    y = (x * x).exp()\ny.sum().backward()",
                "seen = []\nwith torch.autograd.graph.save_on_cpu():\n    y = x.sigmoid() * x\ny.sum().backward()",
                "seen = []\nx.register_hook(lambda g: torch.ones(17, device=D))\nx.sum().backward()",
                "seen = []\nwith torch.autograd.graph.disable_saved_tensors_hooks('no'):\n    y = x * x\ny.sum().backward()",
                "seen = []\ny = x * 2\ny.register_hook(lambda g: seen.append(g))\ntorch.autograd.grad(y.sum(), y)",
            )
        )
    )
    return Case("seen", (("x", x),), setup)


@st.composite
def _module_hooks(draw: st.DrawFn) -> Case:
    setup = "seen = []\nlayer = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(D)\n" + draw(
        st.sampled_from(
            (
                "layer[0].register_forward_hook(lambda m, i, o: seen.append(o))",
                "layer[0].register_forward_pre_hook(lambda m, i: (i[0] * 2,))",
                "layer[1].register_full_backward_hook(lambda m, i, o: seen.extend([*i, *o]))",
                "layer[2].register_full_backward_pre_hook(lambda m, o: (o[0] * 2,))",
                "layer[1].register_full_backward_hook(lambda m, i, o: (i[0] * 5,))",
                "layer.register_forward_hook(lambda m, a, k, o: o * 2, with_kwargs=True)",
                "layer[0].register_backward_hook(lambda m, i, o: seen.extend(o))",
                "layer.register_state_dict_post_hook(lambda m, s, p, l: None)\nseen.append(layer.state_dict())",
                "nn.utils.parametrizations.weight_norm(layer[0])",
                "nn.utils.parametrizations.orthogonal(layer[0])",
                "nn.utils.prune.l1_unstructured(layer[0], 'weight', 0.5) if hasattr(nn.utils, 'prune') else None",
                "layer.half().float()",
                "layer.requires_grad_(False)[2].requires_grad_(True)",
            )
        )
    )  # fmt: skip
    backward = draw(st.sampled_from(("none", "sum", "dense")))
    x = Input((5, 3), grad=draw(st.booleans()))
    # An orthogonal weight is completed with random numbers of its device.
    return Case("(layer(x), seen)", (("x", x),), setup, backward, values="orthogonal" not in setup)


@st.composite
def _checkpoint(draw: st.DrawFn) -> Case:
    reentrant = draw(st.booleans())
    setup = "from torch.utils.checkpoint import checkpoint, checkpoint_sequential\nlayer = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3), nn.ReLU()).to(D)"
    code = draw(
        st.sampled_from(
            (
                f"checkpoint(layer, x, use_reentrant={reentrant})",
                f"checkpoint(layer, x, use_reentrant={reentrant}, preserve_rng_state=False)",
                f"checkpoint_sequential(layer, 2, x, use_reentrant={reentrant})",
                "checkpoint(lambda y: checkpoint(layer, y, use_reentrant=False), x, use_reentrant=False)",
                f"layer(checkpoint(lambda y: y.square().exp(), x, use_reentrant={reentrant}))",
                f"checkpoint(layer, x, use_reentrant={reentrant}, determinism_check='none', debug=False)",
                "checkpoint(layer, x, use_reentrant=True, unknown=3)",
            )
        )
    )
    x = Input((4, 3), grad=draw(st.sampled_from((True, True, False))))
    return Case(
        code,
        (("x", x),),
        setup,
        draw(st.sampled_from(("none", "sum", "dense", "double"))),
        values=False,
        autocast=draw(st.sampled_from((False, False, True))),
    )


@st.composite
def _rules(draw: st.DrawFn) -> Case:
    code = draw(
        st.sampled_from(
            (
                "x.exp().sum().backward() or x.grad",
                "torch.autograd.grad(x.square().sum(), x, create_graph=True)[0]",
                "torch.autograd.grad(x.square(), x, torch.ones_like(x))",
                "torch.autograd.grad(x.square(), x)",
                "torch.autograd.grad(x.sum(), (x, torch.ones(1, device=D, requires_grad=True)))",
                "torch.autograd.grad(x.sum(), torch.ones(1, device=D, requires_grad=True), allow_unused=True)",
                "torch.autograd.grad(x.square().sum(), x, is_grads_batched=True, grad_outputs=torch.ones(3, device=D))",
                "x.add_(1)",
                "x.detach().add_(1)",
                "x.view(-1)[:1].zero_()",
                "(lambda y: (y.exp_(), y.sum().backward()))(x.tanh())",
                "(lambda y: (y.sum().backward(), y.sum().backward()))(x.exp())",
                "(lambda y: (y.sum().backward(retain_graph=True), y.sum().backward()))(x.exp())",
                "x.sum().backward(torch.ones(3, device=D))",
                "x.long().requires_grad_()",
                "torch.no_grad()(lambda: x * 2)()",
                "torch.inference_mode()(lambda: x * 2)()",
                "torch.inference_mode()(lambda: torch.ones(2, device=D))().add_(x)",
                "torch.inference_mode()(lambda: torch.ones(2, device=D))() * x.sum()",
                "torch.set_grad_enabled(True)",
                "x.clone().requires_grad_(False)",
                "nn.Parameter(x.detach()).sum().backward()",
                "nn.utils.clip_grad_norm_([x.square().sum().backward() or x], 0.1)",
                "nn.utils.clip_grad_value_([x.square().sum().backward() or x], 0.1)",
                "nn.utils.parameters_to_vector([x, x])",
                "x.grad_fn",
                "x.exp().grad_fn.name()",
                "[str(n) for n in (x.exp() * 2).grad_fn.metadata]",
                "x.mul(2).is_leaf",
                "torch._C._functions.AccumulateGrad and x.retains_grad",
                "x.unsqueeze(0)._is_view(), x.unsqueeze(0)._base is x",
                "x.expand(2, *x.shape).sum().backward() or x.grad",
                "x.backward()",
                "x.register_hook(3)",
                "torch.autograd.backward([x.sum(), x.mean()])",
                "torch.autograd.set_detect_anomaly(False) and x.log().sum().backward()",
            )
        )
    )
    return Case(code, (("x", _leaf(draw)),))


CASES = st.one_of(_custom(), _hooks(), _module_hooks(), _checkpoint(), _rules(), _rules())
