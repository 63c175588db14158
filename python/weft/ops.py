# SPDX-License-Identifier: Apache-2.0
"""Every op of the engine, on Vars, Tensors and arrays."""
from ._weft.ops import *  # noqa: F403
