# SPDX-License-Identifier: Apache-2.0
"""Is this distributed gradient right, and if not, which mistake does it have? And an engine whose gradients are.

    import weft
    found = weft.verify(dump, loss="clip")   # a folder, or a dictionary of arrays for each rank
    print(found)                             # which tensors are off by how much, and why
    found.raise_if_wrong()

What a dump holds: docs/manifest.md. What a verdict means: docs/verify.md. The engine: docs/python.md.
"""
from . import _weft, collectives, losses, ops, quantizers
from ._weft import Fault, Gradients, Init, Parameter, Pass, Random, Tape, Tensor, Var, checkpoint, print_tapes, record, run_ranks, tapes_page
from .dumps import file_of, folder_of, write_manifest, write_rank, write_truth
from .verdicts import Cause, DifferentTensors, Differences, Verdict, Verdicts, WrongGradient

__all__ = ["Cause", "DifferentTensors", "Differences", "Fault", "Gradients", "Init", "Parameter", "Pass", "Random", "Tape", "Tensor", "Var",
           "Verdict", "Verdicts", "WrongGradient", "certify", "checkpoint", "collectives", "compare", "known_losses", "losses", "ops", "power", "print_tapes",
           "quantizers", "record", "run_ranks", "signatures", "tapes_page", "verify", "write_manifest", "write_rank", "write_truth"]


def verify(dump, loss=None, options=None, **manifest):
    """Compares the gradients of all ranks with those of one process that has the whole batch.

    `dump` is a folder with manifest.json, or a list with a dictionary of arrays for each rank: NumPy's, PyTorch's, JAX's.
    `loss` names one of `known_losses()`, whose features and their gradients the arrays are; `options` are its numbers, such as
    {"normalize": 0}. Other entries of a manifest can be given, too: reducer="sum", rows=[3, 2, 4],
    counts={"tokens": [96, 64, 128]}, mesh=..., parameters=....
    Raises ValueError if the dump is malformed, and FileNotFoundError if a file is missing.
    """
    given = {name: value for name, value in {"loss": loss, "options": options, **manifest}.items() if value is not None}
    with folder_of(dump, **given) as folder:
        return Verdicts(_weft.verify(folder))


def power(dump, loss=None, options=None, **manifest):
    """Which mistakes a dump could not show, in a text: with equal data on all ranks many look like the truth."""
    return verify(dump, loss, options, **manifest).power


def compare(ours, theirs, limit=32):
    """Finds where two implementations begin to differ. Each is a dictionary of arrays, a .safetensors, .npy or .npz file, or
    a folder of these. `limit` says how many multiples of rounding still count as equal."""
    with file_of(ours) as mine, file_of(theirs) as others:
        return Differences(_weft.compare(mine, others, limit))


def certify(folder):
    """A verdict to show to others, with the SHA-256 of every file of the dump: a text for programs, and a page in HTML."""
    return tuple(_weft.certify(str(folder)))


def signatures():
    """The mistakes that have a name: id, name, effect and repair of each."""
    return _weft.signatures()


def known_losses():
    """The losses whose truth is known, and their formulas."""
    return _weft.known_losses()
