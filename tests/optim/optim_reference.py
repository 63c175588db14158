#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/optim/optim_reference.h: parameter values after 20 steps of PyTorch's optimizers in f64.

Values and gradients are multiples of 1/8, so that both sides start with the same numbers. Muon casts to bf16 inside; it
runs as it is, and once more without that cast.
"""
import inspect

import torch
import torch.optim._muon as muon

steps = 20
cases = {
    "sgd": (torch.optim.SGD, dict()),
    "sgd_momentum": (torch.optim.SGD, dict(momentum=0.875, weight_decay=0.125)),
    "sgd_nesterov": (torch.optim.SGD, dict(momentum=0.75, nesterov=True, weight_decay=0.0625)),
    "adam": (torch.optim.Adam, dict(betas=(0.875, 0.96875), eps=1e-8, weight_decay=0.125)),
    "adamw": (torch.optim.AdamW, dict(betas=(0.875, 0.96875), eps=1e-8, weight_decay=0.25)),
    "adam_amsgrad": (torch.optim.Adam, dict(betas=(0.5, 0.75), eps=1e-8, weight_decay=0.125, amsgrad=True)),
    "adamw_amsgrad": (torch.optim.AdamW, dict(betas=(0.5, 0.75), eps=1e-8, weight_decay=0.25, amsgrad=True)),
}
# For matrices with outputs in rows, as in torch.nn.Linear.
of_matrices = {
    "muon": (torch.optim.Muon, dict(momentum=0.875, weight_decay=0.125)),
    "muon_plain": (torch.optim.Muon, dict(momentum=0.75, weight_decay=0, nesterov=False, ns_steps=3,
                                          adjust_lr_fn="match_rms_adamw")),
    "muon_spectral": (torch.optim.Muon, dict(adjust_lr_fn="spectral_unclamped", ns_coefficients=(3, -3.2, 1.2))),
}
of_any_shape = {
    "adafactor": (torch.optim.Adafactor, dict(weight_decay=0.125)),
    "adafactor_free": (torch.optim.Adafactor, dict(beta2_decay=-0.5, eps=(1e-3, 0.25), d=2)),
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


def trajectory_of(shapes, kind, options, turned):
    def tensor(shape, seed):
        values = eighths(torch.Size(shape).numel(), seed).reshape(shape)
        return (values.T if turned else values).contiguous()

    parameters = [torch.nn.Parameter(tensor(shape, 40 + i)) for i, shape in enumerate(shapes)]
    optimizer = kind(parameters, **{"lr": 1} | options)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.125 - step / 256
        for i, parameter in enumerate(parameters):
            parameter.grad = tensor(shapes[i], 3 * step + i) if i == 0 or step % 3 != 1 else None
        optimizer.step()
    return [value for p in parameters for value in (p.T if turned else p).flatten().tolist()]


exact_steps = {"torch": torch}
exec(inspect.getsource(muon._zeropower_via_newtonschulz).replace("dtype=torch.bfloat16, ", "").replace(
    "-> Tensor", "").replace("grad: Tensor", "grad"), exact_steps)
results = {name: trajectory(*case) for name, case in cases.items()}
matrices = (4, 6), (5, 3)
results["muon_bf16"] = trajectory_of(matrices, *of_matrices["muon"], True)
muon._zeropower_via_newtonschulz = exact_steps["_zeropower_via_newtonschulz"]
results |= {name: trajectory_of(matrices, *case, True) for name, case in of_matrices.items()}
results |= {name: trajectory_of(((4, 6), (2, 3, 5), (7,), ()), *case, False) for name, case in of_any_shape.items()}

print(f"""#pragma once
// Written by optim_reference.py with PyTorch {torch.__version__.split("+")[0]}: the values after {steps} steps.
#include <vector>

namespace weft::reference {{
""")
for name, values in results.items():
    print(f"inline const std::vector<double> {name} = {{{', '.join(map(repr, values))}}};")
print("\n}  // namespace weft::reference")
