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
import torch.nn.functional as F
import weft_dump_torch as weft_dump


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


def lightly(old_gather):
    def step(draw):
        loss = module_of("lightly.loss.ntx_ent_loss").NTXentLoss(temperature=0.5, gather_distributed=True)
        if old_gather:  # as it was until May 2024: the gradient of the own slot
            gather = sys.modules["lightly.utils.dist"].GatherLayer
            gather.backward = staticmethod(lambda ctx, *gradients: gradients[dist.get_rank()])
        loss(*weft_dump.features(first=draw(), second=draw())).backward()
        return "nt_xent", {"temperature": 0.5}
    return step


steps = {"openclip": openclip(False, False), "openclip_local": openclip(True, False),
         "openclip_gradient": openclip(False, True), "openclip_local_gradient": openclip(True, True),
         "lightly": lightly(False), "lightly_old": lightly(True)}

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
weft_dump.save(*steps[sys.argv[1]](lambda: torch.randn(5, 8, requires_grad=True)))
dist.destroy_process_group()
