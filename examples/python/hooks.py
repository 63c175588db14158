# SPDX-License-Identifier: Apache-2.0
"""A hook is called when a parameter's gradient of this backward is complete on this rank, here after two uses. Removed, it is not."""
import numpy as np

import weft
from weft import ops

weight, gradients = weft.Parameter("weight", [1.0, 2.0]), weft.Gradients()
events = []
handle = gradients.after_accumulate(lambda parameter, total: events.append((parameter.name, total.numpy().tolist())))


def backward():
    tape = weft.Tape()
    w = tape.watch(weight)
    tape.backward(ops.sum(w * 3.0) + ops.sum(w * w), gradients)


backward()
backward()
handle.remove()
backward()
print(*events, sep="\n")
assert events == [("weight", [5, 7]), ("weight", [10, 14])] and np.array_equal(gradients[weight], [15, 21])
