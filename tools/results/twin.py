#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A recipe for Fashion-MNIST in PyTorch, in one process: the same data, views, network, loss, optimizer and linear
probe as train_contrastive, with other random numbers.

    twin.py RECIPE.toml SEED [EPOCHS]

Knows the encoders conv and stages, pairs of views with NT-Xent, AdamW and the schedule one-cycle.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from fashion_mnist import read
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench/rivals"))
from torch_recipe import network_of, rate_at, read_recipe  # noqa: E402
from torch_views import augmented  # noqa: E402


def nt_xent(first, second, temperature):
    rows = F.normalize(torch.cat([first, second]))
    n = len(first)
    logits = (rows @ rows.T / temperature).fill_diagonal_(-math.inf)
    return F.cross_entropy(logits, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def features_of(encoder, images):
    with torch.no_grad():
        return torch.cat([encoder(part.float() / 255) for part in images.split(500)])


def linear_probe(network[0], train, test):
    """apps/shared/evaluation/probe.cpp."""
    x, y = features_of(encoder, train[0]), features_of(encoder, test[0])
    mean, deviation = x.mean(0), (x.var(0, unbiased=False) + 1e-6).sqrt()
    x, y = (x - mean) / deviation, (y - mean) / deviation
    classifier, steps = nn.Linear(x.shape[1], 10), 200
    nn.init.zeros_(classifier.weight)
    nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.Adam(classifier.parameters())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        F.cross_entropy(classifier(x), train[1]).backward()
        optimizer.step()
    return (classifier(y).argmax(1) == test[1]).float().mean().item()


def main():
    a = read_recipe(sys.argv[1])
    torch.manual_seed(int(sys.argv[2]))
    torch.set_num_threads(1)
    train, test = read("train"), read("t10k")
    network = network_of(a, torch.zeros(1, 1, 28, 28))
    optimizer = torch.optim.AdamW(network.parameters(), lr=a["rate"], weight_decay=a["weight-decay"])
    in_epoch = len(train[0]) // a["batch"]
    steps = in_epoch * int(sys.argv[3] if len(sys.argv) > 3 else a["epochs"])
    for step in range(steps):
        if step % in_epoch == 0:
            order = torch.randperm(len(train[0]))
        samples = train[0][order[step % in_epoch * a["batch"]:][:a["batch"]]].float() / 255
        loss = nt_xent(network(augmented(samples, a)), network(augmented(samples, a)), a["temperature"])
        optimizer.param_groups[0]["lr"] = rate_at(a, step, steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss of the last step {loss.item():.4g}, test accuracy: linear probe "
          f"{100 * linear_probe(network[0], train, test):.2f} %")


main()
