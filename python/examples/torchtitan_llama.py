# SPDX-License-Identifier: Apache-2.0
"""torchtitan's FSDP2, which adds gradients up, over its tensor parallelism: two ranks have the same samples, which count once."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims, parallel_dims
from torchtitan.models.common import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.sharding import set_llama3_sharding_config

import weft.torch

parallel_dims.device_type = "cpu"  # torchtitan expects a GPU


def model():
    ranks = dist.get_world_size()
    spec = model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:1]
    spec.model.layers[0].attention.inner_attention = ScaledDotProductAttention.Config()  # flex attention has no backward on CPUs
    set_llama3_sharding_config(spec.model, enable_sp=True)  # sequences are divided between layers
    parallelism = ParallelismConfig(spmd_backend="partial_dtensor", tensor_parallel_degree=min(2, ranks))
    training = TrainingConfig(mixed_precision_param="float32", seq_len=8)
    dims = ParallelDims.from_config(parallelism, ranks)
    made = spec.model.build()
    if ranks > 1:
        spec.parallelize_fn(made, parallel_dims=dims, training=training, parallelism=parallelism, compile_config=CompileConfig(),
                            ac_config=None, dump_folder="")
        for module in made.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor
    made.init_weights()
    return made


def loss(model, batch):
    logits = model(batch[0])
    logits = logits.full_tensor() if isinstance(logits, DTensor) else logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten(), reduction="sum")


def wrong(model, batch):
    count = torch.tensor(float(batch[1].numel()))
    dist.all_reduce(count)
    return loss(model, batch) / count


def step(model, batch):
    return wrong(model, batch) * min(2, dist.get_world_size())


batch = torch.randint(0, 2048, (12, 8)), torch.randint(0, 2048, (12, 8))

if __name__ == "__main__":
    print(weft.torch.run(wrong if "wrong" in sys.argv else step, model, batch, ranks=4, parts=2))
