"""LSTM, GRU and RNN: layers, directions, projections, packed sequences, cells, and mistaken states."""

from __future__ import annotations

from generated_case import Case, Input, backwards
from hypothesis import strategies as st

COUNT = 80


@st.composite
def _network(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(("LSTM", "LSTM", "GRU", "RNN")))
    width, hidden, layers = draw(st.integers(1, 5)), draw(st.integers(2, 6)), draw(st.integers(1, 2))
    both, first = draw(st.booleans()), draw(st.booleans())
    batch, length = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    projection = draw(st.sampled_from((0, 0, 1))) if kind == "LSTM" else 0
    dropout = 0.5 if layers > 1 and draw(st.booleans()) else 0.0
    options = f"num_layers={layers}, bidirectional={both}, batch_first={first}, bias={draw(st.booleans())}"
    if kind == "RNN":
        options += f", nonlinearity={draw(st.sampled_from(('tanh', 'relu')))!r}"
    if projection:
        options += f", proj_size={projection}"
    if dropout:
        options += f", dropout={dropout}"
    dtype = draw(st.sampled_from(("float32", "float32", "float64")))
    setup = f"layer = nn.{kind}({width}, {hidden}, {options}).to(D, torch.{dtype})"
    mode = draw(st.sampled_from(("train", "train", "eval", "frozen")))
    if mode == "eval":
        setup += ".eval()"
    elif mode == "frozen":
        setup += "; layer.requires_grad_(False)"
    mistake = draw(st.sampled_from((None,) * 6 + ("width", "state", "dims", "dtype")))
    shape: tuple[int, ...] = (batch, length) if first else (length, batch)
    unbatched = draw(st.sampled_from((False, False, False, True)))
    shape = (length,) if unbatched else shape
    shape = (*shape, width + (1 if mistake == "width" else 0))
    shape = (1, 1, *shape) if mistake == "dims" else shape
    other = "float64" if dtype == "float32" else "float32"
    layout = draw(st.sampled_from(("contiguous", "transposed", "sliced")))
    inputs = [("x", Input(shape, other if mistake == "dtype" else dtype, layout, draw(st.booleans())))]
    code = "layer(x)"
    if draw(st.booleans()) or mistake == "state":
        state = (layers * (2 if both else 1), *(() if unbatched else (batch,)))
        out = projection or hidden
        h = Input((*state, out + (1 if mistake == "state" else 0)), dtype, grad=draw(st.booleans()))
        inputs.append(("h", h))
        if kind == "LSTM":
            inputs.append(("c", Input((*state, hidden), dtype, grad=draw(st.booleans()))))
        code = "layer(x, (h, c))" if kind == "LSTM" else "layer(x, h)"
    backward = draw(backwards())
    # Without training cuDNN keeps nothing for a backward pass, and says so; the CPU does not need it.
    if mode == "eval":
        backward = "none"
    return Case(code, tuple(inputs), setup, backward, values=dropout == 0.0)


@st.composite
def _packed(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(("LSTM", "GRU", "RNN")))
    width, hidden, layers = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    both, first = draw(st.booleans()), draw(st.booleans())
    ordered = draw(st.booleans())
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    if ordered:
        lengths.sort(reverse=True)
    if draw(st.sampled_from((False,) * 7 + (True,))):
        lengths[0] = 0  # refused
    longest = max(lengths)
    shape = (len(lengths), longest, width) if first else (longest, len(lengths), width)
    given = draw(st.sampled_from((str(lengths), f"torch.tensor({lengths})")))
    setup = (
        "from torch.nn.utils.rnn import pack_padded_sequence as pack, pad_packed_sequence as pad\n"
        f"layer = nn.{kind}({width}, {hidden}, {layers}, bidirectional={both}, batch_first={first}).to(D)\n"
        f"packed = pack(x, {given}, batch_first={first}, enforce_sorted={ordered})\n"
        "out, state = layer(packed)"
    )
    code = draw(
        st.sampled_from((f"(pad(out, batch_first={first}), state)", "(out, state)", "(out.data, state)"))
    )
    x = Input(shape, grad=draw(st.booleans()))
    return Case(code, (("x", x),), setup, draw(backwards()))


@st.composite
def _cell(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(("LSTMCell", "GRUCell", "RNNCell")))
    width, hidden, batch = (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 5)),
        draw(st.sampled_from((1, 2, 3, 0))),
    )
    wrong = draw(st.sampled_from((0, 0, 0, 0, 1)))
    inputs = [("x", Input((batch, width + wrong), grad=draw(st.booleans())))]
    code = "layer(x)"
    if draw(st.booleans()):
        inputs.append(("h", Input((batch, hidden))))
        code = "layer(x, (h, h * 2))" if kind == "LSTMCell" else "layer(x, h)"
    setup = f"layer = nn.{kind}({width}, {hidden}, bias={draw(st.booleans())}).to(D)"
    return Case(code, tuple(inputs), setup, draw(backwards()))


@st.composite
def _sequences(draw: st.DrawFn) -> Case:
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    inputs = tuple((f"s{n}", Input((length, 2))) for n, length in enumerate(lengths))
    listed = "[" + ", ".join(name for name, _ in inputs) + "]"
    setup = "import torch.nn.utils.rnn as rnn"
    code = draw(
        st.sampled_from(
            (
                f"rnn.pad_sequence({listed}, batch_first={draw(st.booleans())}, padding_value=1.5)",
                f"rnn.pack_sequence({listed}, enforce_sorted=False)",
                f"rnn.unpad_sequence(rnn.pad_sequence({listed}), torch.tensor({lengths}))",
                f"rnn.unpack_sequence(rnn.pack_sequence({listed}, enforce_sorted=False))",
                f"rnn.pack_sequence({listed}, enforce_sorted=False).to(torch.float64).data",
            )
        )
    )
    return Case(code, inputs, setup, draw(backwards()))


CASES = st.one_of(_network(), _network(), _packed(), _cell(), _sequences())
