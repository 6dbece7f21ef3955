"""Attention: the functional form under each backend, masks, grouped queries, and the layers built on it."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards
from hypothesis import strategies as st

COUNT = 80
BACKENDS = "from torch.nn.attention import SDPBackend, sdpa_kernel"


@st.composite
def _functional(draw: st.DrawFn) -> Case:
    batch, heads = draw(st.integers(1, 2)), draw(st.sampled_from((1, 2, 4)))
    length, source = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    grouped = draw(st.sampled_from((False, False, False, True)))
    inner = heads // 2 if grouped and heads > 1 else heads
    head, value = draw(st.sampled_from((4, 8, 16))), draw(st.sampled_from((8, 8, 16)))
    dtype = draw(st.sampled_from(("float32", "float32", "float64", "bfloat16", "float16")))
    grad = draw(st.booleans())
    layout = draw(st.sampled_from(("contiguous", "contiguous", "transposed", "sliced")))
    wrong = draw(st.sampled_from((0,) * 9 + (1,)))
    inputs = [
        ("q", Input((batch, heads, length, head), dtype, layout, grad)),
        ("k", Input((batch, inner, source, head + wrong), dtype, layout, grad)),
        ("v", Input((batch, inner, source, value), dtype, layout, grad)),
    ]
    mask = draw(st.sampled_from(("none", "none", "causal", "bool", "float", "both")))
    options = ""
    if mask in ("bool", "float", "both"):
        shape = draw(
            st.sampled_from(((length, source), (batch, 1, length, source), (batch, heads, 1, source)))
        )
        values = "mask" if mask == "bool" else "normal"
        inputs.append(("m", Input(shape, "bool" if mask == "bool" else dtype, grad=False, values=values)))
        options += ", attn_mask=m"
    if mask in ("causal", "both"):
        options += ", is_causal=True"
    if grouped:
        options += ", enable_gqa=True"
    if draw(st.booleans()):
        options += ", scale=0.5"
    # Only the math backend lays its output out as the CPU does; the fused ones are compared in test_attention.
    setup = f"{BACKENDS}\nwith sdpa_kernel(SDPBackend.MATH):\n    out = F.scaled_dot_product_attention(q, k, v{options})"
    return Case("out", tuple(inputs), setup, draw(st.sampled_from(("none", "sum", "dense", "double"))))


@st.composite
def _layer(draw: st.DrawFn) -> Case:
    heads, width = draw(st.sampled_from(((1, 4), (2, 8), (4, 8)))), draw(st.booleans())
    count, embed = heads
    first = draw(st.booleans())
    batch, length, source = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    key = embed if draw(st.booleans()) else embed + 2
    options = f"batch_first={first}, bias={draw(st.booleans())}, add_zero_attn={draw(st.booleans())}"
    options += f", kdim={key}, vdim={key}" if key != embed else ""
    setup = f"{BACKENDS}\nlayer = nn.MultiheadAttention({embed}, {count}, {options}).to(D)"

    def shape(length: int, width: int) -> tuple[int, ...]:
        return (batch, length, width) if first else (length, batch, width)

    wrong = draw(st.sampled_from((0,) * 7 + (1,)))
    inputs = [("q", Input(shape(length, embed + wrong))), ("k", Input(shape(source, key)))]
    extra = f", need_weights={draw(st.booleans())}, average_attn_weights={width}"
    if draw(st.booleans()):
        inputs.append(("m", Input((length, source), "bool", grad=False, values="mask")))
        extra += ", attn_mask=m & False"
    if draw(st.booleans()):
        extra += f", key_padding_mask=torch.zeros({batch}, {source}, dtype=torch.bool, device=D)"
    setup += f"\nwith sdpa_kernel(SDPBackend.MATH):\n    out = layer(q, k, k{extra})"
    return Case("out", tuple(inputs), setup, draw(backwards()))


@st.composite
def _transformer(draw: st.DrawFn) -> Case:
    first, norm = draw(st.booleans()), draw(st.booleans())
    kind = draw(st.sampled_from(("Encoder", "Decoder", "Stack", "Whole")))
    common = f"8, 2, dim_feedforward=8, dropout=0.0, batch_first={first}, norm_first={norm}"
    activation = f", activation={draw(st.sampled_from(('relu', 'gelu')))!r}"
    layers = {
        "Encoder": f"nn.TransformerEncoderLayer({common}{activation})",
        "Decoder": f"nn.TransformerDecoderLayer({common}{activation})",
        "Stack": f"nn.TransformerEncoder(nn.TransformerEncoderLayer({common}), 2, enable_nested_tensor=False)",
        "Whole": "nn.Transformer(8, 2, 1, 1, 8, 0.0, batch_first=True)",
    }
    mode = draw(st.sampled_from(("", "", ".eval()")))
    setup = f"{BACKENDS}\nlayer = {layers[kind]}.to(D){mode}"
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    x = Input((batch, length, 8), grad=draw(st.booleans()))
    call = "layer(x, x)" if kind in ("Decoder", "Whole") else "layer(x)"
    if kind in ("Encoder", "Stack") and draw(st.booleans()):
        side = length if first else batch
        call = f"layer(x, nn.Transformer.generate_square_subsequent_mask({side}, device=D))"
    setup += f"\nwith sdpa_kernel(SDPBackend.MATH):\n    out = {call}"
    return Case("out", (("x", x),), setup, draw(backwards()))


CASES = st.one_of(_functional(), _functional(), _layer(), _transformer())
