"""Training features on the emulated GPU, beside the same code on a real CPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent / "support"))
from cpu_and_device import Move, compare, differentiate
from on_device import on_device

Settings = dict[str, Any]
OPTIMIZERS: tuple[tuple[str, Settings], ...] = (
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("Adagrad", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Rprop", {}),
    ("Adafactor", {}),
    ("LBFGS", {"max_iter": 3}),
)
VARIANTS: tuple[Settings, ...] = (
    {},
    {"foreach": True},
    {"foreach": False},
    {"fused": True},
    {"capturable": True},
)
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
NOT_CAPTURABLE = ("SGD", "Adagrad", "Adafactor", "LBFGS")


def network(move: Move) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for layer in (model[0], model[2]):
        assert isinstance(layer, nn.Linear)
        layer.weight = nn.Parameter(move(layer.weight.detach()))
        layer.bias = nn.Parameter(move(layer.bias.detach()))
    return model


def device_of(move: Move) -> str:
    return move(torch.zeros(1)).device.type


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


def options_of(name: str, variant: Settings, *, on_gpu: bool) -> Settings | None:
    """The variant's options, None if the optimizer has no such variant."""
    if "fused" in variant and name not in FUSED:
        return None
    if "foreach" in variant and name == "LBFGS":
        return None
    if "capturable" in variant:
        return None if name in NOT_CAPTURABLE else variant if on_gpu else {}
    if not variant and not on_gpu and name not in ("LBFGS",):
        return {"foreach": True}  # what is the default on a GPU
    return variant


@on_device
@pytest.mark.parametrize("variant", range(len(VARIANTS)), ids=[str(variant) for variant in VARIANTS])
@pytest.mark.parametrize("optimizer", range(len(OPTIMIZERS)), ids=[f"{n}{s}" for n, s in OPTIMIZERS])
def test_optimizers(optimizer: int, variant: int) -> None:
    name, settings = OPTIMIZERS[optimizer]
    if options_of(name, VARIANTS[variant], on_gpu=True) is None:
        return

    def run(move: Move) -> list[Any]:
        model = network(move)
        options = options_of(name, VARIANTS[variant], on_gpu=device_of(move) == "cuda")
        assert options is not None
        stepper = getattr(torch.optim, name)(model.parameters(), **settings, **options)
        x = move(torch.randn(5, 8))

        def loss() -> Tensor:
            stepper.zero_grad()
            value = model(x).pow(2).mean()
            value.backward()
            return value

        for _ in range(2):
            stepper.step(loss)
        return list(model.parameters())

    compare(run)


@on_device
def test_optimizer_state_lies_where_a_gpu_has_it() -> None:
    def steps(**options: Any) -> set[str]:
        model = network(lambda tensor: tensor.to("cuda"))
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        differentiate(model(torch.ones(2, 8, device="cuda")))
        optimizer.step()
        return {state["step"].device.type for state in optimizer.state.values()}

    assert steps() == {"cpu"}
    assert steps(fused=True) == steps(capturable=True) == {"cuda"}


@on_device
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    def run(move: Move) -> list[Any]:
        model, x = network(move), move(torch.randn(3, 8)).requires_grad_()
        output = checkpoint(model, x, use_reentrant=reentrant)
        differentiate(output)
        return [output, x.grad, *gradients(model)]

    compare(run)


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        (result,) = ctx.saved_tensors
        return gradient[0] * result


def run_function(move: Move) -> Any:
    x = move(torch.randn(3)).requires_grad_()
    output = Exponential.apply(x)
    differentiate(output)
    return [output, x.grad]


def run_gradient_penalty(move: Move) -> Any:
    model, x = network(move), move(torch.randn(3, 8)).requires_grad_()
    (slope,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
    ((slope.norm(2, 1) - 1) ** 2).mean().backward()
    return gradients(model)


def run_per_sample_gradients(move: Move) -> Any:
    model = network(move)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, parameters, (x[None],)).sum()

    return vmap(grad(loss), in_dims=(None, 0))(parameters, move(torch.randn(5, 8)))


def run_forward_mode(move: Move) -> Any:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        x = forward_ad.make_dual(move(torch.randn(3)), move(torch.ones(3)))
        y = torch.cat([x, move(torch.ones(3))]) * 2  # the second part has no tangent
        return forward_ad.unpack_dual(y).tangent


