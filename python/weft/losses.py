# SPDX-License-Identifier: Apache-2.0
"""Losses and metrics over the samples of all ranks."""
from ._weft.losses import *  # noqa: F403
