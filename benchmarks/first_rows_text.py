"""What `first_rows.md` says in words: how the rows were run, judgements of the errors, differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

HEAD = """# First comparison with reality

Made by `benchmarks/first_rows.py`. Measured: NVIDIA DeepLearningExamples, PyTorch, READMEs of ResNet-50
v1.5 (container 21.03) and BERT (21.11), rows of `../shared/data/e2e/measured.csv.gz`. Predicted: `maya run`
of `resnet50_train.py` and `bert_squad_train.py` with stock settings. Neither scripts nor kernel models were
fitted to these rows: the models rest on kernel times only (`roofline_accuracy.md`). A smoke check of units
and logic, not the accuracy goal; the bar for the four rows asked for is 25%."""

PARTS = """The last column asks what a single part would have to be multiplied by for the prediction to meet
the measurement, everything else as predicted. Data loading is taken as keeping up: ResNet's (DALI) ran in
the background, BERT's in the training process, about 1 ms a step by our estimate."""

VARIANTS = """Their GELU is a scripted function of six operations. Whether the container's fuser merged
them, forward and backward, cannot be told from the README. The tables above assume the best fusion (PyTorch's
own GELU kernels), as was decided before any error was known; this one assumes none, as Maya records
the function. Reality lies between. That no fusion meets all four rows so much better, on two GPUs and in
three precisions, is why we think that theirs ran unfused, at least backward."""

SEVERAL = """Judgement: what eight GPUs add to one. Gradients' all-reduce hides behind backward almost
wholly in the prediction (0.1 to 0.3 ms exposed; 1 to 3% with compute slowed beside it). Measured it is as
little for ResNet in TF32 and float32 (3 to 4%) and BERT on A100 (4 to 5%), but 9 to 12% for BERT on V100:
there overlap is predicted too well, or apex's DistributedDataParallel, which they used, overlaps less than
PyTorch's. ResNet in half precision adds 19% on A100 and 15% on V100, predicted 3% and 2%: eight ranks then
read 8,300 to 16,600 images a second through DALI, which the prediction takes as keeping up. The same
gradients cost little in TF32, so we think that data loading carries this difference; the READMEs do not
separate them."""

JUDGEMENTS = {
    "e2e-00841": """Judgement: what was run, more than how fast it was taken to be. No single family explains
the error within its interval. Unfused GELU is worth 48 of the 67 ms missing (table above). Of the rest some
5-10 ms are Python after synchronisations, which the prediction leaves out (apex walks 400 parameters after
reading the overflow flag and the norm; estimated, not measured), and the products may be a little too fast:
no row of the data has the weight gradient's shape 1024x1024x12288 on A100. The interval is of kernels and
launches alone and does not hold a difference in what was run.""",
    "e2e-00853": """Judgement: as for the A100: unfused GELU is worth 53 of the 54 ms missing. On the other
side, column sums (`reduction`, 5% of the time at a quarter of the bandwidth, fitted to small sums in traces)
are probably too slow.""",
    "e2e-00678": """Judgement: kernels; host and loading show for 2%. Convolutions (43%) carry the doubt: no
half-precision convolution was measured on Ampere, so TF32 channels-last kernels of one A100 trace (of 32
images) stand in. Norms and element-wise kernels run at 78-90% of the bandwidth, which leaves little room.
Before this comparison the row came out 41% too slow, from three faults in kernel models that the data showed
without it: max pooling at 3% of the bandwidth (a channels-first H100 kernel scaled by the float32 peak),
batch norm limited to one block a channel although channels are last, and convolutions carried over from the
T4, whose 70 W hold it far below its clock. The interval's upper end is too high: it comes from batch norms of
7x7 images, which the model takes for twice too fast, and is applied to large ones too.""",
    "e2e-00682": """Judgement: kernels. The error is well within what V100 convolutions, fitted to DeepBench
on this very GPU, show on held-out channel pairs (17% in the median).""",
    "e2e-00677": """Judgement: TF32 convolutions and their layout conversions, fitted to one A100 trace of a
later cuDNN than the container's.""",
    "e2e-00840": "Judgement: unfused GELU is worth all of it (table above).",
    "e2e-00852": "Judgement: unfused GELU is worth most of it (table above).",
}

DIFFERENCES = """## What differs from what they ran, and what it is worth

| difference | worth, estimated |
|---|---|
| PyTorch 2.13's operators for 1.9's and 1.11's; kernel data of 2019 to 2025 | unknown |
| BERT: GELU taken as fused; theirs scripted | 0 to +48 ms (fp16), see the table |
| BERT: Python of apex between synchronisations is left out | +5 to +10 ms |
| BERT: `native_layer_norm` for apex's FusedLayerNorm, whose backward was slower then | 0 to +4 ms |
| BERT: fused AdamW and foreach calls for apex's kernels, as many passes over memory | 0 |
| BERT: loss scale and clipping in one multiplication; theirs clips apart | +1 to +3 ms |
| BERT: random tokens without padding; theirs padded to 384, all positions computed | 0 |
| ResNet: images already on the GPU; theirs from DALI, which may use the GPU | 0 to +3% |
| ResNet: cross entropy with label smoothing for their own module | 0 |
| both: READMEs average whole runs, warm-up included | 0 to +3% |"""


def summary(errors: Sequence[float], inside: int) -> str:
    """Errors of some rows in a sentence."""
    size = np.abs(errors)
    return (
        f"{len(errors)} rows: median |error| {100 * np.median(size):.1f}%, largest {100 * size.max():.1f}%, "
        f"median signed {100 * np.median(errors):+.1f}%; {inside} of {len(errors)} measurements lie in the "
        "80% interval."
    )
