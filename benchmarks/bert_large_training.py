"""Fine-tune BERT-large on random sequences with the Trainer, as the memory cases C001 to C007 did.

    python bert_large_training.py --batch 1 --accumulation 4 --checkpointing

What `memory_cases.py` runs under Maya. The libraries of early 2022 (transformers 4.15, torch 1.10) differ
from today's in ways that memory sees; they are written out here, and `--today` leaves them away:

- torch before 1.11 kept the input of a softmax for its backward pass beside the output
  (derivatives.yaml: `_softmax_backward_data(grad, result, dim, self)`, since then `self.scalar_type()`);
- gradients were zeroed in place and stayed allocated (`set_to_none=False`, torch's default until 2.0);
- the Trainer's optimizer was its own AdamW: one parameter at a time, with one temporary of its size;
- attention was eager and checkpointing reentrant.
"""

import argparse
import math
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.optimization import Adafactor


class RandomSequences(Dataset):
    """512 sequences of 512 token ids below 30,000; every label is 0. No attention mask."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(100, 30_000, (512, 512), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": torch.tensor(0)}


class SoftmaxOfTorch110(torch.autograd.Function):
    """Softmax over the last dimension that keeps input and output."""

    @staticmethod
    def forward(ctx, scores):
        result = torch.softmax(scores, -1)
        ctx.save_for_backward(scores, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        scores, result = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, result, -1, scores.dtype)


def attention_of_2022(module, query, key, value, mask, dropout=0.0, **_):
    """As BERT's self-attention was written then: every product and its successor a tensor of its own."""
    scores = torch.matmul(query, key.transpose(-1, -2))
    scores = scores / math.sqrt(query.shape[-1])
    if mask is None:
        mask = torch.zeros(query.shape[0], 1, 1, key.shape[2], device=query.device)
    scores = scores + mask
    # Under autocast a softmax is of float32; its input is then the cast copy.
    probabilities = SoftmaxOfTorch110.apply(scores.float())
    probabilities = torch.nn.functional.dropout(probabilities, dropout, module.training)
    context = torch.matmul(probabilities, value)
    return context.permute(0, 2, 1, 3).contiguous(), probabilities


class PerParameterAdamW(torch.optim.Optimizer):
    """AdamW with bias correction, decay after the step, one parameter after the other."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(parameter)
                    state["square"] = torch.zeros_like(parameter)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                root = state["square"].sqrt().add_(1e-8)
                correction = math.sqrt(1 - 0.999 ** state["step"]) / (1 - 0.9 ** state["step"])
                parameter.addcdiv_(state["mean"], root, value=-group["lr"] * correction)
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--optimizer", choices=("adamw", "adafactor"), default="adamw")
    parser.add_argument("--today", action="store_true", help="softmax and zero_grad of today's torch")
    args = parser.parse_args()
    ALL_ATTENTION_FUNCTIONS.register("2022", attention_of_2022)
    ALL_MASK_ATTENTION_FUNCTIONS.register("2022", eager_mask)
    # The documentation's first reading was taken with this on the device.
    torch.ones((1, 1)).to("cuda")
    config = BertConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        num_labels=2,
        attn_implementation="eager" if args.today else "2022",
    )
    model = BertForSequenceClassification(config).to("cuda")
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    if not args.today:
        model.zero_grad = lambda: torch.nn.Module.zero_grad(model, set_to_none=False)
    if args.optimizer == "adamw":
        optimizer = PerParameterAdamW(model.parameters(), lr=5e-5)
    else:
        optimizer = Adafactor(model.parameters(), lr=5e-5, scale_parameter=False, relative_step=False)
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=args.batch,
            gradient_accumulation_steps=args.accumulation,
            fp16=args.fp16,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model, training, train_dataset=RandomSequences(), optimizers=(optimizer, None))
        trainer.train()


if __name__ == "__main__":
    main()
