# SPDX-License-Identifier: Apache-2.0
"""A step and its truth in a folder: what docs/manifest.md calls a dump."""
import contextlib
import os
import tempfile

from ..dumps import write_manifest, write_rank


@contextlib.contextmanager
def folder_of(dump):
    """The folder that is named, or else one that is gone afterwards."""
    with contextlib.nullcontext(dump) if dump else tempfile.TemporaryDirectory(prefix="weft-") as folder:
        yield os.fspath(folder)


def write_evidence(folder, rank, evidence):
    write_rank(folder, rank, {f"local/{name}/{k}": x for name, passes in evidence.local.items() for k, x in enumerate(passes)}
               | {f"reduced/{name}": x for name, x in evidence.reduced.items()})


def write_step(folder, ranks, rows, counts, lost, files=("truth.safetensors",)):
    """`lost` are collectives of the truth without a gradient, `rows` those of each part of the batch, `counts` are by name, rank and
    micro-batch."""
    write_manifest(folder, ranks, rows=rows, counts=counts, truth={"files": list(files), "without_gradient": list(dict.fromkeys(lost))})
