# SPDX-License-Identifier: Apache-2.0
"""MLX on its ring of processes: the mean of the means of uneven shards is no mean of all. Each process writes what it has before and
after the reducer, and this one, as a single process with all samples, the truth."""
import os
import pathlib
import subprocess
import sys
import tempfile

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_map

import weft

rows = [8, 4, 12]
mx.random.seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
batch = mx.random.normal((sum(rows), 6)), mx.random.normal((sum(rows), 3))


def gradients(batch, weight=1):
    loss = lambda model, inputs, targets: weight * nn.losses.mse_loss(model(inputs), targets)
    return nn.value_and_grad(model, loss)(model, *batch)[1]


def on_rank(folder, wrong):
    ring = mx.distributed.init(backend="ring", strict=True)
    first, own = sum(rows[:ring.rank()]), rows[ring.rank()]
    of_all = mx.distributed.all_sum(mx.array(own))
    local = gradients([x[first:first + own] for x in batch], 1 if wrong else ring.size() * own / of_all)
    both = {"local": local, "reduced": nn.average_gradients(local)}
    weft.write_rank(folder, ring.rank(), {f"{kind}/{name}": x for kind, tree in both.items() for name, x in tree_flatten(tree)})


def inexact():
    """With weights and samples off by their precision."""
    off = lambda x: x * (1 + mx.finfo(x.dtype).eps * (2 * mx.random.bernoulli(shape=x.shape) - 1))
    exact = model.parameters()
    model.update(tree_map(off, exact))
    found = gradients([off(x) for x in batch])
    model.update(exact)
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        ring = [pathlib.Path(sys.executable).with_name("mlx.launch"), "-n", str(len(rows)), "--backend", "ring", "--"]
        subprocess.run([*ring, sys.executable, __file__, *sys.argv[1:]], check=True, env=os.environ | {"WEFT_DUMP": folder})
        weft.write_truth(folder, dict(tree_flatten(gradients(batch))), [dict(tree_flatten(inexact())) for _ in range(4)])
        weft.write_manifest(folder, len(rows), rows=rows, truth={"files": ["truth.safetensors"]})
        print(weft.verify(folder))


if __name__ == "__main__":
    on_rank(os.environ["WEFT_DUMP"], "wrong" in sys.argv) if "MLX_RANK" in os.environ else main()
