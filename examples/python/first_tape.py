# SPDX-License-Identifier: Apache-2.0
"""A tape, node by node: y = sum(w * x + w * w), with values and, below them, cotangents. w is used three times, so its cotangent
has three terms: x + w + w."""
import numpy as np

import weft
from weft import ops

tape, x = weft.Tape(), np.array([3.0, 4.0])
w = tape.watch(np.array([1.0, 2.0]))
gradients = weft.Gradients()
tape.backward(ops.sum(w * x + w * w), gradients, keep=True)
print(tape)
assert gradients[w].numpy().tolist() == [5, 8]
