# SPDX-License-Identifier: Apache-2.0
"""Quantizers over the tokens of all ranks."""
from ._weft.quantizers import *  # noqa: F403
