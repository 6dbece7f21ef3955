"""Random tensors, distributions and dropout: everything but the numbers themselves is compared."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 80


@st.composite
def _factory(draw: st.DrawFn) -> Case:
    shape = list(draw(st.tuples(*[st.sampled_from((1, 2, 3, 0, 5))] * draw(st.integers(0, 3)))))
    dtype = draw(st.sampled_from(("float32", "float64", "bfloat16", "int64", "complex64")))
    generator = draw(
        st.sampled_from(
            ("", ", generator=torch.Generator(D)", ", generator=torch.Generator(D).manual_seed(3)")
        )
    )
    code = draw(
        st.sampled_from(
            (
                f"torch.rand({shape}, device=D, dtype=torch.{dtype}{generator})",
                f"torch.randn({shape}, device=D, dtype=torch.{dtype}{generator})",
                f"torch.randint({draw(st.integers(-2, 3))}, 3, {shape}, device=D{generator})",
                f"torch.randint(0, 5, {shape}, device=D, dtype=torch.{dtype}{generator})",
                f"torch.randperm({draw(st.sampled_from((0, 1, 7, -1)))}, device=D{generator})",
                f"torch.normal(0.0, {draw(st.sampled_from((1.0, -1.0)))}, {shape}, device=D{generator})",
                f"torch.empty({shape}, device=D, dtype=torch.{dtype}).uniform_({draw(st.sampled_from(('0, 1', '1, 0')))})",
                f"torch.rand({shape}, device=D, requires_grad=True).mul(2)",
                f"torch.empty({shape}, device=D, dtype=torch.{dtype}).normal_(0, 2{generator})",
                f"torch.empty({shape}, device=D, dtype=torch.{dtype}).random_(0, 4{generator})",
                f"torch.empty({shape}, device=D).bernoulli_({draw(st.sampled_from((0.5, 1.5)))}{generator})",
                f"nn.init.trunc_normal_(torch.empty({shape}, device=D))",
                f"nn.init.kaiming_uniform_(torch.empty({shape}, device=D))",
                f"nn.init.orthogonal_(torch.empty({shape}, device=D))",
                f"nn.init.xavier_normal_(torch.empty({shape}, device=D))",
            )
        )
    )
    return Case(code, values=False)


@st.composite
def _from_tensor(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(1, 3))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 4))] * dims))
    x = Input(
        shape,
        draw(st.sampled_from(("float32", "float32", "float64", "bfloat16"))),
        draw(layouts(dims)),
        draw(st.booleans()),
        "unit",
    )
    p = draw(st.sampled_from((0.0, 0.3, 1.0, 1.5)))
    train = draw(st.booleans())
    code = draw(
        st.sampled_from(
            (
                "torch.rand_like(x)",
                "torch.randn_like(x, memory_format=torch.contiguous_format)",
                "torch.randint_like(x, 5)",
                "torch.bernoulli(x)",
                f"torch.bernoulli(x, {p})",
                "torch.poisson(x)",
                "torch.normal(x, x + 1)",
                "torch.normal(x, 2.0)",
                f"torch.multinomial(x, {draw(st.sampled_from((1, 2, 9)))}, replacement={train})",
                f"F.dropout(x, {p}, {train})",
                f"F.dropout1d(x, {p}, {train})",
                f"F.feature_alpha_dropout(x, {p}, {train})",
                f"F.alpha_dropout(x, {p}, {train})",
                f"F.rrelu(x, training={train})",
                f"F.dropout(x.clone(), {p}, {train}, inplace=True)",
                "F.gumbel_softmax(x, hard=True)",
                "x.detach().clone().exponential_()",
                "x.detach().clone().geometric_(0.5)",
                "x.detach().clone().cauchy_()",
                "x.detach().clone().log_normal_()",
                "torch.binomial(x.round() * 3, x)",
                "x.new_empty((2, 3)).normal_()",
                "x[..., torch.randperm(x.shape[-1], device=D)]",
            )
        )
    )
    return Case(code, (("x", x),), backward=draw(backwards()), values=False)


@st.composite
def _distribution(draw: st.DrawFn) -> Case:
    shape = draw(st.sampled_from(((), (3,), (2, 3), (2, 2))))
    a = Input(
        shape, draw(st.sampled_from(("float32", "float64"))), grad=draw(st.booleans()), values="positive"
    )
    sample = list(draw(st.sampled_from(((), (4,), (2, 1)))))
    simple = ("Normal(a, a)", "LogNormal(a, a)", "Gamma(a, a)", "Beta(a, a)", "Exponential(a)", "Laplace(a, a)", "Cauchy(a, a)", "Gumbel(a, a)", "StudentT(a + 2)", "Uniform(-a, a)", "Chi2(a)", "HalfNormal(a)", "Weibull(a, a)", "Pareto(a, a)", "Kumaraswamy(a, a)", "FisherSnedecor(a + 4, a + 4)", "VonMises(a.detach(), a.detach())")  # fmt: skip
    discrete = ("Poisson(a)", "Geometric(a / (a + 1))", "Bernoulli(logits=a)", "Binomial(4, logits=a)", "NegativeBinomial(3, logits=a)", "ContinuousBernoulli(logits=a)")  # fmt: skip
    vector = ("Categorical(logits=a)", "OneHotCategorical(logits=a)", "Dirichlet(a)", "Multinomial(3, logits=a)", "RelaxedOneHotCategorical(a.new_tensor(1.0), logits=a)", "MultivariateNormal(a, torch.diag_embed(a))", "LowRankMultivariateNormal(a, a.unsqueeze(-1), a)")  # fmt: skip
    kind = draw(st.sampled_from(("simple", "simple", "discrete", "vector", "bad")))
    if kind == "bad":
        code = draw(
            st.sampled_from(
                (
                    "Normal(a, -a)",
                    "Categorical(probs=-a)",
                    "Bernoulli(a + 2)",
                    "Dirichlet(-a)",
                    "Uniform(a, -a)",
                )
            )
        )
        return Case(f"dist.{code}.sample()", (("a", a),), "import torch.distributions as dist", values=False)
    made = draw(st.sampled_from({"simple": simple, "discrete": discrete, "vector": vector}[kind]))
    setup = f"import torch.distributions as dist; d = dist.{made}; s = d.sample({sample})"
    uses = ["(s, d.log_prob(s))", "(d.mean, d.variance)", "(d.batch_shape, d.event_shape, s)"]
    if kind == "simple" and "VonMises" not in made:
        uses.append(f"d.rsample({sample})")
    if made.startswith(
        ("Normal", "Gamma", "Laplace", "Beta", "Categorical", "Dirichlet", "Multivariate", "Bernoulli")
    ):
        uses.append("d.entropy()")
        uses.append("dist.kl_divergence(d, d)")
    return Case(draw(st.sampled_from(uses)), (("a", a),), setup, draw(backwards()), values=False)


@st.composite
def _state(draw: st.DrawFn) -> Case:
    setup = draw(
        st.sampled_from(
            (
                "g = torch.Generator(D).manual_seed(7); a = torch.rand(3, device=D, generator=g)",
                "g = torch.Generator(D); g.manual_seed(1); b = g.clone_state() if hasattr(g, 'clone_state') else g",
                "g = torch.Generator(D).manual_seed(2); s = g.get_state(); torch.rand(2, device=D, generator=g); g.set_state(s)",
            )
        )
    )
    code = draw(
        st.sampled_from(
            (
                "(torch.rand(5, device=D, generator=g), g.initial_seed())",
                "g.get_state().dtype",
                "g.device.type == torch.device(D).type",
                "torch.rand(3, device=D, generator=torch.Generator('meta' if D else D))",
            )
        )
    )
    return Case(code, (), setup, values=False)


CASES = st.one_of(_factory(), _from_tensor(), _distribution(), _distribution(), _state())
