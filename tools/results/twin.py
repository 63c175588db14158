#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A recipe in PyTorch, in one process: the same data, views, network, loss, optimizer and linear probe as
train_contrastive, with other random numbers.

    twin.py RECIPE.toml SEED [--epochs N] [--batch N] [--pictures FILE.npz]

Without --pictures, which coloured.py writes, it learns Fashion-MNIST. Knows what torch_recipe.py knows.
"""
import argparse
import math
import pathlib
import sys

import numpy
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


def linear_probe(encoder, train, test):
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


def read_arrays(path):
    arrays = numpy.load(path)
    return [(torch.from_numpy(arrays[f"{part}_images"]).permute(0, 3, 1, 2), torch.from_numpy(arrays[f"{part}_labels"]))
            for part in ("train", "test")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("seed", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--pictures")
    given = parser.parse_args()
    a = read_recipe(given.recipe)
    a |= {name: value for name, value in (("epochs", given.epochs), ("batch", given.batch)) if value}
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    train, test = read_arrays(given.pictures) if given.pictures else (read("train"), read("t10k"))
    network = network_of(a, torch.zeros(1, *train[0].shape[1:]))
    optimizer = torch.optim.AdamW(network.parameters(), lr=a["rate"], weight_decay=a["weight-decay"])
    in_epoch = len(train[0]) // a["batch"]
    steps = in_epoch * a["epochs"]
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
