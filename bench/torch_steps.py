#!/usr/bin/env python3
"""The training steps of networks.cpp and optimizer.cpp in PyTorch, on one thread.

    torch_steps.py installed|strongest

Prints PyTorch's version; then, for every line of input that names a workload, the seconds that a step of it took.
"""
import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
strongest = sys.argv[1:] == ["strongest"]
rate = 1e-3
halving = dict(stride=2, padding=1)


def mlp():
    x, targets = torch.rand(16, 16), torch.arange(16) % 8
    layers = torch.nn.Linear(16, 32), torch.nn.Linear(32, 8)

    def loss(w1, b1, w2, b2):
        return F.cross_entropy(F.linear(F.relu(F.linear(x, w1, b1)), w2, b2), targets)
    return layers, loss


def conv():
    x, targets = torch.rand(512, 1, 28, 28), torch.arange(512) % 128
    layers = torch.nn.Conv2d(1, 32, 3), torch.nn.Conv2d(32, 64, 3), torch.nn.Linear(7 * 7 * 64, 128)
    if strongest:
        x = x.to(memory_format=torch.channels_last)
        for layer in layers:
            layer.to(memory_format=torch.channels_last)

    def loss(w1, b1, w2, b2, w3, b3):
        h = F.relu(F.conv2d(x, w1, b1, **halving), inplace=True)
        h = F.relu(F.conv2d(h, w2, b2, **halving), inplace=True)
        return F.cross_entropy(F.linear(h.flatten(1), w3, b3), targets)
    return layers, loss


def training_step(layers, loss):
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=rate)

    def usual():
        optimizer.zero_grad()
        loss(*parameters).backward()
        optimizer.step()

    def fastest():
        gradients = torch.autograd.grad(loss(*parameters), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-rate)
    return fastest if strongest else usual


def adamw():
    parameters = [torch.nn.Parameter(torch.rand(1024, 1024)) for _ in range(8)]
    for parameter in parameters:
        parameter.grad = torch.rand(1024, 1024)
    if strongest:
        try:
            return torch.optim.AdamW(parameters, lr=rate, fused=True).step
        except (TypeError, RuntimeError):  # not on a CPU before PyTorch 2.4
            return torch.optim.AdamW(parameters, lr=rate, foreach=True).step
    return torch.optim.AdamW(parameters, lr=rate).step


def run(step, count):
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - begin


def calibrated(step, at_least=0.01):
    """A step and how often it must run to be timed."""
    count = 1
    run(step, 3)
    while run(step, count) < at_least:
        count *= 2
    return step, count


workloads = {"tiny MLP": lambda: training_step(*mlp()), "conv encoder": lambda: training_step(*conv()), "AdamW": adamw}
ready = {}
print(torch.__version__, flush=True)
for line in sys.stdin:
    name = line.strip()
    if name not in ready:
        ready[name] = calibrated(workloads[name]())
    step, count = ready[name]
    print(run(step, count) / count, flush=True)
