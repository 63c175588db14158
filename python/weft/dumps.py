# SPDX-License-Identifier: Apache-2.0
"""Folders that hold what every rank has: what docs/manifest.md calls a dump."""
import contextlib
import json
import os
import pathlib
import tempfile

from . import arrays


def write_rank(folder, rank, tensors):
    """Writes what one rank has: `tensors` by name. Each rank of a job calls it, in any order."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays.save(folder / f"rank{rank}.safetensors", tensors)


def write_truth(folder, truth, inexact=(), file="truth.safetensors"):
    """Writes what one process has with the samples of all ranks: gradients by name; and the same once or several times more, with all
    that goes into the step off by its precision. The manifest names the file: truth={"files": ["truth.safetensors"]}."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays.save(folder / file, {f"truth/{name}": x for name, x in truth.items()}
                | {f"inexact/{name}/{k}": x for k, each in enumerate(inexact) for name, x in each.items()})


def write_manifest(folder, ranks, loss=None, options=None, **entries):
    """Writes what the files of a folder are. One rank calls it. `entries` are those of docs/manifest.md: reducer, rows,
    counts, micro_batches, tensors, mesh, parameters, scale, hashes, truth."""
    manifest = {"weft_manifest": 1, "files": [f"rank{rank}.safetensors" for rank in range(ranks)], **entries}
    if loss is not None:
        manifest["loss"] = {"name": loss, "options": options or {}}
    elif options is not None:
        raise ValueError("options are those of a loss, which is not named: loss=...")
    pathlib.Path(folder, "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


@contextlib.contextmanager
def folder_of(dump, **entries):
    """A folder is itself, and must have its manifest; a list of tensors, one dictionary for each rank, becomes one."""
    if isinstance(dump, (str, os.PathLike)):
        if entries:
            raise ValueError(f"{dump}: a folder has its own manifest.json, so {', '.join(entries)} cannot be given")
        yield os.fspath(dump)
        return
    if not isinstance(dump, (list, tuple)) or not all(isinstance(each, dict) for each in dump):
        raise TypeError("a dump is a folder, or a list with a dictionary of tensors for each rank")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        for rank, tensors in enumerate(dump):
            write_rank(folder, rank, tensors)
        write_manifest(folder, len(dump), **entries)
        yield folder


@contextlib.contextmanager
def file_of(tensors):
    """A file or folder is itself; a dictionary of tensors becomes a file."""
    if not isinstance(tensors, dict):
        yield os.fspath(tensors)
        return
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        arrays.save(pathlib.Path(folder, "tensors.safetensors"), tensors)
        yield os.path.join(folder, "tensors.safetensors")
