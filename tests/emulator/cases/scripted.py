"""torch.jit: traced functions, frozen and saved modules; and torch.fx."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, layouts
from hypothesis import strategies as st

COUNT = 50
MODULES = (
    ("nn.Linear(3, 4)", (2, 3)),
    ("nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))", (4, 3)),
    ("nn.Conv2d(2, 3, 3)", (1, 2, 5, 5)),
    ("nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())", (2, 2, 5, 4)),
    ("nn.LSTM(3, 2)", (4, 2, 3)),
    ("nn.GRU(3, 2, batch_first=True)", (4, 2, 3)),
    ("nn.LayerNorm(3)", (2, 3)),
    ("nn.MaxPool2d(2)", (1, 2, 4, 4)),
    ("nn.Softmax(-1)", (2, 3)),
    ("nn.Embedding(5, 3)", (2, 3)),
    ("nn.Dropout(0.5)", (2, 3)),
    ("nn.TransformerEncoderLayer(4, 2, 8, 0.0)", (2, 3, 4)),
)
WAYS = (
    "torch.jit.script(layer)",
    "torch.jit.trace(layer, (x,), check_trace=False)",
    "torch.jit.freeze(torch.jit.script(layer.eval()))",
    "torch.jit.optimize_for_inference(torch.jit.script(layer.eval()))",
    "torch.fx.symbolic_trace(layer)",
    "saved(torch.jit.script(layer))",
    "copy.deepcopy(layer)",
    "torch.jit.trace_module(layer, {'forward': (x,)}, check_trace=False)",
)
SETUP = """
import copy, io, warnings
def saved(module):
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer, map_location=D)
"""


@st.composite
def _module(draw: st.DrawFn) -> Case:
    layer, shape = draw(st.sampled_from(MODULES))
    way = draw(st.sampled_from(WAYS))
    x = Input(shape, "float32", draw(layouts(len(shape))), draw(st.booleans()))
    if "Embedding" in layer:
        x = Input(shape, "int64", x.layout, False, "index", 5)
    times = "; ".join(["made(x)"] * draw(st.integers(0, 2)))  # the executor specialises after a call or two
    setup = f"{SETUP}layer = {layer}.to(D)\nmade = {way}\n{times}"
    inference = "eval" in way
    backward = "none" if inference else draw(st.sampled_from(("none", "sum", "dense")))
    return Case("made(x)", (("x", x),), setup, backward, values="Dropout" not in layer)


@st.composite
def _traced(draw: st.DrawFn) -> Case:
    shape = draw(st.sampled_from(((3,), (2, 3), (2, 3, 2))))
    x = Input(
        shape, draw(st.sampled_from(("float32", "float64"))), draw(layouts(len(shape))), draw(st.booleans())
    )
    body = draw(
        st.sampled_from(
            ("x * 2 + 1", "x.exp().sum(-1)", "torch.cat([x, x])", "x.view(-1).relu()", "F.softmax(x, 0)", "x.sigmoid() * x.tanh()", "x[0]", "torch.where(x > 0, x, x.new_zeros(()))", "(x @ x.mT) if x.dim() > 1 else x", "torch.zeros(2, device=x.device) + x.sum()")
        )
    )  # fmt: skip
    repeats = draw(st.integers(0, 2))
    setup = f"made = torch.jit.trace(lambda x: {body}, (x,), check_trace=False)\nfor _ in range({repeats}): made(x)"
    return Case("made(x)", (("x", x),), setup, draw(st.sampled_from(("none", "sum", "dense"))))


CASES = st.one_of(_module(), _module(), _traced())
