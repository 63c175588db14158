# SPDX-License-Identifier: Apache-2.0
"""A small transformer that can be divided among ranks by its positions or its experts, and whose dropout is keyed by the numbers of
its rows, so that it is the same on any number of ranks."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather, all_to_all_single


def counts_of_ranks(count):
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([count]))
    return [each.item() for each in counts]


def gathered_rows(x):
    """Those of all ranks, in rank order, and where the own ones begin."""
    counts = counts_of_ranks(len(x))
    padded = torch.cat([x, x.new_zeros(max(counts) - len(x), *x.shape[1:])])
    parts = all_gather(padded) if x.requires_grad else gathered_constants(padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts)]), sum(counts[:dist.get_rank()])


def gathered_constants(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return parts


def kept(numbers, shape, key, probability):
    """Zero or 1 / (1 - probability), for elements of rows with these numbers."""
    state = numbers.view(-1, *(1 for _ in shape)) * 1000003 + torch.arange(torch.Size(shape).numel()).view(1, *shape) * 7919 + key
    for factor in (69069, 1664525):
        state = (state * factor + 12345) % (1 << 31)
        state ^= state >> 13
    return (state / (1 << 31) >= probability) / (1 - probability)


class Experts(nn.Module):
    """Each token goes to one expert, which is on another rank."""

    def __init__(self, width, count):
        super().__init__()
        self.count, rank, ranks = count, dist.get_rank(), dist.get_world_size()
        whole = [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(count)]
        self.router = nn.Linear(width, count)
        own = range(rank * count // ranks, (rank + 1) * count // ranks)
        self.experts = nn.ModuleDict({str(each): whole[each] for each in own})

    def forward(self, x, words):
        """Who gets a token follows from its word, and the router says how much of the result counts: ties do not round."""
        flat, chosen = x.flatten(0, 1), words.flatten() % self.count
        gates = self.router(flat).softmax(1).gather(1, chosen[:, None])
        order = chosen.argsort(stable=True)
        per_rank = self.count // dist.get_world_size()
        sends = torch.bincount(chosen // per_rank, minlength=dist.get_world_size())
        receives = torch.empty_like(sends)
        dist.all_to_all_single(receives, sends)
        there, back = sends.tolist(), receives.tolist()
        arrived = all_to_all_single(flat.new_empty(sum(back), flat.shape[1]), flat[order], back, there)
        names = chosen.new_empty(sum(back))
        dist.all_to_all_single(names, chosen[order], back, there)
        made = torch.zeros_like(arrived)
        for name, expert in self.experts.items():
            of_expert = (names == int(name)).nonzero()[:, 0]
            made = made.index_add(0, of_expert, expert(arrived[of_expert]))
        returned = all_to_all_single(flat.new_empty(len(flat), flat.shape[1]), made, there, back)
        return (gates * torch.zeros_like(flat).index_add(0, order, returned)).view(x.shape)


class Block(nn.Module):
    def __init__(self, width, of_head, experts, divided_positions):
        super().__init__()
        self.of_head, self.divided_positions = of_head, divided_positions
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        if experts:
            self.mixture = Experts(width, experts)
        else:
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def attend(self, x, numbers):
        """Texts are rows, or columns where positions are divided: then the keys of all ranks count."""
        keys, values, places = self.key(x), self.value(x), numbers
        if self.divided_positions:
            (keys, _), (values, _), (places, _) = gathered_rows(keys), gathered_rows(values), gathered_rows(numbers)
            x, keys, values = (each.transpose(0, 1) for each in (x, keys, values))
            mask = numbers[:, None] >= places
        else:
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        heads = [each.unflatten(-1, (-1, self.of_head)).transpose(1, 2) for each in (self.query(x), keys, values)]
        scores = heads[0] @ heads[1].transpose(2, 3) / self.of_head ** 0.5
        seen = (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ heads[2]).transpose(1, 2).flatten(2)
        made = self.out(seen)
        return made.transpose(0, 1) if self.divided_positions else made

    def forward(self, x, words, numbers, drop):
        x = x + drop(self.attend(self.before(x), numbers))
        inner = self.between(x)
        return x + drop(self.mixture(inner, words) if hasattr(self, "mixture") else self.down(nn.functional.gelu(self.up(inner))))


class Transformer(nn.Module):
    def __init__(self, heads, of_head, blocks, words, dropout, key, experts=0, divided_positions=False):
        super().__init__()
        width = heads * of_head
        self.dropout, self.seed = dropout, key
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, of_head, experts, divided_positions) for _ in range(blocks))
        self.last = nn.Linear(width, words)

    def forward(self, words, numbers):
        x, used = self.embedding(words), iter(range(self.seed, self.seed + 100))
        drop = lambda y: y * kept(numbers, y.shape[1:], next(used), self.dropout).to(y.dtype) if self.dropout else y
        for block in self.blocks:
            x = block(x, words, numbers, drop)
        return self.last(x)
