"""Functions on the emulated GPU: results as on a real CPU, and shapes and strides also without values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent / "support"))
from cpu_and_device import Move, compare, differentiate
from on_device import on_device

EXACT = (
    "torch.stack([r(2,3),r(2,3)])",
    "r(3,4).gather(1,i(4,3,2))",
    "r(3,4).scatter(1,i(4,3,2),r(3,2))",
    "r(3,4).scatter_add(1,i(4,3,2),r(3,2))",
    "r(3,4).scatter_reduce(1,i(4,3,2),r(3,2),'amax')",
    "r(3,4).index_select(1,i(4,2))",
    "r(3,4).index_add(1,i(4,2),r(3,2))",
    "r(3,4).index_copy(1,torch.tensor([0,2],device=D),r(3,2))",
    "r(3,4).index_fill(1,i(4,2),0.)",
    "r(3,4)[i(3,5)]",
    "r(3,4)[:, i(4,5)]",
    "r(3,4,5)[i(3,2),:,i(5,2)]",
    "r(3,4)[i(3,2,2),i(4,2,2)]",
    "r(3,4).take(i(12,3))",
    "r(3,4).put(i(12,3),r(3))",
    "r(3,4).masked_fill(r(3,4)>0,0.)",
    "r(3,4).masked_scatter(r(3,4)>0,r(12))",
    "r(3,4).sort(1)",
    "r(3,4).sort(dim=0,stable=True)",
    "r(3,4).topk(2,1)",
    "r(3,4).kthvalue(2,1)",
    "r(3,4).median(1)",
    "r(3,4).mode(1)",
    "r(3,4).argsort(1)",
    "r(3,4).cumsum(1)",
    "r(3,4).cumprod(1)",
    "r(3,4).logcumsumexp(1)",
    "r(3,4).cummax(1)",
    "r(3,4).cummin(1)",
    "r(3,4).aminmax()",
    "r(3,4).aminmax(dim=1)",
    "torch.var_mean(r(3,4),1)",
    "r(3,4).std()",
    "r(3,4).norm()",
    "r(3,4).norm(dim=1)",
    "r(3,4).logsumexp(1)",
    "r(3,4).quantile(0.5)",
    "r(3,4).nanmean()",
    "r(3,4).histc()",
    "torch.bincount(i(5,8))",
    "torch.bincount(i(5,8),minlength=9)",
    "torch.bucketize(r(4),torch.arange(5.,device=D))",
    "torch.searchsorted(torch.arange(5.,device=D),r(4))",
    "torch.cdist(r(3,4),r(5,4))",
    "torch.einsum('ij,jk->ik',r(3,4),r(4,5))",
    "torch.baddbmm(r(2,3,5),r(2,3,4),r(2,4,5))",
    "torch.addmm(r(5),r(3,4),r(4,5))",
    "torch.matmul(r(2,1,3,4),r(5,4,6))",
    "torch.mv(r(3,4),r(4))",
    "torch.dot(r(4),r(4))",
    "torch.outer(r(3),r(4))",
    "torch.kron(r(2,2),r(3,3))",
    "torch.tril(r(4,4))",
    "torch.diag(r(4))",
    "torch.diagonal(r(4,4))",
    "torch.diag_embed(r(3,4))",
    "torch.trace(r(4,4))",
    "torch.flip(r(3,4),[0])",
    "torch.roll(r(3,4),1,0)",
    "torch.rot90(r(3,4))",
    "torch.repeat_interleave(r(3,4),2,0)",
    "torch.repeat_interleave(r(3,4),torch.tensor([1,2,3],device=D),0)",
    "torch.repeat_interleave(torch.tensor([1,2,3],device=D))",
    "r(3,4).repeat(2,2)",
    "torch.tensor_split(r(7,2),3)",
    "torch.cat([r(2,3),r(4,3)])",
    "torch.cat([r(2,3),r(4,3).double()])",
    "torch.block_diag(r(2,2),r(3,3))",
    "torch.meshgrid(r(3),r(4))",
    "torch.cartesian_prod(r(3),r(4))",
    "torch.combinations(r(4))",
    "torch.linalg.svd(r(4,3))",
    "torch.linalg.qr(r(4,3))",
    "torch.linalg.inv(r(3,3)+torch.eye(3,device=D)*9)",
    "torch.linalg.det(r(3,3))",
    "torch.linalg.slogdet(r(3,3))",
    "torch.linalg.cholesky(torch.eye(3,device=D))",
    "torch.linalg.eigh(torch.eye(3,device=D))",
    "torch.linalg.eig(r(3,3,g=False))",
    "torch.linalg.solve(r(3,3),r(3,2))",
    "torch.linalg.lu(r(3,3))",
    "torch.linalg.matrix_norm(r(3,3))",
    "torch.linalg.matrix_exp(r(3,3))",
    "torch.linalg.pinv(r(4,3))",
    "torch.linalg.matrix_rank(r(4,3))",
    "torch.linalg.cond(r(3,3))",
    "torch.linalg.householder_product(r(4,3),r(3))",
    "torch.geqrf(r(4,3,g=False))",
    "torch.cholesky_solve(r(3,2),torch.eye(3,device=D))",
    "torch.triangular_solve(r(3,2),torch.eye(3,device=D))",
    "torch.lu_solve(r(3,1,g=False), *torch.linalg.lu_factor(torch.eye(3,device=D)))",
    "torch.fft.fft(r(3,8))",
    "torch.fft.rfft(r(3,8))",
    "torch.fft.irfft(torch.fft.rfft(r(3,8)))",
    "torch.fft.fft2(r(3,8,8))",
    "torch.fft.ifftn(r(3,8,8).to(torch.complex64))",
    "torch.fft.rfft2(r(3,8,8))",
    "torch.fft.hfft(torch.fft.rfft(r(3,8)))",
    "torch.fft.fftshift(r(8))",
    "torch.stft(r(32),16,return_complex=True)",
    "torch.istft(torch.stft(r(32),16,return_complex=True,window=torch.hann_window(16,device=D)),16,window=torch.hann_window(16,device=D))",
    "F.grid_sample(r(2,3,4,4),r(2,5,5,2))",
    "F.grid_sample(r(2,3,4,4,4),r(2,5,5,5,3))",
    "F.affine_grid(r(2,2,3),(2,3,4,4))",
    "F.interpolate(r(2,3,4,4),size=(7,7),mode='area')",
    "F.interpolate(r(2,3,4,4),scale_factor=.5,mode='bilinear',antialias=True)",
    "F.interpolate(r(2,3,4,4),scale_factor=2,mode='nearest-exact')",
    "F.pdist(r(3,4))",
    "F.one_hot(i(5,3),5)",
    "F.pad(r(2,3,4),(1,1),mode='reflect')",
    "F.pad(r(2,3,4),(1,1))",
    "F.unfold(r(2,3,4,4),2)",
    "F.max_pool2d(r(2,3,4,4),2,return_indices=True)",
    "torch.where(r(3,4)>0,r(3,4),0.)",
    "torch.clamp(r(3,4),0,1)",
    "torch.lerp(r(3,4),r(3,4),0.3)",
    "torch.addcmul(r(3),r(3),r(3))",
    "torch.addcdiv(r(3),r(3),r(3))",
    "torch.atan2(r(3),r(3))",
    "torch.xlogy(r(3),r(3).abs())",
    "torch.special.erfinv(r(3))",
    "torch.special.i0(r(3))",
    "torch.polygamma(1,r(3).abs())",
    "torch.lgamma(r(3))",
    "torch.digamma(r(3))",
    "torch.nan_to_num(r(3))",
    "torch.sinc(r(3))",
    "torch.logit(r(3).sigmoid())",
    "torch.heaviside(r(3,g=False),r(3,g=False))",
    "torch.hypot(r(3),r(3))",
    "torch.frexp(r(3,g=False))",
    "torch.ldexp(r(3),i(3,3))",
    "torch.complex(r(3),r(3))",
    "torch.polar(r(3),r(3))",
    "torch.view_as_real(torch.complex(r(3),r(3)))",
    "torch.complex(r(3),r(3)).conj().mul(2).abs()",
    "torch.angle(torch.complex(r(3),r(3)))",
    "torch.isin(i(5,4),i(5,2))",
    "torch.trapezoid(r(3,4))",
    "torch.diff(r(3,4))",
    "torch.gradient(r(8))",
    "torch.cov(r(3,8))",
    "torch.corrcoef(r(3,8))",
    "torch.renorm(r(3,4),2,0,1.)",
    "torch.cross(r(3,3),r(3,3),dim=1)",
    "torch.tensordot(r(3,4),r(4,5),1)",
    "torch.chain_matmul(r(3,4),r(4,5))",
    "torch._foreach_add([r(3,g=False),r(4,g=False)],1.)",
    "torch._foreach_norm([r(3,g=False),r(4,g=False)])",
    "torch.segment_reduce(r(6),'sum',lengths=torch.tensor([2,4],device=D))",
    "torch.unique(i(3,8),return_counts=True)",
    "torch.unique(i(2,8,2),dim=0)",
    "torch.unique_consecutive(i(3,8))",
    "torch.nonzero(i(2,8))",
    "torch.masked_select(r(3,4),torch.ones(3,4,dtype=torch.bool,device=D))",
    "torch.fake_quantize_per_tensor_affine(r(3,4),.1,0,0,255)",
    "torch.fake_quantize_per_channel_affine(r(3,4),torch.ones(3,device=D),torch.zeros(3,device=D,dtype=torch.int32),0,0,255)",
    "r(3,4).to(torch.bfloat16)@r(4,5).to(torch.bfloat16)",
    "r(3,4).half().softmax(1)",
    "r(3,4).bfloat16().sum()",
    "r(3,4).bfloat16()*2.0",
    "r(3,4).t().contiguous()",
    "r(3,4).t().clone()",
    "r(3,4).to(torch.float8_e4m3fn)",
    "i(5,3)/2",
    "i(5,3)//2",
    "i(5,3)%2",
    "i(5,3).float().mean()",
    "(i(5,3)>2)&(i(5,3)<4)",
    "i(5,3)<<1",
    "-i(5,3)",
    "torch.bitwise_not(i(5,3))",
    "torch.gcd(i(5,3),i(5,3))",
    "torch.arange(0,1,.1,device=D)",
    "torch.linspace(0,1,5,device=D)",
    "torch.logspace(0,1,5,device=D)",
    "torch.eye(3,4,device=D)",
    "torch.tril_indices(3,3,device=D)",
    "torch.full((2,),3,device=D)",
    "torch.zeros(3,device=D).new_ones(2)",
    "torch.hann_window(8,device=D)",
    "torch.as_strided(r(3,4),(2,2),(1,2))",
    "r(3,4).unfold(1,2,1)",
    "r(3,4).expand(2,3,4).reshape(6,4)",
    "r(2,3,4,4).to(memory_format=torch.channels_last).mean((2,3))",
    "r(2,3,4,4).to(memory_format=torch.channels_last)+1",
    "r(2,3,4,4).to(memory_format=torch.channels_last)*r(2,3,4,4)",
    "torch.nn.functional.linear(r(2,3,4),r(5,4),r(5))",
    "torch.nn.functional.bilinear(r(2,3),r(2,4),r(5,3,4))",
    "F.scaled_dot_product_attention(r(2,2,3,8),r(2,2,3,8),r(2,2,3,8))",
    "F.scaled_dot_product_attention(r(2,2,3,8),r(2,2,3,8),r(2,2,3,8),attn_mask=torch.ones(3,3,dtype=torch.bool,device=D))",
    "F.scaled_dot_product_attention(r(2,2,3,8),r(2,2,3,8),r(2,2,3,8),is_causal=True)",
    "F.scaled_dot_product_attention(r(2,4,3,8),r(2,2,3,8),r(2,2,3,8),enable_gqa=True)",
    "F.scaled_dot_product_attention(r(2,2,3,8).half(),r(2,2,3,8).half(),r(2,2,3,8).half())",
    "F.scaled_dot_product_attention(r(2,2,3,8).bfloat16(),r(2,2,3,8).bfloat16(),r(2,2,3,8).bfloat16(),is_causal=True)",
    "F.scaled_dot_product_attention(r(2,2,3,8).bfloat16(),r(2,2,3,8).bfloat16(),r(2,2,3,8).bfloat16(),attn_mask=r(3,3).bfloat16())",
)
"""`r` makes random numbers that need a gradient, `i` random integers below its first argument."""
RANDOM = (
    "torch.rand(3,4,device=D)",
    "torch.randn(3,4,device=D)",
    "torch.randint(5,(3,),device=D)",
    "torch.randperm(5,device=D)",
    "torch.bernoulli(torch.full((3,),.5,device=D))",
    "torch.normal(r(3,g=False),torch.ones(3,device=D))",
    "torch.normal(0.,1.,(3,),device=D)",
    "torch.poisson(torch.ones(3,device=D))",
    "torch.multinomial(torch.ones(2,3,device=D),2)",
    "torch.empty(3,device=D).exponential_()",
    "torch.empty(3,device=D).cauchy_()",
    "torch.empty(3,device=D).log_normal_()",
    "torch.empty(3,device=D).geometric_(0.5)",
    "torch.rand_like(r(3,4))",
    "torch.distributions.Gamma(torch.ones(3,device=D,requires_grad=True),torch.ones(3,device=D)).rsample()",
    "torch.distributions.Dirichlet(torch.ones(3,device=D,requires_grad=True)).rsample()",
    "torch.distributions.Beta(torch.ones(3,device=D,requires_grad=True),torch.ones(3,device=D)).rsample()",
    "torch.distributions.Categorical(logits=r(3,4)).sample()",
    "torch.distributions.Normal(r(3),torch.ones(3,device=D)).rsample()",
    "torch.distributions.Binomial(4,torch.full((3,),.5,device=D)).sample()",
    "torch.distributions.Bernoulli(torch.full((3,),.5,device=D)).sample()",
    "torch.distributions.MultivariateNormal(torch.zeros(3,device=D),torch.eye(3,device=D)).rsample()",
    "F.normalize(r(3,4))",
    "F.gumbel_softmax(r(3,4),hard=True)",
    "torch.empty_like(r(3,4).t())",
    "F.scaled_dot_product_attention(r(2,2,3,8).bfloat16(),r(2,2,3,8).bfloat16(),r(2,2,3,8).bfloat16(),dropout_p=0.1)",
)
OTHER_LAYOUT_ON_GPU = (
    "torch.linalg.svd",  # cuSOLVER answers in rows
    "torch.linalg.eig(",
    "F.scaled_dot_product_attention",  # fused kernels answer [batch, length, heads, head]
)


def run(expression: str, move: Move) -> Any:
    def r(*sizes: int, g: bool = True) -> Tensor:
        tensor = move(torch.randn(*sizes))
        return tensor.requires_grad_() if g else tensor

    def i(below: int, *sizes: int) -> Tensor:
        return move(torch.randint(0, below, sizes))

    device = move(torch.zeros(1)).device.type
    result = eval(expression, {"torch": torch, "F": F, "r": r, "i": i, "D": device})
    differentiate(result)
    return result


def check(expression: str, *, values: bool) -> None:
    compare(
        lambda move: run(expression, move),
        strides=not any(part in expression for part in OTHER_LAYOUT_ON_GPU),
        values=values,
    )


@on_device
@pytest.mark.parametrize("expression", EXACT)
def test_function(expression: str) -> None:
    check(expression, values=True)


@on_device
@pytest.mark.parametrize("expression", RANDOM)
def test_random_function(expression: str) -> None:
    check(expression, values=False)
