"""Fourier transforms and complex numbers."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from generated_case import Case, Input, backwards, layouts
from hypothesis import strategies as st

COUNT = 80


@st.composite
def _transform(draw: st.DrawFn) -> Case:
    name = draw(
        st.sampled_from(
            ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn", "hfft2", "ihfftn")
        )
    )  # fmt: skip
    dims = draw(st.integers(1, 4))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5, 6))] * dims))
    real = name.startswith(("rfft", "ihfft"))
    dtype = draw(st.sampled_from(("float32", "float64") if real else ("complex64", "float32", "complex128")))
    if not draw(st.integers(0, 9)):
        dtype = draw(st.sampled_from(("complex64", "int64", "bool", "bfloat16")))
    x = Input(shape, dtype, draw(layouts(dims)), draw(st.booleans()))
    norm = draw(
        st.sampled_from(
            ("None", "'ortho'", "'forward'", "'wrong'" if not draw(st.integers(0, 5)) else "None")
        )
    )
    if name.endswith("2"):
        extra = draw(st.sampled_from(("", ", s=(4, 3)", ", dim=(0, 1)", ", s=(-1, 5)")))
    elif name.endswith("n"):
        extra = draw(st.sampled_from(("", ", s=(4,)", ", dim=(0,)", ", dim=(-1, 0)", ", dim=(0, 0)")))
    else:
        extra = draw(st.sampled_from(("", ", n=4", ", n=7", ", dim=0", ", dim=-2", ", n=0")))
    return Case(f"torch.fft.{name}(x{extra}, norm={norm})", (("x", x),), backward=draw(backwards()))


@st.composite
def _helper(draw: st.DrawFn) -> Case:
    shape = draw(st.sampled_from(((32,), (2, 40), (3, 33))))
    x = Input(
        shape, draw(st.sampled_from(("float32", "float64"))), draw(layouts(len(shape))), draw(st.booleans())
    )
    options = f"center={draw(st.booleans())}, onesided=True, normalized={draw(st.booleans())}"
    code = draw(
        st.sampled_from(
            (
                f"torch.stft(x, 16, hop_length={draw(st.sampled_from((4, 5)))}, {options}, return_complex=True, window=torch.ones(16, device=D, dtype=x.dtype))",
                "torch.istft(torch.stft(x, 16, return_complex=True, window=torch.hann_window(16, device=D, dtype=x.dtype)), 16, window=torch.hann_window(16, device=D, dtype=x.dtype))",
                "torch.fft.fftshift(x)",
                "torch.fft.ifftshift(x, dim=0)",
                "torch.fft.fftfreq(9, d=0.5, device=D)",
                "torch.fft.rfftfreq(8, device=D, dtype=torch.float64)",
                "torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x).conj(), n=x.shape[-1])",
            )
        )
    )
    return Case(code, (("x", x),), backward=draw(backwards()))


@st.composite
def _complex(draw: st.DrawFn) -> Case:
    dims = draw(st.integers(0, 3))
    shape = draw(st.tuples(*[st.sampled_from((1, 2, 3, 0))] * dims))
    z = Input(
        shape, draw(st.sampled_from(("complex64", "complex128"))), draw(layouts(dims)), draw(st.booleans())
    )
    r = Input(
        shape, "float32" if z.dtype == "complex64" else "float64", draw(layouts(dims)), draw(st.booleans())
    )
    code = draw(
        st.sampled_from(
            (
                "z.real", "z.imag", "z.conj()", "z.conj() * z", "z.abs()", "z.angle()", "torch.view_as_real(z)", "z.conj().resolve_conj()",
                "torch.complex(r, r)", "torch.polar(r, r)", "z + r", "z * 2j", "z / (1 + 1j)", "z.sum()", "z.mean()", "z.exp()", "z.log()", "z ** 2",
                "z.conj().imag", "z.real.add(1)", "z.to(torch.complex128)", "z == z", "z < z", "z.max()", "z.sort()", "z.clamp(0, 1)", "z.isreal()", "z.H if z.dim() == 2 else z.mH",
                "z.sgn()", "z.reciprocal()", "z.sqrt()", "z.tanh()", "z.sigmoid()", "z.float()", "z.prod()", "z.cumsum(0)", "torch.where(r > 0, z, r)", "torch.isclose(z, z)",
                "z.norm()", "z.var()", "z.neg()", "z.imag.neg()", "z.clone().conj_physical_()", "z.vdot(z) if z.dim() == 1 else z", "torch.view_as_complex(torch.stack([r, r], -1))",
                "z.floor()", "z.remainder(2)", "torch.stack([z, z.conj()])", "torch.cat([z.flatten(), r.flatten()])", "z.tan().cos().sinh()", "z.nonzero()", "z.item() if z.numel() == 1 else z",
            )
        )
    )  # fmt: skip
    inputs = [("z", z)] if "z" in code else []
    inputs += [("r", r)] if "(r" in code or " r" in code or "[r" in code else []
    return Case(code, tuple(inputs), backward=draw(backwards()))


CASES = st.one_of(_transform(), _complex(), _complex(), _helper())
