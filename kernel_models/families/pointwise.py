"""Element-wise kernels: every input read once, every output written once."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    item_bytes,
    main_tensor,
    names,
    vector_math,
)
from maya.traces.tables import OperatorMetadata

ELEMENTS_PER_BLOCK = 512
"""PyTorch's vectorised kernel: 128 threads of 4 elements."""

TRANSCENDENTAL = frozenset(
    names(
        "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan atan2 asinh "
        "acosh atanh sigmoid silu gelu gelu_backward mish mish_backward softplus softplus_backward "
        "erf erfc erfinv pow tanh_backward silu_backward sigmoid_backward logit logit_backward elu "
        "elu_backward log_sigmoid_forward log_sigmoid_backward logaddexp logaddexp2 xlogy sinc glu "
        "glu_backward float_power"
    )
)
TRANSCENDENTAL_FLOPS = 12
"""Instructions of a fast-math transcendental in float32, range reduction included."""
SPECIAL_FLOPS = 60
"""Gamma, Bessel, orthogonal polynomials and other series."""

SPECIAL = (
    "digamma lgamma polygamma mvlgamma igamma igammac i0 special_airy_ai special_bessel_j0 "
    "special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t "
    "special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w "
    "special_entr special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he "
    "special_i0e special_i1 special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p "
    "special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1 "
    "special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri "
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
    "special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u "
    "special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w "
    "special_spherical_bessel_j0 special_xlog1py special_zeta _standard_gamma_grad _dirichlet_grad "
)

PLAIN = (
    "__iand__ __ior__ __ixor__ __and__ __or__ __xor__ __ilshift__ __irshift__ __lshift__ __rshift__ "
    "abs add addcdiv addcmul addr angle bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min complex polar conj_physical "
    "copysign div eq ne ge gt le lt floor floor_divide fmax fmin fmod frac frexp gcd lcm hardshrink "
    "hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh "
    "hardtanh_backward heaviside huber_loss_backward hypot isnan isinf isfinite isneginf isposinf "
    "leaky_relu leaky_relu_backward lerp logical_and logical_not logical_or logical_xor masked_fill "
    "maximum minimum mse_loss_backward mul nan_to_num neg nextafter _prelu_kernel "
    "_prelu_kernel_backward prelu reciprocal relu relu6 remainder round rsqrt rsub sgn sign signbit "
    "smooth_l1_loss_backward softshrink softshrink_backward sqrt sub threshold threshold_backward "
    "trunc where square glu_jvp glu_backward_jvp binary_cross_entropy_backward "
    "multi_margin_loss_backward multilabel_margin_loss_backward _masked_scale "
    "native_dropout_backward dropout_backward linalg_cross "
    "fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask "
    "_fake_quantize_learnable_per_channel_affine "
    "_fake_quantize_learnable_per_channel_affine_backward _fake_quantize_learnable_per_tensor_affine "
    "_fake_quantize_learnable_per_tensor_affine_backward "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper "
    "_make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor quantize_per_channel "
    "quantize_per_tensor quantize_per_tensor_dynamic dequantize _compute_linear_combination "
    "_transform_bias_rescale_qkv triu tril rrelu_with_noise linspace logspace range arange eye "
    "tril_indices triu_indices fill full full_like ones ones_like scalar_tensor _amp_update_scale "
    "_assert_async cudnn_affine_grid_generator cudnn_affine_grid_generator_backward ldexp "
    "_conj_physical conj gradient_accumulation isin alpha_dropout rot90 vander "
)


def expand_pointwise(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """One vectorised kernel over the largest operand."""
    tensor = main_tensor(metadata)
    if tensor is None:
        return [KernelWork("pointwise", name, "fp32", 1, 8, 1)]
    per_element = 1
    plain = name.removesuffix("_")
    if plain in TRANSCENDENTAL:
        per_element = TRANSCENDENTAL_FLOPS
    elif plain in _SPECIAL:
        per_element = SPECIAL_FLOPS
    return [
        KernelWork(
            "pointwise",
            f"{name} {tensor.dtype}",
            vector_math(tensor.dtype),
            per_element * tensor.numel,
            distinct_bytes(metadata),
            max(1, ceil_div(tensor.numel, ELEMENTS_PER_BLOCK)),
        )
    ]


def expand_sequence(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """arange, range, linspace: `.out` variants are recorded before their output is resized."""
    tensor = main_tensor(metadata)
    if tensor is not None and tensor.numel > 0:
        return expand_pointwise(name, metadata)
    tensors = metadata.input_tensors()
    dtype = tensors[0].dtype if tensors else "int64"
    elements = max(1, _length(metadata))
    blocks = ceil_div(elements, ELEMENTS_PER_BLOCK)
    moved = elements * item_bytes(dtype)
    return [KernelWork("pointwise", f"{name} {dtype}", vector_math(dtype), elements, moved, blocks)]


def _length(metadata: OperatorMetadata) -> int:
    steps = metadata.args.get("steps")
    if isinstance(steps, int):
        return steps
    bounds = [metadata.args.get(key, default) for key, default in (("start", 0), ("end", 0), ("step", 1))]
    numbers = [float(value) for value in bounds if isinstance(value, int | float)]
    if len(numbers) < len(bounds) or numbers[2] == 0:
        return 1
    return ceil((numbers[1] - numbers[0]) / numbers[2])


_SPECIAL = frozenset(names(SPECIAL))

OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(sorted(TRANSCENDENTAL | _SPECIAL | set(names(PLAIN))), expand_pointwise),
    **dict.fromkeys(("arange", "range", "linspace", "logspace"), expand_sequence),
}
