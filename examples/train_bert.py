"""Fine-tune a BERT of HuggingFace transformers, from its configuration, on made-up questions.

    python train_bert.py                                  # BERT-base, SQuAD's shapes, bfloat16, one GPU
    python train_bert.py --model large --gradient-checkpointing
    torchrun --nproc-per-node 8 train_bert.py --task classification --sequence-length 128
    python train_bert.py --device cpu --layers 2 --width 32 --heads 2 --vocab-size 64 \
        --sequence-length 16 --batch-size 16 --steps 60   # a few seconds on any machine

Needs `pip install transformers accelerate`; downloads nothing.
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

SIZES = {
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12},
    "large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16},
}
PAD, CLS, SEP, MARK = 0, 1, 2, 3
FIRST_WORD = 4


class RandomText(Dataset):
    """A question, a separator and a paragraph of random words; the same for the same index.

    For question answering a mark stands before and after the answer. For classification the label says
    from which half of the vocabulary the question's words are.
    """

    def __init__(self, task, examples, length, vocab_size, seed):
        self.task, self.examples, self.length = task, examples, length
        self.vocab_size, self.seed = vocab_size, seed

    def __len__(self):
        return self.examples

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)

        def random(low, high, shape=()):
            return torch.randint(low, high, shape, generator=generator)

        used = int(random(3 * self.length // 4, self.length + 1))  # the rest is padding
        question = max(2, self.length // 8)
        words = random(FIRST_WORD, self.vocab_size, (self.length,))
        words[0], words[question], words[used - 1] = CLS, SEP, SEP
        words[used:] = PAD
        positions = torch.arange(self.length)
        item = {"attention_mask": (positions < used).long()}
        item["token_type_ids"] = ((positions > question) & (positions < used)).long()
        if self.task == "classification":
            middle = (FIRST_WORD + self.vocab_size) // 2
            low, high = ((FIRST_WORD, middle), (middle, self.vocab_size))[index % 2]
            words[1:question] = random(low, high, (question - 1,))
            item["labels"] = torch.tensor(index % 2)
        else:
            begin = int(random(question + 1, used - 3))
            end = int(random(begin + 1, min(begin + 12, used - 2) + 1))
            words[begin], words[end] = MARK, MARK
            item["start_positions"], item["end_positions"] = torch.tensor(begin), torch.tensor(end)
        return {"input_ids": words, **item}


def parse_arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.description = __doc__
    parser.add_argument("--task", choices=("questions", "classification"), default="questions")
    parser.add_argument("--model", choices=tuple(SIZES), default="base")
    parser.add_argument("--layers", type=int, help="instead of the model's")
    parser.add_argument("--width", type=int, help="instead of the model's")
    parser.add_argument("--heads", type=int, help="instead of the model's")
    parser.add_argument("--vocab-size", type=int, default=30522)
    parser.add_argument("--sequence-length", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=16, help="sequences a GPU and micro-batch")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches a step")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--warmup-steps", type=int, default=50)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--precision", choices=("bf16", "fp16", "fp32"), default="bf16")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--examples", type=int, default=100_000, help="of the data set")
    parser.add_argument("--workers", type=int, default=2, help="processes that load data")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--output", default="checkpoints/bert")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def make_model(args):
    shape = dict(SIZES[args.model])
    chosen = {
        "num_hidden_layers": args.layers,
        "hidden_size": args.width,
        "num_attention_heads": args.heads,
    }
    shape.update({name: value for name, value in chosen.items() if value is not None})
    config = BertConfig(
        vocab_size=args.vocab_size,
        intermediate_size=4 * shape["hidden_size"],
        max_position_embeddings=max(512, args.sequence_length),
        attn_implementation=args.attention,
        num_labels=2,
        **shape,
    )
    if args.task == "classification":
        return BertForSequenceClassification(config)
    return BertForQuestionAnswering(config)


def main():
    args = parse_arguments()
    torch.backends.cuda.matmul.allow_tf32 = True
    training = TrainingArguments(
        output_dir=args.output,
        max_steps=args.steps,
        per_device_train_batch_size=args.batch_size,
        gradient_accumulation_steps=args.accumulation,
        learning_rate=args.learning_rate,
        warmup_steps=args.warmup_steps,
        weight_decay=args.weight_decay,
        lr_scheduler_type="linear",
        bf16=args.precision == "bf16",
        fp16=args.precision == "fp16",
        dataloader_num_workers=args.workers,
        dataloader_drop_last=True,
        logging_steps=args.log_every,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        use_cpu=args.device == "cpu",
        seed=args.seed,
    )
    torch.manual_seed(args.seed)
    model = make_model(args)
    if args.gradient_checkpointing:
        # Its name until transformers 5.24, where it began to warn.
        old_name = model.gradient_checkpointing_enable
        getattr(model, "activation_checkpointing_enable", old_name)()
    dataset = RandomText(args.task, args.examples, args.sequence_length, args.vocab_size, args.seed)
    trainer = Trainer(model=model, args=training, train_dataset=dataset)
    if trainer.is_world_process_zero():
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters / 1e6:.1f}M parameters, {training.world_size} x {training.device}")
    trainer.train()
    trainer.save_model()
    if args.device == "cuda" and trainer.is_world_process_zero():
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
