#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares every op's values and gradients, in f64, with PyTorch's.

    oracle_dump | torch_ops.py

Prints the largest relative difference of each op. Exits with 1 if one is above 1e-10, or if an op is neither in the
table nor listed as having no counterpart. oracle_dump (in the build's tests/) writes the samples; here each op has a
line of PyTorch that must agree.
"""
import json
import sys

import torch
import torch.nn.functional as F

BOUND = 1e-10

no_counterpart = {
    "dropout": "draws its mask from its own random numbers",
    "checkpoint": "runs other ops and computes nothing itself",
    "checkpoint of a collective": "runs other ops and computes nothing itself",
}


def per_axis(f):
    """For samples labelled "axis N"."""
    return {f"axis {axis}": lambda x, axis=axis: f(x, axis) for axis in (0, 1, -1)}


def with_vector(f):
    """For samples with a tensor and a vector along one of its axes."""
    def along(axis):
        return lambda x, v: f(x, v.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]))
    return {"row": along(-1), "column": along(0), "middle axis": along(1)}


def over_rows(f):
    return {"rows": lambda x: f(x, -1), "middle axis": lambda x: f(x, 1),
            "axis 0": lambda x: f(x, 0), "one row": lambda x: f(x, 0)}


def indices(*values):
    return torch.tensor(values)


def scatter_add_rows(x, at, rows):
    y = torch.zeros((rows,) + x.shape[at.ndim:], dtype=x.dtype)
    return y.index_add(0, at.flatten(), x.reshape((-1,) + x.shape[at.ndim:]))


# Images are (batch, height, width, channels) in Weft and (batch, channels, height, width) in PyTorch.
def there(x): return x.permute(0, 3, 1, 2)
def back(x): return x.permute(0, 2, 3, 1)
def weights(w): return w.permute(3, 2, 0, 1)


def conv2d(x, w, bias=None, **options):
    return back(F.conv2d(there(x), weights(w), bias, **options))


def conv_transpose2d(x, w, bias=None, **options):
    return back(F.conv_transpose2d(there(x), weights(w), bias, **options))


def unfold(x, kernel, out, **options):
    columns = F.unfold(there(x), kernel, **options)
    return columns.reshape(x.shape[0], x.shape[3], -1, *out).permute(0, 3, 4, 2, 1)


def fold(windows, size, kernel, **options):
    batch, height, width, taps, channels = windows.shape
    columns = windows.permute(0, 4, 3, 1, 2).reshape(batch, channels * taps, height * width)
    return back(F.fold(columns, size, kernel, **options))


skewed = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2))
overlapping = dict(stride=(1, 2), padding=(1, 1), dilation=(2, 1))
columns_last = indices([3, 0, 3], [1, 2, 0])
columns_middle = indices([[2, 0], [1, 0]], [[0, 1], [2, 1]])


def with_activation(f):
    return {
        "": f,
        "bias": f,
        "bias, tanh": lambda *x: torch.tanh(f(*x)),
        "gelu": lambda *x: F.gelu(f(*x)),
        "bias, relu, more axes": lambda *x: F.relu(f(*x)),
    }


def linear(x, w, bias=None): return F.linear(x, w.T, bias)
def T(x): return x.transpose(-1, -2)


convolutions = with_activation(conv2d) | {
    "stride, padding, dilation": lambda x, w: conv2d(x, w, **skewed),
    "bias, tanh": lambda *x: torch.tanh(conv2d(*x, padding=(1, 0))),
}
transposed_convolutions = {
    "": conv_transpose2d,
    "bias, stride, padding, dilation": lambda *x: conv_transpose2d(*x, **skewed),
    "output padding": lambda *x: conv_transpose2d(*x, stride=(2, 3), output_padding=(1, 2)),
}
standardized = {
    "": lambda x: F.layer_norm(x, x.shape[-1:]),
    "more axes": lambda x: F.layer_norm(x, x.shape[-1:], eps=0.1),
}
softmaxes, log_softmaxes = over_rows(torch.softmax), over_rows(torch.log_softmax)


def cross_entropy(x): return F.cross_entropy(x, indices(0, 2, 1, 2), reduction="none")


# The calls by op and, if an op's samples need different calls, by label.
table = {
    # Elementwise. slope and curvature are the first two derivatives of the unary ops; their samples run a gelu. Those
    # of power run power.
    "slope": F.gelu,
    "curvature": F.gelu,
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "pow": {"2.5": lambda x: x ** 2.5, "3 of any sign": lambda x: x ** 3,
            "1": lambda x: x ** 1, "-1": lambda x: x ** -1},
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "clamp": {"inside": lambda x: x.clamp(-2, 2), "outside": lambda x: x.clamp(-2, 0.5)},
    "round": torch.round,
    "scale": lambda x: 2.5 * x,
    "affine": lambda x: 2.5 * x - 1,
    "add": torch.add,
    "sub": torch.sub,
    "mul": {"": torch.mul, "by itself": lambda x: x * x},
    "div": torch.div,
    "power": torch.pow,
    "slope of power": torch.pow,
    "curvature of power": torch.pow,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "add_along": with_vector(torch.add),
    "sub_along": with_vector(torch.sub),
    "mul_along": with_vector(torch.mul),
    "div_along": with_vector(torch.div),
    "where": lambda a, b: torch.where(indices([1, 0, 0], [1, 1, 0]) != 0, a, b),
    "cast": lambda x: x.to(torch.float64),
    "straight_through": lambda x: (x + 1) + (x - (x + 1)).detach(),
    # Images.
    "conv2d": convolutions,
    "conv2d with bias": convolutions,
    "conv2d_weight_gradient": convolutions,
    "conv_transpose2d": transposed_convolutions,
    "conv2d_input_gradient": transposed_convolutions,
    "unfold": {"": lambda x: unfold(x, (2, 2), (2, 2)), "all options": lambda x: unfold(x, (2, 3), (3, 3), **skewed)},
    "fold": {"": lambda x: fold(x, (3, 3), (2, 2)), "all options": lambda x: fold(x, (4, 3), (2, 3), **skewed)},
    "max_pool2d": {"": lambda x: back(F.max_pool2d(there(x), 2)),
                   "overlapping, padded": lambda x: back(F.max_pool2d(there(x), (2, 3), **overlapping))},
    "average_pool2d": {"": lambda x: back(F.avg_pool2d(there(x), 2)),
                       "overlapping, padded": lambda x: unfold(x, (2, 3), (3, 2), **overlapping).mean(3)},
    "upsample_nearest": lambda x: back(F.interpolate(there(x), scale_factor=2, mode="nearest")),
    # Indices.
    "gather_rows": {"": lambda x: x[indices(2, 0, 2, 3, 2)], "table of indices": lambda x: x[indices([2, 1], [1, 0])],
                    "of scalars": lambda x: x[indices(3, 1, 1)]},
    "scatter_add_rows": {"": lambda x: scatter_add_rows(x, indices(2, 0, 2, 4), 5),
                         "table of indices": lambda x: scatter_add_rows(x, indices([1, 1], [0, 1]), 2)},
    "take_along": {"last axis": lambda x: x.gather(-1, columns_last),
                   "axis 0": lambda x: x.gather(0, indices([2, 0], [1, 0])),
                   "middle axis": lambda x: x.gather(1, columns_middle)},
    "put_along": {"last axis": lambda x: torch.zeros(2, 4, dtype=x.dtype).scatter_add(-1, columns_last, x),
                  "middle axis": lambda x: torch.zeros(2, 3, 2, dtype=x.dtype).scatter_add(1, columns_middle, x)},
    # Matrices.
    "matmul": {"a b": torch.matmul, "aT b": lambda a, b: T(a) @ b, "a bT": lambda a, b: a @ T(b),
               "aT bT": lambda a, b: T(a) @ T(b), "batch": torch.matmul, "batch aT bT": lambda a, b: T(a) @ T(b),
               "batch, one b": torch.matmul, "batch aT, one bT": lambda a, b: T(a) @ T(b), "one a, batch": torch.matmul,
               "one aT, batch bT": lambda a, b: T(a) @ T(b)},
    "linear": with_activation(linear),
    "linear with bias": with_activation(linear),
    "activate": {"sigmoid": torch.sigmoid, "silu": F.silu},
    "pairwise_squared_distance": lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1),
    # Rows. The ..._slope ops are pullbacks; their samples run the op.
    "softmax": softmaxes,
    "softmax_slope": softmaxes,
    "log_softmax": log_softmaxes,
    "log_softmax_slope": log_softmaxes,
    "l2_normalize": {"": lambda x: F.normalize(x, dim=-1), "more axes": lambda x: F.normalize(x, dim=-1),
                     "below epsilon": lambda x: F.normalize(x, dim=-1, eps=10)},
    "standardize": standardized,
    "standardize_slope": standardized,
    "layer_norm": {"": lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta),
                   "relu": lambda x, gamma, beta: F.relu(
                       F.layer_norm(x, gamma.shape, gamma, beta + beta.new_tensor([3, -3, -3, 3]), eps=0.1))},
    "cross_entropy": cross_entropy,
    "cross_entropy_slope": cross_entropy,
    # Reductions.
    "sum": per_axis(torch.sum),
    "sum of all": torch.sum,
    "sum_outside": per_axis(lambda x, axis: x.sum([i for i in range(x.ndim) if i != axis % x.ndim])),
    "repeat": {"in front": lambda x: x.expand(4, 3, 2), "between": lambda x: x[:, None].expand(3, 4, 2),
               "at the end": lambda x: x[..., None].expand(3, 2, 4)},
    "mean": per_axis(torch.mean),
    "max": per_axis(torch.amax),
    "min": per_axis(torch.amin),
    "prod": per_axis(torch.prod),
    "log_sum_exp": per_axis(torch.logsumexp),
    "variance": {"": lambda x: x.var(1, unbiased=False), "unbiased": lambda x: x.var(-1)},
    "norm": per_axis(lambda x, axis: torch.linalg.vector_norm(x, dim=axis)),
    "norm of all": torch.linalg.vector_norm,
    "cumulative_sum": {"": lambda x: x.cumsum(1), "reverse": lambda x: x.flip(-1).cumsum(-1).flip(-1)},
    "top_k": {"largest": lambda x: x.topk(2).values,
              "smallest along axis 0": lambda x: x.topk(2, dim=0, largest=False).values},
    "sort": lambda x: x.sort().values,
    # Shapes.
    "reshape": {"": lambda x: x.reshape(3, 4), "to a scalar": lambda x: x.reshape(())},
    "flatten": {"": lambda x: x.flatten(1), "whole": torch.flatten},
    "slice": {"axis 0": lambda x: x[1:3], "middle axis": lambda x: x[:, 1:3], "last axis": lambda x: x[..., 0:3]},
    "pad with a value": {"": lambda x: F.pad(x, (1, 2), value=0.5)},
    "pad": {"axis 0": lambda x: F.pad(x, (0, 0, 1, 2)), "middle axis": lambda x: F.pad(x, (0, 0, 2, 0), value=0.5),
            "last axis": lambda x: F.pad(x, (0, 1), value=-1)},
    "concat": {"axis 0": lambda *x: torch.cat(x, 0), "middle axis": lambda *x: torch.cat(x, 1),
               "last axis": lambda *x: torch.cat(x, -1), "one part twice": lambda x: torch.cat((x, x))},
    "stack": {"in front": lambda *x: torch.stack(x), "at the end": lambda *x: torch.stack(x, -1)},
    "permute_axes": {"": lambda x: x.permute(2, 0, 1), "four axes": lambda x: x.permute(0, 3, 1, 2)},
    "swap_axes": lambda x: x.transpose(0, -1),
    "transpose": torch.t,
    "flip": {"axis 0": lambda x: x.flip(0), "middle axis": lambda x: x.flip(1), "last axis": lambda x: x.flip(-1)},
}


def tensor(stored):
    return torch.tensor(stored["values"], dtype=torch.float64).reshape(stored["shape"])


def difference(ours, theirs):
    """The largest difference, relative to the largest element; infinite if the shapes differ."""
    if ours.shape != theirs.shape:
        return float("inf")
    scale = theirs.abs().max().item() or 1
    return (ours - theirs).abs().max().item() / scale


def counterpart(sample):
    found = table.get(sample["op"])
    return found.get(sample["label"]) if isinstance(found, dict) else found


def compare(sample):
    """The differences of the output and of each gradient."""
    inputs = [tensor(x).requires_grad_() for x in sample["inputs"]]
    ours, output = tensor(sample["output"]), counterpart(sample)(*inputs)
    if output.shape != ours.shape:
        return [float("inf")]
    gradients = torch.autograd.grad(output, inputs, tensor(sample["seed"]), allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients)]
    return [difference(ours, output)] + [difference(tensor(g), t) for g, t in zip(sample["gradients"], gradients)]


def check_op(samples):
    """Returns the number of samples that fail, and prints why."""
    failures, worst = 0, 0
    for sample in samples:
        name = sample["op"] + (f" ({sample['label']})" if sample["label"] else "")
        if not counterpart(sample):
            print(f"{name}: neither in the table nor listed as having no counterpart")
            failures += 1
            continue
        differences = compare(sample)
        worst = max(worst, *differences, 0)
        if not all(d <= BOUND for d in differences):  # also where one is NaN
            print(f"{name}: output and gradients differ by {', '.join(f'{d:.1e}' for d in differences)}")
            failures += 1
    print(f"{samples[0]['op']:<28} {len(samples):2} samples  {worst:.1e}")
    return failures


def main():
    ops = [samples for samples in json.load(sys.stdin) if samples]
    compared = [samples for samples in ops if samples[0]["op"] not in no_counterpart]
    failures = sum(check_op(samples) for samples in compared)
    for name, reason in no_counterpart.items():
        print(f"{name:<28} no counterpart: {reason}")
    print(f"PyTorch {torch.__version__}: {sum(map(len, compared))} samples of {len(compared)} ops agree to {BOUND:.0e}"
          f" but {failures}; {len(ops) - len(compared)} ops have no counterpart")
    return 1 if failures or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
