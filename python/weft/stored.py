# SPDX-License-Identifier: Apache-2.0
"""A step and its truth in a folder: what docs/manifest.md calls a dump."""
import contextlib
import os
import pathlib
import tempfile

from . import arrays
from .dumps import write_manifest, write_rank


@contextlib.contextmanager
def folder_of(dump):
    """The folder that is named, or else one that is gone afterwards."""
    with contextlib.nullcontext(dump) if dump else tempfile.TemporaryDirectory(prefix="weft-") as folder:
        yield os.fspath(folder)


def write_evidence(folder, rank, evidence):
    write_rank(folder, rank, {f"local/{name}/{k}": x for name, passes in evidence.local.items() for k, x in enumerate(passes)}
               | {f"reduced/{name}": x for name, x in evidence.reduced.items()})


def write_mended(folder, rank, evidence):
    arrays.save(pathlib.Path(folder, f"mended{rank}.safetensors"), {f"mended/{name}": x for name, x in evidence.reduced.items()})


def write_step(folder, ranks, rows, counts, lost, mended=(), files=("truth.safetensors",)):
    """`lost` are collectives of the truth without a gradient, `mended` those of the ranks, `rows` those of each part of the batch,
    `counts` are by name, rank and micro-batch."""
    truth = {"files": list(files), "without_gradient": list(dict.fromkeys(lost))}
    if mended:
        truth["mended"] = {"files": [f"mended{rank}.safetensors" for rank in range(ranks)], "collectives": list(dict.fromkeys(mended))}
    write_manifest(folder, ranks, rows=rows, counts=counts, truth=truth)
