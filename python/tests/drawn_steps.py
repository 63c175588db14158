# SPDX-License-Identifier: Apache-2.0
"""Correct steps of small models, drawn from a number: of layers, and of transformers whose parameters, positions or experts are
divided among ranks, or whose samples come in micro-batches."""
import dataclasses
import random
from typing import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import planted_steps as planted
from transformers_by_hand import Transformer, gathered_rows

kinds = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}


@dataclasses.dataclass
class Drawn:
    family: str
    kind: str
    model: Callable
    step: Callable
    batch: tuple
    parts: int
    uneven: bool = True


def ddp(layers):
    return nn.parallel.DistributedDataParallel(layers)


def fsdp2(layers):
    return fully_shard(layers, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def micro_batches(batch, draw_from):
    """One to three, of unequal lengths, and as many on every rank."""
    rows = len(batch[0])
    ends = sorted(draw_from.sample(range(1, rows), draw_from.randint(0, 2)))
    return [tuple(x[start:end] for x in batch) for start, end in zip([0, *ends], [*ends, rows])]


def weighed(loss, batch):
    return loss * dist.get_world_size() / planted.count_of_all(len(batch[0]))


def drawn_layers(draw, kind):
    """A regression, a classification, or a contrastive loss over the rows of all ranks."""
    width, hidden, out = (draw.randint(2, 12) for _ in range(3))
    activation = draw.choice([nn.Tanh, nn.GELU, nn.SiLU, nn.ReLU])
    task = draw.choice(["regression", "classes", "contrast"])
    wrap = draw.choice([ddp, fsdp2])
    scale = draw.choice([1e-3, 1, 1, 100])

    def model():
        layers = nn.Sequential(nn.Linear(width, hidden), activation(), nn.Linear(hidden, out)).to(kind)
        return wrap(layers) if dist.get_world_size() > 1 else layers

    def step(model, batch):
        inputs, targets, classes = batch
        made = model(inputs)
        if task == "regression":
            return scale * weighed((made - targets).square().sum(), batch)
        if task == "classes":
            return scale * weighed(nn.functional.cross_entropy(made, classes % out, reduction="sum"), batch)
        keys, first = gathered_rows(nn.functional.normalize(made))
        labels = first + torch.arange(len(made))
        return scale * weighed(nn.functional.cross_entropy(5 * nn.functional.normalize(made + targets) @ keys.T, labels, reduction="sum"), batch)

    rows = draw.randint(12, 60)
    return f"layers, {task}", model, step, (torch.randn(rows, width).to(kind), torch.randn(rows, out).to(kind),
                                            torch.randint(0, 1000, (rows,)))


def drawn_reducer(draw, kind):
    step = draw.choice(planted.right_steps)
    return "a reducer by hand", planted.model_of(kind), step, planted.batch(draw.randint(0, 1 << 30), kind, draw.randint(12, 60))


def of_transformer(draw, kind, ranks, **how):
    settings = dict(heads=ranks * draw.randint(1, 2), of_head=draw.choice([2, 4]), blocks=draw.randint(1, 2), words=draw.randint(8, 24),
                    dropout=draw.choice([0, 0.1, 0.3]), key=draw.randint(0, 1 << 20)) | how
    return lambda: Transformer(**settings).to(kind), settings["words"]


def tokens(draw, words, rows, length):
    """Words and labels, of which some do not count, and the numbers of the rows."""
    labels = torch.randint(0, words, (rows, length))
    labels[torch.rand(rows, length) < draw.choice([0, 0.3])] = -100
    labels[0, 0] = 1
    return torch.randint(0, words, (rows, length)), labels, torch.arange(rows)


def loss_of_tokens(model, batch, of_all):
    words, labels, numbers = batch
    logits = model(words, numbers)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum") / of_all


def count_of_tokens(batch):
    return planted.count_of_all((batch[1] != -100).sum().item())


def drawn_data_parallel(draw, kind, ranks):
    """DDP, or FSDP2, over samples, in micro-batches of unequal lengths."""
    make, words = of_transformer(draw, kind, ranks)
    wrap, seed = draw.choice([ddp, fsdp2]), draw.randint(0, 1 << 30)

    def step(model, batch):
        of_all = count_of_tokens(batch)
        for part in micro_batches(batch, random.Random(seed)):
            (loss_of_tokens(model, part, of_all) * dist.get_world_size()).backward()
    return "transformer, accumulation", lambda: wrap(make()) if dist.get_world_size() > 1 else make(), step, \
        tokens(draw, words, draw.randint(27, 36), draw.randint(2, 6))


def drawn_tensor_parallel(draw, kind, ranks):
    make, words = of_transformer(draw, kind, ranks)
    columns, rows = ("query", "key", "value", "up"), ("out", "down")

    def model():
        whole = make()
        if dist.get_world_size() == 1:
            return whole
        plan = {f"blocks.*.{name}": ColwiseParallel() for name in columns} | {f"blocks.*.{name}": RowwiseParallel() for name in rows}
        return parallelize_module(whole, init_device_mesh("cpu", (dist.get_world_size(),)), plan)

    def step(model, batch):
        return loss_of_tokens(model, batch, (batch[1] != -100).sum())
    return "transformer, TP", model, step, tokens(draw, words, draw.randint(4, 12), draw.randint(2, 6)), 1


def drawn_context_parallel(draw, kind, ranks):
    """The rows of the batch are positions of its texts: each rank has some of every text."""
    make, words = of_transformer(draw, kind, ranks, divided_positions=True)

    def step(model, batch):
        return loss_of_tokens(model, batch, count_of_tokens(batch)) * dist.get_world_size()
    return "transformer, CP", lambda: ddp(make()) if dist.get_world_size() > 1 else make(), step, \
        tokens(draw, words, draw.randint(12, 30), draw.randint(1, 3))


def drawn_experts(draw, kind, ranks):
    """Experts are divided among ranks, which send them their tokens. Everything else is the same on all."""
    make, words = of_transformer(draw, kind, ranks, experts=ranks * draw.randint(1, 2))

    def step(model, batch):
        (loss_of_tokens(model, batch, count_of_tokens(batch)) * dist.get_world_size()).backward()
        for name, p in model.named_parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            if ".experts." not in name:
                dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
    return "transformer, MoE", make, step, tokens(draw, words, draw.randint(12, 24), draw.randint(2, 6))


transformers = [drawn_data_parallel, drawn_tensor_parallel, drawn_context_parallel, drawn_experts]


def drawn(number, ranks, kind=None, only_transformers=False):
    draw = random.Random(number)
    torch.manual_seed(number)
    kind = kind or draw.choice(list(kinds))
    if only_transformers or draw.random() < 0.4:
        family, model, step, batch, *parts = draw.choice(transformers)(draw, kinds[kind], ranks)
    else:
        family, model, step, batch, *parts = draw.choice([drawn_layers, drawn_reducer])(draw, kinds[kind])
    return Drawn(family, kind, model, step, batch, *(parts or [ranks]), uneven=draw.random() < 0.8)
