# SPDX-License-Identifier: Apache-2.0
"""Collectives that are recorded on tapes, conversions between placements, and shares of a loss."""
from ._weft.collectives import *  # noqa: F403
