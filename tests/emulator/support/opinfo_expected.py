"""Where CUDA itself does not do what the CPU does, and who says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """A difference that real CUDA shows as well.

    Attributes:
        names: formatted names of OpInfos.
        kinds: kinds of difference (`outcome_comparison.Difference.kind`).
        reason: what CUDA does.
        source: where that is written, for torch 2.13.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    reason: str
    source: str


FFT = tuple(
    f"fft_{name}"
    for name in [
        "fft",
        "fft2",
        "fftn",
        "hfft",
        "hfft2",
        "hfftn",
        "rfft",
        "rfft2",
        "rfftn",
        "ifft",
        "ifft2",
        "ifftn",
        "ihfft",
        "ihfft2",
        "ihfftn",
        "irfft",
        "irfft2",
        "irfftn",
    ]
)

EXPECTED = (
    Expected(
        FFT,
        ("stride",),
        "cuFFT transforms a few dimensions at a time on a permuted copy and leaves the result permuted; "
        "a fresh out= is contiguous.",
        "torch/_meta_registrations.py, _exec_fft and meta_fft_c2c, after "
        "aten/src/ATen/native/cuda/SpectralOps.cpp",
    ),
    Expected(
        ("svd", "linalg_svd", "svd_lowrank", "pca_lowrank"),
        ("stride",),
        "cuSOLVER gives V, of which Vh is the transpose: rows are contiguous, LAPACK's columns are.",
        "torch/_meta_registrations.py, _linalg_svd_meta (`row_major=is_cuda`)",
    ),
    Expected(
        ("linalg_eig",),
        ("stride",),
        "Eigenvectors are row-major on CUDA.",
        "torch/_meta_registrations.py, meta_linalg_eig (`row_major=is_cuda`)",
    ),
    Expected(
        ("nonzero_static",),
        ("stride",),
        "CUDA writes [dimension, n] and transposes, as nonzero does.",
        "torch/_meta_registrations.py, nonzero_static; aten/src/ATen/native/cuda/Nonzero.cu",
    ),
    Expected(
        ("nn_functional_max_unpool2d", "nn_functional_max_unpool2d_grad"),
        ("stride",),
        "CUDA's kernel makes its input contiguous and its output as well; the CPU keeps channels-last.",
        "aten/src/ATen/native/cuda/MaxUnpooling.cu, max_unpooling2d_forward_out_cuda",
    ),
    Expected(
        ("nn_functional_scaled_dot_product_attention",),
        ("stride",),
        "The fused kernels on CUDA work on [batch, length, heads, head] and answer a transposed view.",
        "torch/_meta_registrations.py, meta__scaled_dot_product_efficient_attention; "
        "aten/src/ATen/native/transformers/cuda/attention.cu",
    ),
    Expected(
        ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"),
        ("shape", "dtype"),
        "CUDA's statistics are float32 for half precisions; in evaluation it hands out statistics of all "
        "channels, which it does not write, the CPU none.",
        "aten/src/ATen/native/cuda/Normalization.cu, batch_norm_cuda (toAccumulateType)",
    ),
)


def expected_difference(name: str, kind: str) -> Expected | None:
    """The entry that covers a kind of difference of an OpInfo."""
    return next((entry for entry in EXPECTED if name in entry.names and kind in entry.kinds), None)
