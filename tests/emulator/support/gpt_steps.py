"""Prints, as JSON, what training steps of the example's GPT record on the emulated device.

python gpt_steps.py OPTIMIZER...     fused_adamw, foreach_adamw or foreach_sgd; one recording each
"""

import json
import sys
from pathlib import Path

import torch
from recorded_operators import record

LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH, BATCH = 3, 2, 128, 256, 64, 4

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import train_gpt  # noqa: E402  (after the device is there, as in a run)


def recorded(kind):
    model = train_gpt.GPT(VOCABULARY, LENGTH, LAYERS, HEADS, WIDTH).cuda()
    optimizer = {
        "fused_adamw": lambda: train_gpt.make_optimizer(model, 6e-4, 0.1),
        "foreach_adamw": lambda: torch.optim.AdamW(model.parameters(), lr=6e-4, foreach=True),
        "foreach_sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True),
    }[kind]()
    host = torch.randint(VOCABULARY, (2, BATCH, LENGTH)).pin_memory()

    def step():
        tokens, targets = (row.to("cuda", non_blocking=True) for row in host)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            _, loss = model(tokens, targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return norm.item()

    step()  # the first one makes the optimizer's state
    return record(step)


json.dump({kind: recorded(kind) for kind in sys.argv[1:]}, sys.stdout)
