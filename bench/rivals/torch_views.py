# SPDX-License-Identifier: Apache-2.0
"""The random views of data/augment.cpp in PyTorch, for the twins of Weft's trainings here and in tools/results."""
import math

import torch
import torch.nn.functional as F

usual = {"min-area": 0.4, "max-stretch": 4 / 3, "flip": 0.5, "brightness": 0.4, "contrast": 0.4, "blur": 0.2,
         "erase": 0.3}


def smoothed(x, weights):
    """Each row's weighted mean with its two neighbours on either side; edges are padded with the first or last row."""
    padded = F.pad(x, (0, 0, 2, 2), mode="replicate")
    return sum(weights[:, k, None, None, None] * padded[:, :, k:k + 28] for k in range(5))


def augmented(x, a=usual):
    """The changes of data/augment.cpp, for a whole batch (n, 1, 28, 28) at once, with options by their names."""
    n, chance = len(x), torch.rand(14, len(x), 1)

    def between(i, low, high):
        return low + (high - low) * chance[i]

    # A box of the image in coordinates from -1 to 1, enlarged to the size of the image.
    bound = math.log(a["max-stretch"]) / 2
    side, stretch = between(0, a["min-area"], 1).sqrt(), between(1, -bound, bound).exp()
    h, w = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
    flip, zero = 1 - 2 * (chance[4] < a["flip"]).float(), torch.zeros(n, 1)
    corners = torch.cat([w * flip, zero, (1 - w) * between(2, -1, 1), zero, h, (1 - h) * between(3, -1, 1)], 1)
    grid = F.affine_grid(corners.view(n, 2, 3), x.shape, align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)

    mean = x.mean((1, 2, 3)).view(n, 1)
    brightness = between(5, 1 - a["brightness"], 1 + a["brightness"])
    contrast = between(6, 1 - a["contrast"], 1 + a["contrast"])
    shift, factor = brightness * (1 - contrast) * mean, brightness * contrast
    x = torch.addcmul(shift.view(n, 1, 1, 1), factor.view(n, 1, 1, 1), x).clamp_(0, 1)

    blurred = (chance[7, :, 0] < a["blur"]).nonzero()[:, 0]
    weights = (torch.arange(-2, 3).square() / (-2 * between(8, 0.3, 1)[blurred].square())).exp()
    weights = weights / weights.sum(1, keepdim=True)
    x[blurred] = smoothed(smoothed(x[blurred], weights).mT, weights).mT

    side, stretch = between(9, 0.05, 0.2).sqrt() * 28, between(10, -0.5, 0.5).exp()
    h, w, pixel = side * stretch, side / stretch, torch.arange(28)
    top, left = chance[11] * (28 - h), chance[12] * (28 - w)
    rows = (pixel >= top.floor()) & (pixel < (top + h).floor()) & (chance[13] < a["erase"])
    columns = (pixel >= left.floor()) & (pixel < (left + w).floor())
    return x.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0)
