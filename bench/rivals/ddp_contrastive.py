#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""apps/train_contrastive in PyTorch: the same data, views, network, loss and optimizer, with DistributedDataParallel
over gloo in two processes of one thread each, or on one card.

    ddp_contrastive.py SETTING STEPS [--recipe FILE.toml] [--batch N] [--pictures FILE.npy] [--card]

SETTING is `installed`, `strongest` or `compiled`, which is `strongest` with the network and the views compiled by
torch.compile. Prints a line for every step, like those of train_contrastive's metrics.jsonl: {"step": 1, "time":
seconds since 1970, "loss": ...}. Without PyTorch it prints an error and exits with 77.
"""
import argparse
import gzip
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("setting", choices=["installed", "strongest", "compiled"])
parser.add_argument("steps", type=int)
parser.add_argument("--recipe", help="default: train_contrastive's own options")
parser.add_argument("--batch", type=int, help="default: the recipe's")
parser.add_argument("--pictures", help="(n, height, width, channels), bytes; default: Fashion-MNIST")
parser.add_argument("--card", action="store_true", help="one process, on a card")
arguments = parser.parse_args()
ranks = 1 if arguments.card else 2


def start_ranks():
    """Starts this program once per rank, which saves the seconds that torchrun takes. Returns the worst exit code."""
    if importlib.util.find_spec("torch") is None:
        print(f"{sys.executable} has no PyTorch; $WEFT_PYTHON names one that has", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        common = dict(os.environ, RENDEZVOUS=folder + "/rendezvous", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                      PYTHONWARNINGS="ignore")
        if arguments.setting != "installed":  # the process keeps freed memory, so that its pages fault only once
            for threshold in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"):
                common[threshold] = str(2**30)
        children = [subprocess.Popen([sys.executable] + sys.argv, env=dict(common, RANK=str(rank)))
                    for rank in range(ranks)]
        return max(abs(child.wait()) for child in children)


if "RANK" not in os.environ:
    sys.exit(start_ranks())

import torch  # noqa: E402  (only the ranks need it, and it takes seconds)
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_recipe import network_of, rate_at, read_recipe, usual  # noqa: E402
from torch_views import augmented  # noqa: E402

rank, strongest, compiled = int(os.environ["RANK"]), arguments.setting != "installed", arguments.setting == "compiled"


def load_images():
    if arguments.pictures:
        import numpy
        return torch.from_numpy(numpy.load(arguments.pictures)).permute(0, 3, 1, 2)
    folder = os.environ.get("WEFT_DATA", "/usr/share/datasets/fashion-mnist")
    with gzip.open(folder + "/train-images-idx3-ubyte.gz") as file:
        file.read(16)
        pixels = bytearray()
        while part := file.read(1 << 20):
            pixels += part
    return torch.frombuffer(pixels, dtype=torch.uint8).cpu().view(-1, 1, 28, 28)


class Gathered(torch.autograd.Function):
    """Gathers the rows of all ranks; backward sums the cotangents over ranks and returns those of this rank's rows."""

    @staticmethod
    def forward(context, mine):
        everyones = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(everyones, mine)
        return torch.cat(everyones)

    @staticmethod
    def backward(context, cotangents):
        dist.all_reduce(cotangents)
        return cotangents.chunk(ranks)[rank]


def nt_xent(rows, counterparts, temperature):
    """The loss of this rank's rows, whose first half are first views, compared with the rows of all ranks."""
    rows = F.normalize(rows)
    logits = rows @ Gathered.apply(rows).T / temperature
    logits.diagonal(rank * len(rows)).fill_(-math.inf)
    return F.cross_entropy(logits, counterparts)


def adamw(parameters, options):
    options = dict(lr=options["rate"], weight_decay=options["weight-decay"])
    if strongest:
        try:
            return torch.optim.AdamW(parameters, fused=True, **options)
        except (TypeError, RuntimeError):  # not available on a CPU before PyTorch 2.4
            pass
    return torch.optim.AdamW(parameters, **options)


def prepared(network):
    if strongest:
        torch.set_flush_denormal(True)
        network = network.to(memory_format=torch.channels_last)
    if compiled:
        network = torch.compile(network)
    return nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=strongest, static_graph=strongest)


def train():
    torch.set_num_threads(1)
    device = torch.device("cuda" if arguments.card else "cpu")
    torch.set_default_device(device)
    torch.manual_seed(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if arguments.card else "gloo", rank=rank, world_size=ranks,
                            init_method="file://" + os.environ["RENDEZVOUS"])
    options = read_recipe(arguments.recipe) if arguments.recipe else usual
    images, batch, steps = load_images(), arguments.batch or options["batch"], arguments.steps
    mine, shuffling = batch // ranks, torch.Generator("cpu").manual_seed(1)  # the same order on all ranks
    network = network_of(options, torch.zeros(1, *images.shape[1:]))
    model, optimizer = prepared(network), adamw(network.parameters(), options)
    views_of = torch.compile(augmented) if compiled else augmented
    counterparts = rank * 2 * mine + (torch.arange(2 * mine) + mine) % (2 * mine)
    for step in range(steps):
        if step % (len(images) // batch) == 0:
            order = torch.randperm(len(images), generator=shuffling, device="cpu")
        first = step % (len(images) // batch) * batch + rank * mine
        samples = images[order[first:first + mine]].to(device).float().div_(255)
        loss = nt_xent(model(views_of(samples.repeat(2, 1, 1, 1), options)), counterparts, options["temperature"])
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = rate_at(options, step, steps)
        optimizer.step()
        if rank == 0:
            print(json.dumps({"step": step + 1, "time": time.time(), "loss": loss.item()}), flush=True)
    dist.barrier()
    os._exit(0)  # a regular exit sometimes aborts in gloo's threads, and is not part of the measurement


train()
