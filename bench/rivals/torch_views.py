# SPDX-License-Identifier: Apache-2.0
"""The random views of data/augment.cpp in PyTorch, for the twins of Weft's trainings here and in tools/results."""
import math

import torch
import torch.nn.functional as F

usual = {"min-area": 0.4, "max-stretch": 4 / 3, "flip": 0.5, "brightness": 0.4, "contrast": 0.4, "saturation": 0,
         "hue": 0, "grayscale": 0, "blur": 0.2, "erase": 0.3}
to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])
from_yiq = torch.tensor([[1, 0.9563, 0.6210], [1, -0.2721, -0.6474], [1, -1.1070, 1.7046]])


def smoothed(x, weights):
    """Each row's weighted mean with its two neighbours on either side; edges are padded with the first or last row."""
    padded, rows = F.pad(x, (0, 0, 2, 2), mode="replicate"), x.shape[2]
    return sum(weights[:, k, None, None, None] * padded[:, :, k:k + rows] for k in range(5))


def blur(x, chosen, deviations):
    weights = (torch.arange(-2, 3).square() / (-2 * deviations.square())).exp()
    weights = weights / weights.sum(1, keepdim=True)
    x[chosen] = smoothed(smoothed(x[chosen], weights).mT, weights).mT


def recoloured(x, turn, strength):
    """Turns and stretches colours in the plane of YIQ that has no grey."""
    along, across = strength * turn.cos(), strength * turn.sin()
    one, zero = torch.ones_like(along), torch.zeros_like(along)
    change = torch.cat([one, zero, zero, zero, along, -across, zero, across, along], 1).view(-1, 3, 3)
    return torch.einsum("nij,njhw->nihw", from_yiq @ change @ to_yiq, x).clamp_(0, 1)


def augmented(x, a=usual):
    """The changes of data/augment.cpp, for a whole batch (n, channels, height, width) at once, with options by their
    names. A change with probability 0 is left out."""
    n, channels, height, width = x.shape
    chance = torch.rand(17, n, 1)

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

    if channels == 3 and (a["saturation"] > 0 or a["hue"] > 0 or a["grayscale"] > 0):
        strength = between(14, 1 - a["saturation"], 1 + a["saturation"]) * (chance[15] >= a["grayscale"])
        x = recoloured(x, 2 * math.pi * between(16, -a["hue"], a["hue"]), strength)
    if a["blur"] > 0:
        chosen = (chance[7, :, 0] < a["blur"]).nonzero()[:, 0]
        blur(x, chosen, between(8, 0.3, 1)[chosen])
    if a["erase"] > 0:
        side, stretch = between(9, 0.05, 0.2).sqrt(), between(10, -0.5, 0.5).exp()
        h, w = side * stretch * height, side / stretch * width
        top, left = chance[11] * (height - h), chance[12] * (width - w)
        row, column = torch.arange(height), torch.arange(width)
        rows = (row >= top.floor()) & (row < (top + h).floor()) & (chance[13] < a["erase"])
        columns = (column >= left.floor()) & (column < (left + w).floor())
        x = x.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0)
    return x
