# SPDX-License-Identifier: Apache-2.0
"""A step on processes that are started for it."""
import torch

from .. import verify
from ..dumps import write_truth
from ..stored import folder_of, write_evidence, write_mended, write_step
from .batches import divided, rows_of
from .counts import joined_counts, own_counts, table_of
from .evidence import evidence_of, weights_of
from .mended import mended
from .ranks import on_ranks
from .truth import truth_of


def run(step, model, batch, ranks=3, uneven=True, parts=None, truth=None, seed=0, counts=None, dump=None):
    """Runs a step on `ranks` gloo processes of this machine, and once more on one, and compares every gradient.

    `model()` makes the model, wrapped as it is trained, and `step(model, batch)` returns its loss, or calls backward itself.
    `batch` has the samples of all ranks, and is divided among them: unevenly, unless told otherwise, and into `parts` of which
    consecutive ranks share each, if fewer than the ranks have samples of their own, as with tensor or pipeline parallelism.
    `truth(model, batch)` is the step on one process, if that is another: a step that accumulates micro-batches wrongly does so
    on one process, too, and its truth is the loss of the whole batch. `counts` are numbers by which a step may divide, such as
    {"tokens": [96, 64, 128]} by rank, or [[48, 48], ...] by rank and micro-batch; or a function that returns those of a rank,
    {"tokens": 96}, from its samples. Wrong weights are told by them. `dump` is a folder for all that is compared, of which
    weft.verify says the same, anywhere.
    """
    parts = parts or ranks
    if parts > ranks:
        raise ValueError(f"{ranks} ranks cannot have {parts} parts of a batch")
    shares = divided(batch, parts, uneven)
    told = {name: table_of(name, of_ranks) for name, of_ranks in (counts or {}).items()} if not callable(counts) else joined_counts(
        [own_counts(counts, shares[rank * parts // ranks]) for rank in range(ranks)])

    def on_rank(rank):
        torch.manual_seed(seed)
        made = model()
        weights = weights_of(made)
        write_evidence(folder, rank, evidence_of(made, step, shares[rank * parts // ranks]))
        return weights

    def on_mended_rank(rank):
        torch.manual_seed(seed)
        made = model()
        with mended() as calls:
            evidence = evidence_of(made, step, shares[rank * parts // ranks])
        if calls:
            write_mended(folder, rank, evidence)
        return calls

    def on_one(_):
        torch.manual_seed(seed)
        exact, inexact, lost = truth_of(model(), truth or step, batch, weights, passes=4)
        write_truth(folder, exact, inexact)
        return [] if truth else lost

    with folder_of(dump) as folder:
        weights = {name: x for each in reversed(on_ranks(on_rank, ranks)) for name, x in each.items()}
        (lost,) = on_ranks(on_one, 1)
        rows = [rows_of(share) for share in shares]
        write_step(folder, ranks, rows, told, lost)
        found = verify(folder)
        if not found.wrong or found.cause and found.cause.signature:
            return found
        (calls, *_) = on_ranks(on_mended_rank, ranks)
        if calls:
            write_step(folder, ranks, rows, told, lost, calls)
        return verify(folder) if calls else found