FUNCTIONALS: dict[str, Callable[[Move], Any]] = {
    "autograd.Function": run_function,
    "gradient penalty": run_gradient_penalty,
    "per-sample gradients": run_per_sample_gradients,
    "forward mode": run_forward_mode,
    "grad": lambda move: grad(lambda x: (x**3).sum())(move(torch.randn(3))),
    "jvp": lambda move: jvp(lambda x: x.sin() * 2, (move(torch.randn(3)),), (move(torch.ones(3)),)),
    "jacrev": lambda move: jacrev(lambda x: x.sin() @ x)(move(torch.randn(3))),
    "jacfwd": lambda move: jacfwd(lambda x: x.sin() * x)(move(torch.randn(3))),
    "hessian": lambda move: hessian(lambda x: x.sin() @ x)(move(torch.randn(3))),
    "vmap": lambda move: vmap(lambda x, y: x @ y)(move(torch.randn(5, 3)), move(torch.randn(5, 3))),
}


@on_device
@pytest.mark.parametrize("name", list(FUNCTIONALS))
def test_differentiation(name: str) -> None:
    compare(FUNCTIONALS[name])


@on_device
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast(dtype: str) -> None:
    def run(move: Move) -> Any:
        model, x = network(move), move(torch.randn(3, 8))
        with torch.autocast(device_of(move), dtype=getattr(torch, dtype)):
            output = model(x)
            loss = F.mse_loss(output.float(), move(torch.zeros(3, 4)))
        loss.backward()
        return [output, loss, *gradients(model)]

    compare(run)


@on_device
def test_hooks_run_in_the_order_of_a_cpu() -> None:
    logs: list[list[str]] = []

    def run(move: Move) -> Any:
        model, log = network(move), []
        first = model[0]
        first.register_forward_hook(lambda *_: log.append("forward"))
        first.register_full_backward_hook(lambda *_: log.append("backward"))
        first.weight.register_hook(lambda gradient: gradient * 2)
        first.weight.register_post_accumulate_grad_hook(lambda _: log.append("accumulated"))
        differentiate(model(move(torch.ones(2, 8))))
        logs.append(log)
        return gradients(model)

    compare(run)
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 3


@on_device
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_without_code_generation(backend: str) -> None:
    def run(move: Move) -> Any:
        torch._dynamo.reset()
        model, x = network(move), move(torch.randn(3, 8)).requires_grad_()
        output = torch.compile(model, backend=backend)(x)
        differentiate(output)
        return [output, x.grad, *gradients(model)]

    compare(run)


@on_device
def test_profiler_sees_operators() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        differentiate(network(lambda tensor: tensor.to("cuda"))(torch.ones(2, 8, device="cuda")))
    assert any("addmm" in event.key for event in profile.key_averages())


@on_device
def test_graphs_and_streams() -> None:
    model = network(lambda tensor: tensor.to("cuda"))
    x = torch.zeros(2, 8, device="cuda")
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    x.copy_(torch.ones(2, 8))
    graph.replay()
    assert y.shape == (2, 4)
    graphed = torch.cuda.make_graphed_callables(model, (torch.zeros(2, 8, device="cuda"),))
    differentiate(graphed(torch.ones(2, 8, device="cuda")))
    event = torch.cuda.Event()
    with torch.cuda.stream(side):
        a = torch.ones(2, device="cuda")
        event.record()
    with torch.cuda.stream(other):
        other.wait_event(event)
        b = a + 2
        b.record_stream(side)
    torch.cuda.synchronize()
    assert b.tolist() == [3, 3]


@on_device
@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_attention_backends(backend: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype = torch.bfloat16 if backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION") else torch.float32
    inputs = [torch.randn(2, 2, 64, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    masks: list[Tensor | None] = [None]
    if backend != "FLASH_ATTENTION":
        masks += [
            torch.ones(64, 64, dtype=torch.bool, device="cuda"),
            torch.zeros(2, 1, 64, 64, dtype=dtype, device="cuda"),
        ]
    for mask in masks:
        for options in ({}, {"is_causal": mask is None}, {"dropout_p": 0.125}, {"scale": 0.3}):
            with sdpa_kernel(getattr(SDPBackend, backend)):
                output = F.scaled_dot_product_attention(*inputs, attn_mask=mask, **options)
            assert (output.shape, output.dtype) == (inputs[0].shape, dtype)
            differentiate(output)
            assert all(x.grad is not None and x.grad.stride() == x.stride() for x in inputs)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        F.scaled_dot_product_attention(*(x.double() for x in inputs))


@on_device
def test_packed_sequences() -> None:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    def run(move: Move) -> Any:
        layer = nn.LSTM(4, 5, 2).to(device_of(move))
        output, _ = layer(pack_padded_sequence(move(torch.randn(3, 2, 4)), torch.tensor([3, 2])))
        padded, lengths = pad_packed_sequence(output)
        differentiate(padded)
        return [padded, lengths, layer.weight_ih_l0.grad]

    compare(run)
