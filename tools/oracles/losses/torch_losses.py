# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own losses, which do not support several ranks."""
import torch
from torch.nn.functional import cross_entropy

from cases import Case, uniform

PACKAGE = "torch"
CLASSES = 5
TARGETS = torch.tensor([1, 4, -100, 0, 2, 2, -100, 3, 1, 0, -100, 4])


def classes(mode, variant=None, **options):
    def call(x, shared, given):
        weight = given.get("weights")
        return cross_entropy(x[0], x[1], weight=weight, **options)
    weights = {"weights": uniform("class weights", CLASSES, low=0.1, high=2.0)} if "weights" in mode else {}
    return Case("cross entropy", mode, call, [uniform("logits", 12, CLASSES, low=-3.0, high=3.0), TARGETS], given=weights,
                variant=variant, distributed=False)


CASES = [
    classes("plain"),
    classes("weights"),
    classes("smoothing", label_smoothing=0.2),
    classes("weights, smoothing", label_smoothing=0.2),
    classes("weights, all smoothing", label_smoothing=1.0),
]
