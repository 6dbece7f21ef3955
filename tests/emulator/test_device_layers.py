"""Layers on the emulated GPU: outputs, gradients and buffers as on a real CPU; shapes also without values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent / "support"))
from cpu_and_device import Move, compare, train_step
from on_device import on_device

LAYERS = (
    ("nn.Conv1d(4, 6, 3, padding=1)", "R(2,4,9)"),
    ("nn.Conv2d(4, 6, 3, padding=1, stride=2)", "R(2,4,9,9)"),
    ("nn.Conv3d(4, 6, 3, padding=1)", "R(2,4,5,5,5)"),
    (
        "nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)",
        "R(2,4,9,9).to(memory_format=torch.channels_last)",
    ),
    ("nn.Conv2d(4, 6, 3)", "R(2,4,9,9).to(memory_format=torch.channels_last)"),
    ("nn.Conv2d(4, 4, 3, groups=4)", "R(2,4,9,9)"),
    ("nn.Conv2d(4, 8, 3, groups=2, dilation=2)", "R(2,4,9,9)"),
    ("nn.ConvTranspose1d(4, 6, 3, stride=2)", "R(2,4,9)"),
    ("nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1)", "R(2,4,9,9)"),
    ("nn.ConvTranspose3d(4, 6, 3)", "R(2,4,5,5,5)"),
    ("nn.Conv2d(4, 6, 3, padding='same')", "R(4,9,9)"),
    ("nn.Conv2d(4, 6, 3)", "R(0,4,9,9)"),
    ("nn.BatchNorm1d(4)", "R(5,4)"),
    ("nn.BatchNorm2d(4)", "R(2,4,3,3)"),
    ("nn.BatchNorm2d(4)", "R(2,4,3,3).to(memory_format=torch.channels_last)"),
    ("nn.BatchNorm3d(4)", "R(2,4,3,3,3)"),
    ("nn.BatchNorm2d(4).eval()", "R(2,4,3,3)"),
    ("nn.InstanceNorm2d(4, affine=True)", "R(2,4,3,3)"),
    ("nn.GroupNorm(2, 4)", "R(2,4,3,3)"),
    ("nn.LayerNorm(6)", "R(2,4,6)"),
    ("nn.RMSNorm(6)", "R(2,4,6)"),
    ("nn.LocalResponseNorm(2)", "R(2,4,6,6)"),
    ("nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))", "R(2,6)"),
    ("nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))", "R(2,6)"),
    ("nn.MaxPool1d(2)", "R(2,4,8)"),
    ("nn.MaxPool2d(2)", "R(2,4,8,8)"),
    ("nn.MaxPool3d(2)", "R(2,4,8,8,8)"),
    ("nn.AvgPool1d(2)", "R(2,4,8)"),
    ("nn.AvgPool2d(2)", "R(2,4,8,8)"),
    ("nn.AvgPool3d(2)", "R(2,4,8,8,8)"),
    ("nn.AdaptiveAvgPool1d(3)", "R(2,4,8)"),
    ("nn.AdaptiveAvgPool2d(3)", "R(2,4,8,8)"),
    ("nn.AdaptiveAvgPool2d(1)", "R(2,4,8,8)"),
    ("nn.AdaptiveAvgPool3d(3)", "R(2,4,8,8,8)"),
    ("nn.AdaptiveMaxPool2d(3)", "R(2,4,8,8)"),
    ("nn.LPPool2d(2,2)", "R(2,4,8,8)"),
    ("nn.FractionalMaxPool2d(2,output_size=3)", "R(2,4,8,8)"),
    ("nn.FractionalMaxPool3d(2,output_size=3)", "R(2,4,8,8,8)"),
    ("nn.ReflectionPad2d(1)", "R(2,4,8,8)"),
    ("nn.ReplicationPad3d(1)", "R(2,4,8,8,8)"),
    ("nn.CircularPad2d(1)", "R(2,4,8,8)"),
    ("nn.ZeroPad2d(1)", "R(2,4,8,8)"),
    ("nn.PixelShuffle(2)", "R(2,4,8,8)"),
    ("nn.PixelUnshuffle(2)", "R(2,4,8,8)"),
    ("nn.Upsample(scale_factor=2)", "R(2,4,8,8)"),
    ("nn.Upsample(scale_factor=2,mode='bilinear')", "R(2,4,8,8)"),
    ("nn.Upsample(scale_factor=2,mode='bicubic',align_corners=True)", "R(2,4,8,8)"),
    ("nn.Upsample(scale_factor=2,mode='trilinear')", "R(2,4,8,8,8)"),
    ("nn.Upsample(size=5,mode='linear')", "R(2,4,8)"),
    ("nn.Fold((4,5),(2,2))", "R(2,12,12)"),
    ("nn.Unfold(2)", "R(2,4,5,5)"),
    ("nn.Bilinear(4,5,3)", "R(2,4),R(2,5)"),
    ("nn.GLU()", "R(2,8)"),
    ("nn.PReLU()", "R(2,8)"),
    ("nn.RReLU()", "R(2,8)"),
    ("nn.Softmax(1)", "R(2,8)"),
    ("nn.LogSoftmax(1)", "R(2,8)"),
    ("nn.Softmax2d()", "R(2,4,3,3)"),
    ("nn.Dropout(0.5)", "R(4,8)"),
    ("nn.Dropout2d(0.5)", "R(4,8,3,3)"),
    ("nn.AlphaDropout(0.5)", "R(4,8)"),
    ("nn.FeatureAlphaDropout(0.5)", "R(4,8,3)"),
    ("nn.Embedding(10,4)", "torch.randint(0,10,(2,3))"),
    ("nn.Embedding(10,4,padding_idx=0,max_norm=1.0)", "torch.randint(0,10,(2,3))"),
    ("nn.Embedding(10,4,scale_grad_by_freq=True)", "torch.randint(0,10,(2,3))"),
    ("nn.EmbeddingBag(10,4)", "torch.randint(0,10,(6,)),torch.tensor([0,3])"),
    ("nn.EmbeddingBag(10,4,mode='max')", "torch.randint(0,10,(6,)),torch.tensor([0,3])"),
    (
        "nn.EmbeddingBag(10,4,mode='sum',include_last_offset=True)",
        "torch.randint(0,10,(6,)),torch.tensor([0,3,6])",
    ),
    ("nn.EmbeddingBag(10,4,mode='mean')", "torch.randint(0,10,(2,3))"),
    ("nn.CosineSimilarity()", "R(3,4),R(3,4)"),
    ("nn.PairwiseDistance()", "R(3,4),R(3,4)"),
    ("nn.Hardswish()", "R(3,4)"),
    ("nn.Mish()", "R(3,4)"),
    ("nn.SiLU()", "R(3,4)"),
    ("nn.ELU()", "R(3,4)"),
    ("nn.GELU()", "R(3,4)"),
    ("nn.Softplus()", "R(3,4)"),
    ("nn.Hardshrink()", "R(3,4)"),
    ("nn.LogSigmoid()", "R(3,4)"),
    ("nn.MaxUnpool2d(2)", "R(2,4,3,3),torch.arange(0,36,4).view(1,1,3,3).expand(2,4,3,3)"),
    ("nn.RNN(4,5,2)", "R(3,2,4)"),
    ("nn.LSTM(4,5,2)", "R(3,2,4)"),
    ("nn.GRU(4,5,2)", "R(3,2,4)"),
    ("nn.LSTM(4,5,2,bidirectional=True,batch_first=True,dropout=0.3)", "R(2,3,4)"),
    ("nn.LSTM(4,5,proj_size=3)", "R(3,2,4)"),
    ("nn.GRU(4,5,1,bias=False)", "R(3,4)"),
    ("nn.RNN(4,5,2,nonlinearity='relu')", "R(3,2,4)"),
    ("nn.LSTMCell(4,5)", "R(2,4)"),
    ("nn.GRUCell(4,5)", "R(2,4)"),
    ("nn.RNNCell(4,5)", "R(2,4)"),
    ("nn.MultiheadAttention(8,2)", "R(3,2,8),R(3,2,8),R(3,2,8)"),
    ("nn.MultiheadAttention(8,2,batch_first=True,dropout=0.1,kdim=6,vdim=6)", "R(2,3,8),R(2,3,6),R(2,3,6)"),
    ("nn.TransformerEncoderLayer(8,2,16)", "R(3,2,8)"),
    ("nn.TransformerEncoderLayer(8,2,16,batch_first=True,norm_first=True,activation='gelu')", "R(2,3,8)"),
    ("nn.TransformerDecoderLayer(8,2,16)", "R(3,2,8),R(4,2,8)"),
    ("nn.Transformer(8,2,1,1,16)", "R(3,2,8),R(4,2,8)"),
    ("nn.CrossEntropyLoss()", "R(3,4),torch.tensor([1,0,2])"),
    ("nn.CrossEntropyLoss(label_smoothing=0.1,weight=torch.ones(4))", "R(3,4),torch.tensor([1,0,-100])"),
    ("nn.CrossEntropyLoss()", "R(3,4,2,2),torch.zeros(3,2,2,dtype=torch.long)"),
    ("nn.NLLLoss()", "R(3,4),torch.tensor([1,0,2])"),
    ("nn.BCEWithLogitsLoss(pos_weight=torch.ones(4))", "R(3,4),torch.ones(3,4)"),
    ("nn.BCELoss()", "torch.full((3,4),.5),torch.ones(3,4)"),
    ("nn.MSELoss()", "R(3,4),R(3,4)"),
    ("nn.L1Loss()", "R(3,4),R(3,4)"),
    ("nn.SmoothL1Loss()", "R(3,4),R(3,4)"),
    ("nn.HuberLoss()", "R(3,4),R(3,4)"),
    ("nn.KLDivLoss()", "R(3,4),R(3,4)"),
    ("nn.PoissonNLLLoss()", "R(3,4),R(3,4)"),
    ("nn.MultiMarginLoss()", "R(3,4),torch.tensor([1,0,2])"),
    ("nn.MultiLabelMarginLoss()", "R(3,4),torch.tensor([[1,0,-1,-1]]*3)"),
    ("nn.MultiLabelSoftMarginLoss()", "R(3,4),torch.ones(3,4)"),
    ("nn.TripletMarginLoss()", "R(3,4),R(3,4),R(3,4)"),
    ("nn.CosineEmbeddingLoss()", "R(3,4),R(3,4),torch.tensor([1,-1,1])"),
    ("nn.HingeEmbeddingLoss()", "R(3,4),torch.ones(3,4)"),
    ("nn.MarginRankingLoss()", "R(3),R(3),torch.ones(3)"),
    (
        "nn.CTCLoss()",
        "R(5,2,4).log_softmax(2),torch.tensor([[1,2],[2,3]]),torch.tensor([5,5]),torch.tensor([2,2])",
    ),
    ("nn.CTCLoss()", "R(5,2,4).log_softmax(2),torch.tensor([[1,2],[2,3]],dtype=torch.int32),(5,5),(2,2)"),
    ("nn.AdaptiveLogSoftmaxWithLoss(8,20,[5,10])", "R(4,8),torch.tensor([0,6,12,3])"),
    ("nn.LinearCrossEntropyLoss(8,20)", "R(4,8),torch.tensor([0,6,12,3])"),
)
"""Layer and its inputs; `R` is torch.randn."""
RANDOM = ("Drop", "RReLU", "Fractional", "Transformer", "MultiheadAttention(8,2,batch_first", "dropout=")


@on_device
@pytest.mark.parametrize(("layer", "inputs"), LAYERS, ids=[" ".join(pair) for pair in LAYERS])
def test_layer(layer: str, inputs: str) -> None:
    if not hasattr(nn, layer.removeprefix("nn.").partition("(")[0].partition(".")[0]):
        return  # of another torch version

    def run(move: Move) -> list[Any]:
        names: dict[str, Any] = {"nn": nn, "torch": torch, "R": torch.randn}
        return train_step(eval(layer, names), eval(f"({inputs},)", names), move)

    compare(run, values=not any(part in layer for part in RANDOM))
