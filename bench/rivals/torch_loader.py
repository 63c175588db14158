#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/against_loader: a DataLoader of two views of each picture of a folder, in one thread.

    torch_loader.py installed|strongest FOLDER SIDE

`installed` is ImageFolder as it is, whose pictures are PIL's. `strongest` decodes by torchvision.io, and changes tensors.
Prints the seconds that an epoch takes.
"""
import json
import sys
import time

import torch
from torchvision import datasets, io
from torchvision.transforms import v2

setting, folder, side = sys.argv[1], sys.argv[2], int(sys.argv[3])
strongest = setting == "strongest"


def as_coloured(path):
    return io.decode_image(path, mode=io.ImageReadMode.RGB)


class TwoViews:
    def __init__(self):
        self.fitted = v2.Compose([v2.Resize(side), v2.CenterCrop(side)])
        finish = v2.ToDtype(torch.float32, scale=True)
        self.view = v2.Compose([
            v2.RandomResizedCrop(side, scale=(0.2, 1)), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
            v2.RandomGrayscale(0.2), v2.RandomApply([v2.GaussianBlur(5, (0.3, 1))], 0.2),
            finish if strongest else v2.Compose([v2.ToImage(), finish]),
            v2.RandomErasing(0.3, scale=(0.05, 0.2))])

    def __call__(self, picture):
        picture = self.fitted(picture)
        return self.view(picture), self.view(picture)


torch.set_num_threads(1)
loader = {"loader": as_coloured} if strongest else {}
pictures = datasets.ImageFolder(folder, TwoViews(), **loader)
begin, seen = time.monotonic(), 0
for (first, second), _ in torch.utils.data.DataLoader(pictures, batch_size=256, shuffle=False):
    assert first.shape[1:] == second.shape[1:] == (3, side, side)
    seen += len(first)
print(json.dumps({"pictures": seen, "seconds": time.monotonic() - begin}))
