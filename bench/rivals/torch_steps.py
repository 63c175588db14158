#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training steps of networks.cpp and optimizer.cpp in PyTorch, on one thread.

    torch_steps.py installed|strongest

Prints PyTorch's version and then, for every line of input, which names a workload, the seconds that a step of it took.
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


def chain_of_adds():
    x, addend, seed = torch.ones(4, requires_grad=True), torch.full((4,), 1e-3), torch.ones(4)

    def step():
        y = x
        for _ in range(1000):
            y = y + addend
        torch.autograd.grad(y, x, seed)
    return step


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
        except (TypeError, RuntimeError):  # not available on a CPU before PyTorch 2.4
            return torch.optim.AdamW(parameters, lr=rate, foreach=True).step
    return torch.optim.AdamW(parameters, lr=rate).step


def assignment(count):
    tokens, codes = torch.randn(4096, 64), torch.randn(count, 64)

    @torch.no_grad()
    def usual():
        return torch.cdist(tokens, codes).argmin(-1)

    @torch.no_grad()
    def product():
        half = codes.square().sum(-1) / -2
        return torch.addmm(half, tokens, codes.T).argmax(-1)

    @torch.no_grad()
    def tiles():
        half = codes.square().sum(-1) / -2
        return torch.cat([torch.addmm(half, part, codes.T).argmax(-1) for part in tokens.split(128)])
    ways = (usual, product, tiles) if strongest else (usual,)
    return min(ways, key=lambda way: (run(way, 3), run(way, 10))[1])


def contrastive(loss, count, width=128, device="cpu", dtype=torch.float32):
    """The gradients with respect to features, scale and bias of the losses as open_clip and lightly write them. In the
    strongest setting, scores are computed once."""
    def leaf(values):
        return values.to(device, dtype).requires_grad_()

    x, y = (leaf(F.normalize(torch.randn(count, width))) for _ in range(2))
    scale, bias = leaf(torch.tensor(1 / 0.07)), leaf(torch.tensor(-10.0))
    own = torch.arange(count, device=device)

    def clip():
        images = scale * x @ y.T
        if not strongest:
            return (F.cross_entropy(images, own) + F.cross_entropy(scale * y @ x.T, own)) / 2
        return (F.cross_entropy(images, own) + F.cross_entropy(images.T, own)) / 2

    def siglip():
        labels = 2 * torch.eye(count) - 1
        return -F.logsigmoid(labels * (scale * x @ y.T + bias)).sum() / count

    def nt_xent():
        z = F.normalize(torch.cat([x, y]))
        logits = (z @ z.T / 0.07).masked_fill(torch.eye(2 * count, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(logits, torch.cat([own + count, own]))

    value = dict(clip=clip, siglip=siglip, nt_xent=nt_xent)[loss]
    leaves = [x, y, scale, bias]

    def step():
        torch.autograd.grad(value(), leaves, allow_unused=True)
        if device == "cuda":
            torch.cuda.synchronize()
    return step


def status(name):
    with open("/proc/self/status") as file:
        return next(1024 * float(line.split()[1]) for line in file if line.startswith(name + ":"))


def extra_bytes(loss, count):
    """The increase of the peak of resident memory by a first step, as contrastive_memory.cpp measures it."""
    contrastive(loss, 64)()
    step = contrastive(loss, count)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    step()
    return status("VmHWM") - before


def run(step, count):
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - begin


def calibrated(step, at_least=0.01):
    """A step, and how many times it must run to be timed."""
    count = 1
    run(step, 3)
    while run(step, count) < at_least:
        count *= 2
    return step, count


workloads = {"chain of adds": chain_of_adds, "tiny MLP": lambda: training_step(*mlp()), "conv encoder": lambda: training_step(*conv()), "AdamW": adamw,
             "VQ 1024": lambda: assignment(1024), "VQ 8192": lambda: assignment(8192),
             "CLIP": lambda: contrastive("clip", 4096), "SigLIP": lambda: contrastive("siglip", 4096),
             "NT-Xent": lambda: contrastive("nt_xent", 2048),
             "CLIP on a card": lambda: contrastive("clip", 32768, 512, "cuda"),
             "CLIP on a card in bf16": lambda: contrastive("clip", 32768, 512, "cuda", torch.bfloat16)}
ready = {}
print(torch.__version__, flush=True)
for line in sys.stdin:
    name = line.strip()
    if name.startswith("memory of CLIP "):
        print(extra_bytes("clip", int(name.split()[-1])), flush=True)
        continue
    if name not in ready:
        ready[name] = calibrated(workloads[name]())
    step, count = ready[name]
    print(run(step, count) / count, flush=True)
