# SPDX-License-Identifier: Apache-2.0
"""A layer of torchtitan's debug model under its FSDP2, which adds gradients up: a loss is divided by the tokens of all ranks."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims, parallel_dims
from torchtitan.models.common import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry

import weft.torch

parallel_dims.device_type = "cpu"  # torchtitan expects a GPU


def model():
    ranks = dist.get_world_size()
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:1]
    spec.model.layers[0].attention.inner_attention = ScaledDotProductAttention.Config()  # flex attention has no backward on CPUs
    parallelism = ParallelismConfig(spmd_backend="partial_dtensor")
    training = TrainingConfig(mixed_precision_param="float32", seq_len=8)
    dims = ParallelDims.from_config(parallelism, ranks)
    dims.build_mesh()
    made = spec.model.build()
    if ranks > 1:
        spec.parallelize_fn(made, parallel_dims=dims, training=training, parallelism=parallelism, compile_config=CompileConfig(),
                            ac_config=None, dump_folder="")
        for module in made.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor
    made.init_weights()
    return made


def loss(model, batch, count):
    words, labels = batch
    logits = model(words)
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / count


def step(model, batch):
    count = torch.tensor(float(batch[1].numel()))
    dist.all_reduce(count)
    return loss(model, batch, count)


def wrong(model, batch):
    return loss(model, batch, batch[1].numel())


batch = torch.randint(0, 2048, (12, 8)), torch.randint(0, 2048, (12, 8))

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch))
