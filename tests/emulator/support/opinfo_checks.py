"""One OpInfo of PyTorch's own test-suite, really on the CPU and on the emulated GPU.

Importing this installs the device first: the OpInfos ask at import which GPU there is.
"""

from __future__ import annotations

import sys
import types
import unittest
import warnings
from dataclasses import dataclass, field
from typing import Any

import emulated_gpu  # noqa: F401 - before the OpInfos
import torch
from moved_inputs import Mover
from outcome_comparison import Difference, Outcome, compare, compare_leaves, run, tensors_in
from random_draws import RandomDraws
from torch import Tensor

_draws = RandomDraws()


def _import_opinfos() -> list[Any]:
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:
        # Only the base class of PyTorch's test cases, of which none runs here.
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    import torch.testing._utils
    from torch.testing._internal import common_methods_invocations

    _draws.watch(torch.testing._utils)
    return [op for op in common_methods_invocations.op_db if op.dtypesIfCUDA]


OPINFOS = _import_opinfos()
"""Every OpInfo with a CUDA kernel."""

SECOND_DTYPES = (torch.int64, torch.complex64, torch.bfloat16, torch.bool, torch.float64, torch.float16)
SEED = 0
IN_PLACE_SAMPLES = 8
OUT_SAMPLES = 4
UNWRITTEN = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
"""Operators whose result nobody wrote."""
HOST_ARGUMENTS = ("tensor_split",)
"""Operators that want their other tensors on the host."""


@dataclass(frozen=True)
class Finding:
    """A difference in one call."""

    check: str  # forward, backward, in place, out=, error input
    dtype: str
    sample: int
    difference: Difference

    def __str__(self) -> str:
        return f"{self.check}, {self.dtype}, sample {self.sample}: {self.difference}"


@dataclass
class Agreement:
    """What came of all calls of one OpInfo."""

    name: str
    calls: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, check: str, dtype: torch.dtype | None, sample: int, differences: list[Difference]) -> None:
        """Count a call and keep its differences."""
        self.calls += 1
        told = str(dtype).removeprefix("torch.")
        self.findings += [Finding(check, told, sample, difference) for difference in differences]


def dtypes_of(op: Any) -> list[torch.dtype]:
    """float32 or else the first dtype that CPU and CUDA both have, and another one if there is one."""
    # An operator that only CUDA has may still run on the CPU.
    both = set(op.dtypes) & set(op.dtypesIfCUDA) or set(op.dtypesIfCUDA)
    order = sorted(both, key=str)
    main = torch.float32 if torch.float32 in both else order[0] if order else None
    turn = sum(op.formatted_name.encode()) % len(SECOND_DTYPES)
    others = [d for d in SECOND_DTYPES[turn:] + SECOND_DTYPES[:turn] if d in both and d != main]
    return [dtype for dtype in (main, *others[:1]) if dtype is not None]


def check_opinfo(op: Any, samples: int | None = None, error_inputs: bool = True) -> Agreement:
    """Compare all calls of an OpInfo, or the first `samples` of each dtype."""
    agreement = Agreement(op.formatted_name)
    torch.set_num_threads(1)
    dtypes = dtypes_of(op)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in dtypes:
            differentiable = _is_differentiable(op, dtype)
            for index, sample in enumerate(_samples(op, dtype, differentiable)):
                if samples is not None and index >= samples:
                    break
                _check_sample(op, agreement, dtype, index, sample, differentiable)
        if error_inputs and op.error_inputs_func is not None:
            _check_error_inputs(op, agreement)
    return agreement


def _is_differentiable(op: Any, dtype: torch.dtype) -> bool:
    continuous = dtype.is_floating_point or dtype.is_complex
    both = set(op.backward_dtypesIfCUDA) & set(op.backward_dtypes)
    return bool(op.supports_autograd and continuous and dtype in both)


def _samples(op: Any, dtype: torch.dtype, requires_grad: bool) -> list[Any]:
    torch.manual_seed(SEED)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    if op.name != "linalg.lstsq":
        return samples
    # The only driver that CUDA has; the OpInfo gives the CPU others as well.
    kept = [sample for sample in samples if sample.kwargs.get("driver") in (None, "gels")]
    for sample in kept:
        sample.kwargs["driver"] = "gels"
    return kept


def _check_sample(
    op: Any, agreement: Agreement, dtype: torch.dtype, index: int, sample: Any, differentiable: bool
) -> None:
    arguments = (sample.input, sample.args, sample.kwargs)
    with _draws:
        cpu, cpu_inputs = _call(op, op.get_op(), arguments, "cpu", differentiable)
    # A result drawn at random differs from device to device, as does one that nobody wrote.
    values = op.name not in UNWRITTEN and not _draws.happened
    device, device_inputs = _call(op, op.get_op(), arguments, "cuda", differentiable)
    differences = compare(cpu, device, values)
    agreement.add("forward", dtype, index, differences)
    if cpu.error is not None or device.error is not None:
        return
    if differentiable:
        _check_backward(agreement, dtype, index, sample, (cpu, device), (cpu_inputs, device_inputs), values)
    if op.get_inplace() is not None and index < IN_PLACE_SAMPLES:
        outcomes = [_call(op, op.get_inplace(), arguments, name, False) for name in ("cpu", "cuda")]
        agreement.add("in place", dtype, index, compare(outcomes[0][0], outcomes[1][0], values))
    if op.supports_out and index < OUT_SAMPLES and not differences:
        _check_out(op, agreement, dtype, index, arguments, cpu.result, values)


