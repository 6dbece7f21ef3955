"""Where CUDA differs from the CPU by right, or the emulated device by design: each with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agreement import Disagreement
from generated_case import Case


@dataclass(frozen=True)
class Difference:
    """A difference that is no fault.

    Attributes:
        code: regular expression searched in the case's text.
        aspect: regular expression that the differing aspect matches whole.
        cpu, device: regular expressions searched in what each side showed.
        runs: "both", or "unknown" where only tensors without values differ.
        reason: why, in one sentence.
        source: file of torch, its documentation, or our design page.
    """

    code: str
    aspect: str
    cpu: str
    device: str
    reason: str
    source: str
    runs: str = "both"

    def explains(self, case: Case, found: Disagreement) -> bool:
        """Is this that difference?"""
        return (
            (self.runs == "both" or found.values == self.runs)
            and re.fullmatch(self.aspect, found.aspect) is not None
            and re.search(self.code, str(case), re.DOTALL) is not None
            and re.search(self.cpu, found.cpu, re.DOTALL) is not None
            and re.search(self.device, found.device, re.DOTALL) is not None
        )


DIFFERENCES = (
    Difference(
        r"pool3d|local_response_norm|histc|antialias",
        "error",
        r"NotImplementedError.*(avg_pool3d|histogram_cpu|compute_index_ranges).* not implemented for",
        "no error",
        "The CPU kernel was not compiled for this dtype, the CUDA kernel was.",
        "aten/src/ATen/native/cuda/{AveragePool3d,SummaryOps,UpSample*}.cu: AT_DISPATCH macros",
    ),
    Difference(
        "pack_sequence|pad_packed|pack_padded",
        r"out.*\.device",
        "device",
        "host",
        "Lengths and batch sizes of packed sequences stay on the host.",
        "torch/nn/utils/rnn.py: 'batch_sizes should always be a CPU torch.int64 tensor'",
    ),
    Difference(
        "embedding_bag",
        "error",
        r"offsets\[0\] has to be 0",
        "no error",
        "The CUDA kernel does not read the offsets on the host, so it cannot check them.",
        "aten/src/ATen/native/cuda/EmbeddingBag.cu: _embedding_bag_cuda",
    ),
    Difference(
        "conv_transpose",
        "error",
        "Output size is too small",
        "no error",
        "cuDNN's path returns an output without elements; only the CPU's own kernel refuses to.",
        "aten/src/ATen/native/cudnn/ConvShared.cpp: raw_cudnn_convolution_backward_input_out returns early",
    ),
    Difference(
        r"torch\.fft\.|torch\.stft|torch\.istft",
        r".*\.stride",
        r"\(",
        r"\(",
        "cuFFT transforms several dimensions in an order of its own and leaves the result in it.",
        "aten/src/ATen/native/cuda/SpectralOps.cpp: _exec_fft; torch/_meta_registrations.py: _exec_fft",
    ),
    Difference(
        "nn.RNN|nn.GRU|nn.LSTM",
        "error",
        "no error",
        "Cannot access data pointer of Tensor that doesn't have storage",
        "On CUDA the module asks its weights for addresses, which torch.func's wrapped ones do not have.",
        "torch/nn/modules/rnn.py: flatten_parameters",
    ),
    Difference(
        r"dist\.\w+\(",
        "error",
        "ValueError.*Expected parameter|ValueError.*Expected value",
        "no error",
        "Values nobody computed are those of a healthy run: they satisfy a distribution's constraints.",
        "design/emulator.md: 'Unknown values have a policy'",
        runs="unknown",
    ),
    Difference(
        "linalg",
        "error",
        "_LinAlgError",
        "no error",
        "A factorization of values nobody computed is taken to succeed.",
        "design/emulator.md: 'linalg_* info is a known zero'",
        runs="unknown",
    ),
    Difference(
        "sparse=True",
        r".*grad\.sparse",
        "True",
        "False",
        "CUDA adds sparse tensors by joining their lists; the CPU merges lists in order and keeps the order.",
        "aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu: add_out_sparse_cuda",
    ),
)
