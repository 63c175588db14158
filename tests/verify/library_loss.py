# SPDX-License-Identifier: Apache-2.0
"""The loss of a released library on features of this rank, dumped for `weft verify`; one process per rank.

    WEFT_DUMP=folder torchrun --nproc-per-node 3 tests/verify/library_loss.py openclip
"""
import importlib
import importlib.util
import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "dump"))
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn.functional as F
import weft_dump_torch as weft_dump
import weft_layers_torch as weft_layers


def module_of(name):
    """A module of a package, without running any __init__ of it, since these need much more than the module does."""
    package = name.split(".")[0]
    place = pathlib.Path(importlib.util.find_spec(package).origin).parent
    for init in place.rglob("__init__.py"):
        stub = types.ModuleType(".".join((package, *init.parent.relative_to(place).parts)))
        stub.__path__ = [str(init.parent)]
        sys.modules[stub.__name__] = stub
    return importlib.import_module(name)


def openclip(local, with_grad):
    def step(draw):
        loss = module_of("open_clip.loss").ClipLoss(
            local_loss=local, gather_with_grad=with_grad, rank=dist.get_rank(), world_size=dist.get_world_size())
        scale = torch.tensor(4.5, requires_grad=True)
        images, texts = weft_dump.features(images=F.normalize(draw(), dim=1), texts=F.normalize(draw(), dim=1))
        loss(images, texts, *weft_dump.scalars(scale=scale)).backward()
        return "clip", {}
    return step


def openclip_cached(detaches_scale):
    """As its trainer accumulates: features of all micro-batches are cached, and each pass replays one of them."""
    def step(draw):
        loss = module_of("open_clip.loss").ClipLoss(
            local_loss=True, gather_with_grad=True, rank=dist.get_rank(), world_size=dist.get_world_size())
        towers = weft_dump.features(images=F.normalize(draw(), dim=1), texts=F.normalize(draw(), dim=1))
        (scale,) = weft_dump.scalars(scale=torch.tensor(4.5, requires_grad=True))
        passes = [slice(0, 2), slice(2, 5)]
        for live in passes:
            replayed = [torch.cat([x[:live.start].detach(), x[live], x[live.stop:].detach()]) for x in towers]
            last = live is passes[-1]
            loss(*replayed, scale.detach() if detaches_scale and not last else scale).backward(retain_graph=not last)
        return "clip", {}, "mean", len(passes)
    return step


def batch_norm(draw):
    """Of each rank's own rows, as DDP leaves it unless SyncBatchNorm takes its place."""
    layer = torch.nn.BatchNorm1d(8)
    weft_layers.batch_norms(torch.nn.Sequential(layer))
    layer(draw()).sin().sum().backward()
    return ()


def tied(lost):
    """An embedding that is the output layer, too. An engine that reduces gradients by itself may take one use for all."""
    def step(draw):
        weight = torch.linspace(-1, 1, 80).reshape(10, 8).requires_grad_()
        tokens, head = (weft_layers.use(weight, "embedding.weight", how) for how in ("input", "output"))
        head.retain_grad()
        (tokens[torch.randint(10, (5,))].sin() @ head.T).logsumexp(1).sum().backward()
        gradient = head.grad if lost else weight.grad
        dist.all_reduce(gradient)
        weft_dump.keep("reduced/embedding.weight", gradient / dist.get_world_size())
        return ()
    return step


def lightly(old_gather):
    def step(draw):
        loss = module_of("lightly.loss.ntx_ent_loss").NTXentLoss(temperature=0.5, gather_distributed=True)
        if old_gather:  # as it was until May 2024: the gradient of the own slot
            gather = sys.modules["lightly.utils.dist"].GatherLayer
            gather.backward = staticmethod(lambda ctx, *gradients: gradients[dist.get_rank()])
        loss(*weft_dump.features(first=draw(), second=draw())).backward()
        return "nt_xent", {"temperature": 0.5}
    return step


def lightly_barlow_twins(raw):
    def step(draw):
        module = module_of("lightly.loss.barlow_twins_loss")
        names, normalize = iter(("first", "second")), module._normalize  # by each rank's own statistics
        module._normalize = lambda z: weft_dump.features(**{next(names): normalize(z)})[0]
        if raw:  # as it was until July 2026
            module.dist_nn.all_reduce = in_place
        module.BarlowTwinsLoss(gather_distributed=True)(draw(), draw()).backward()
        return "barlow_twins", {"normalize": 0}
    return step


def lightly_vicreg(draw):
    loss = module_of("lightly.loss.vicreg_loss").VICRegLoss(gather_distributed=True)
    loss(*weft_dump.features(first=draw(), second=draw())).backward()
    return "vicreg", {}


def in_place(tensor):
    """A sum over ranks of which autograd does not know."""
    dist.all_reduce(tensor)
    return tensor


def lookup_free(average):
    def step(draw):
        module = module_of("vector_quantize_pytorch.lookup_free_quantization")
        if average:
            module.maybe_distributed_mean = lambda own: average(own) / dist.get_world_size()
        quantizer = module.LFQ(dim=8, codebook_size=256, commitment_loss_weight=0.25)
        (features,) = weft_dump.features(features=draw())
        quantizer(features[None], inv_temperature=1).entropy_aux_loss.backward()
        return "lfq", {"inverse_temperature": 1, "clamp": 1e-5}
    return step


def torchmetrics_rmse(draw):
    metric = importlib.import_module("torchmetrics").MeanSquaredError(squared=False, dist_sync_on_step=True)
    predictions, targets = weft_dump.features(predictions=draw(), targets=draw().detach())
    metric(predictions.flatten(), targets.flatten()).backward()
    return "rmse", {}


steps = {"openclip": openclip(False, False), "openclip_local": openclip(True, False),
         "openclip_gradient": openclip(False, True), "openclip_local_gradient": openclip(True, True),
         "openclip_cached_old": openclip_cached(False), "openclip_cached": openclip_cached(True), "batch_norm": batch_norm,
         "tied": tied(False), "tied_lost": tied(True),
         "lightly": lightly(False), "lightly_old": lightly(True), "lightly_vicreg": lightly_vicreg,
         "lightly_barlow_twins": lightly_barlow_twins(False), "lightly_barlow_twins_old": lightly_barlow_twins(True),
         "lookup_free": lookup_free(None), "lookup_free_old": lookup_free(in_place),
         "lookup_free_repaired": lookup_free(dist.nn.all_reduce), "torchmetrics_rmse": torchmetrics_rmse}

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
weft_dump.save(*steps[sys.argv[1]](lambda: torch.randn(5, 8, requires_grad=True)))
dist.destroy_process_group()