def _call(op: Any, function: Any, arguments: Any, name: str, requires_grad: bool) -> tuple[Outcome, Any]:
    mover = Mover(name, requires_grad)
    try:
        moved = mover.move(arguments)
        if op.name in HOST_ARGUMENTS:
            moved = (moved[0], *arguments[1:])
    except Exception as error:
        return Outcome(None, error, ()), None
    first, args, kwargs = moved
    torch.manual_seed(SEED)
    return run(lambda: function(first, *args, **kwargs), moved), moved


def _check_backward(
    agreement: Agreement,
    dtype: torch.dtype,
    index: int,
    sample: Any,
    outcomes: tuple[Outcome, Outcome],
    inputs: tuple[Any, Any],
    values: bool,
) -> None:
    gradients = []
    for outcome, moved in zip(outcomes, inputs, strict=True):
        leaves = [tensor for tensor in tensors_in(moved) if tensor.requires_grad]
        gradients.append(run(lambda o=outcome, x=leaves: _gradients(sample, o.result, x), ()))
    one, other = gradients
    if one.error is not None or other.error is not None or (one.result is None) != (other.result is None):
        agreement.add("backward", dtype, index, compare(one, other))
        return
    if one.result is None:
        return
    differences: list[Difference] = []
    for position, (left, right) in enumerate(zip(one.result, other.result, strict=True)):
        differences += compare_leaves(f"gradient {position}", left, right, values)
    agreement.add("backward", dtype, index, differences)


def _gradients(sample: Any, result: Any, inputs: list[Tensor]) -> tuple[Tensor | None, ...] | None:
    """Gradients of the sum of all results; None if nothing is differentiable."""
    results = [tensor for tensor in tensors_in(sample.output_process_fn_grad(result)) if tensor.requires_grad]
    if not results or not inputs:
        return None
    totals = []
    for tensor in results:
        # No CPU can add up half-precision complex numbers.
        total = (tensor.to(torch.complex64) if tensor.dtype == torch.complex32 else tensor).sum()
        totals.append(total.real + total.imag if total.is_complex() else total)
    return torch.autograd.grad(sum(totals[1:], totals[0]), inputs, allow_unused=True)


def _check_out(
    op: Any,
    agreement: Agreement,
    dtype: torch.dtype,
    index: int,
    arguments: Any,
    expected: Any,
    values: bool,
) -> None:
    """out= of no elements, which is resized, and of steps in memory, which are kept."""
    for made in (_empty_like, _stepped_like):
        outcomes = []
        for name in ("cpu", "cuda"):
            out = _outs(made, expected, name)

            def with_out(first: Any, *args: Any, out: Any = out, **kwargs: Any) -> Any:
                return op.get_op()(first, *args, **kwargs, out=out)

            outcome, _ = _call(op, with_out, arguments, name, False)
            outcomes.append(Outcome(outcome.result, outcome.error, (*outcome.inputs, *tensors_in(out))))
        agreement.add("out=", dtype, index, compare(outcomes[0], outcomes[1], values))


def _outs(made: Any, expected: Any, name: str) -> Any:
    if isinstance(expected, Tensor):
        return made(expected, name)
    outs = [made(tensor, name) for tensor in tensors_in(expected)]
    return outs if isinstance(expected, list) else tuple(outs)


def _empty_like(expected: Tensor, name: str) -> Tensor:
    return torch.empty(0, dtype=expected.dtype, device=name)


def _stepped_like(expected: Tensor, name: str) -> Tensor:
    if expected.dim() == 0:
        return torch.zeros((), dtype=expected.dtype, device=name)
    wide = torch.zeros((*expected.shape[:-1], 2 * expected.shape[-1]), dtype=expected.dtype, device=name)
    return wide[..., ::2]


def _check_error_inputs(op: Any, agreement: Agreement) -> None:
    """What CUDA raises is in the OpInfo; where not even the CPU raises that, what the CPU does counts."""
    torch.manual_seed(SEED)
    on_cpu = list(op.error_inputs("cpu"))
    on_device = list(op.error_inputs("cuda"))
    for index, wrong in enumerate(on_device):
        outcome = _outcome_of_mistake(op, wrong)
        differences = []
        if not isinstance(outcome.error, wrong.error_type):
            same = [_outcome_of_mistake(op, other) for other in on_cpu[index : index + 1]]
            if len(on_cpu) == len(on_device) and not isinstance(same[0].error, wrong.error_type):
                differences = compare(same[0], outcome, values=False)
            else:
                told = (
                    f"{type(outcome.error).__name__}({str(outcome.error)[:160]})" if outcome.error else "none"
                )
                expected = getattr(wrong.error_type, "__name__", str(wrong.error_type))
                differences = [Difference("exception", f"a mistake ({wrong.error_regex})", expected, told)]
        agreement.add("error input", None, index, differences)


def _outcome_of_mistake(op: Any, wrong: Any) -> Outcome:
    sample = wrong.sample_input
    return run(
        lambda: op(sample.input, *sample.args, **sample.kwargs), (sample.input, sample.args, sample.kwargs)
    )
