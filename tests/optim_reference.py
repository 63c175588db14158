#!/usr/bin/env python3
"""Writes tests/optim_reference.h: where PyTorch's optimizers are after 20 steps in f64.

Values and gradients are eighths, so that both sides begin with the same numbers.
"""
import torch

steps = 20
cases = {
    "sgd": (torch.optim.SGD, dict()),
    "sgd_momentum": (torch.optim.SGD, dict(momentum=0.875, weight_decay=0.125)),
    "sgd_nesterov": (torch.optim.SGD, dict(momentum=0.75, nesterov=True, weight_decay=0.0625)),
    "adam": (torch.optim.Adam, dict(betas=(0.875, 0.96875), eps=1e-8, weight_decay=0.125)),
    "adamw": (torch.optim.AdamW, dict(betas=(0.875, 0.96875), eps=1e-8, weight_decay=0.25)),
}


def eighths(size, seed):
    return torch.tensor([((7 * i + 13 * seed) % 17 - 8) / 8 for i in range(size)], dtype=torch.float64)


def trajectory(kind, options):
    a, b = (torch.nn.Parameter(eighths(size, 40 + size)) for size in (5, 6))
    optimizer = kind([dict(params=[a], weight_decay=options.get("weight_decay", 0)), dict(params=[b], weight_decay=0)],
                     **{"lr": 1} | options)
    for step in range(steps):
        rate = 0.125 - step / 256
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = rate, rate / 2
        a.grad = eighths(5, 2 * step)
        b.grad = eighths(6, 2 * step + 1) if step % 3 != 1 else None
        optimizer.step()
    return a.tolist() + b.tolist()


print(f"""#pragma once
// Written by optim_reference.py with PyTorch {torch.__version__.split("+")[0]}: the values after {steps} steps.
#include <vector>

namespace weft::reference {{
""")
for name, (kind, options) in cases.items():
    values = [repr(value) for value in trajectory(kind, options)]
    print(f"inline const std::vector<double> {name} = {{{', '.join(values)}}};")
print("\n}  // namespace weft::reference")
