# SPDX-License-Identifier: Apache-2.0
"""A training step as people write it: two towers under DDP, and a contrastive loss over the pairs of all ranks.

    WEFT_DUMP=folder torchrun --nproc-per-node 3 tests/verify/train_ddp.py correct

With a second word the parameters are moved instead, as if the verifier knew nothing of the loss: "scale" under DDP, "held" too,
while detached values are held, "fsdp2" under FSDP2, and "both" under FSDP2 over tensor parallel layers, where two ranks have the same samples. The first word says how the features of all ranks are gathered, or what is wrong besides:
    correct    by a collective whose adjoint is a reduce-scatter; each rank's loss is of its own rows
    default    as OpenCLIP by default: own features are put back into what was gathered, every rank has the whole loss
    local      as OpenCLIP with local_loss alone: own rows against columns that have no gradient
    own_slot   as Lightly before May 2024: the gradient of a rank's own slot, without those of the others
    summed     correct, but DDP's hook sums where it should average
    spread     correct, with a second term of the loss, which keeps features apart; the terms are dumped, too
    straight   correct, with a straight-through estimator
    alone      correct, with a loss of a rank's own samples only
    times      as alone, but the gradient of the loss is multiplied by the number of ranks
    scaled     as spread, but the gradient of the second term is multiplied by the number of ranks
"""
import copy
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "dump"))
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as differentiable
import torch.nn.functional as F
import weft_dump_torch as weft_dump
import weft_scale_torch as weft_scale
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Towers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.images = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
        self.texts = torch.nn.Linear(6, 8)
        self.log_scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, images, texts):
        return F.normalize(self.images(images), dim=1), F.normalize(self.texts(texts), dim=1), self.log_scale.exp()


class OwnSlot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        slots = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(slots, x)
        return tuple(slots)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[dist.get_rank()]


class TimesRanks(torch.autograd.Function):
    """The same value, and its gradient as often as there are ranks."""
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * dist.get_world_size()


def gathered(x, how):
    if how in ("correct", "summed", "spread", "scaled", "straight"):
        return torch.cat(differentiable.all_gather(x))
    if how == "own_slot":
        return torch.cat(OwnSlot.apply(x))
    if how in ("alone", "times"):
        return x
    slots = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(slots, x)
    if how == "default":
        slots[dist.get_rank()] = x
    return torch.cat(slots)


def loss(images, texts, scale, how):
    if how == "straight":
        images = images + ((4 * images).round() / 4 - images).detach()
    all_images, all_texts = gathered(images, how), gathered(texts, how)
    first = 0 if how in ("alone", "times") else dist.get_rank() * len(images)
    if how == "default":
        images, texts, first = all_images, all_texts, 0
    labels = torch.arange(first, first + len(images))
    both = (F.cross_entropy(scale * images @ all_texts.T, labels) + F.cross_entropy(scale * texts @ all_images.T, labels)) / 2
    return TimesRanks.apply(both) if how == "times" else both


def terms(images, texts, scale, how):
    spread = -0.1 * images.var(dim=0).sum()
    return {"contrast": loss(images, texts, scale, how), "spread": TimesRanks.apply(spread) if how == "scaled" else spread}


def of_whole_batch(terms):
    """Ranks have equally many samples."""
    for x in terms.values():
        dist.all_reduce(x, dist.ReduceOp.SUM)
        x /= dist.get_world_size()
    return terms


def main(how, moved=None):
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64 if moved else torch.float32)
    torch.manual_seed(0)
    if moved == "fsdp2":
        model = fully_shard(Towers(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    elif moved == "both":
        mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
        plan = {"images.0": ColwiseParallel(), "images.2": RowwiseParallel()}
        model = fully_shard(parallelize_module(Towers(), mesh["tp"], plan), mesh=mesh["dp"])
    else:
        model = DistributedDataParallel(Towers())
    if how == "summed":
        model.register_comm_hook(None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(
            lambda done: done.value()[0]))
    torch.manual_seed(1 + dist.get_rank() // (2 if moved == "both" else 1))
    pictures, sentences = torch.randn(5, 12), torch.randn(5, 6)
    if moved:
        before = copy.deepcopy(model.state_dict())
        if how in ("spread", "scaled"):
            weft_scale.dump(lambda: sum(terms(*model(pictures, sentences), how).values()), model, rows=5,
                            objective=lambda: of_whole_batch(terms(*model(pictures, sentences), how)))
        else:
            weft_scale.dump(lambda: loss(*model(pictures, sentences), how), model, rows=5, held=moved == "held")
        assert all((before[name] == now).all() for name, now in model.state_dict().items())
    else:
        weft_dump.parameters(model)
        images, texts, scale = model(pictures, sentences)
        images, texts = weft_dump.features(images=images, texts=texts)
        (scale,) = weft_dump.scalars(scale=scale)
        loss(images, texts, scale, how).backward()
        weft_dump.save("clip")
    dist.destroy_process_group()


main(*sys.argv[1:])
