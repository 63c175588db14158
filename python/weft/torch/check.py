# SPDX-License-Identifier: Apache-2.0
"""A step inside a running job."""
import contextlib
import copy
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .batches import joined, rows_of
from .evidence import Evidence, evidence_of
from .judgement import judged
from .truth import truth_of


@contextlib.contextmanager
def _alone(group):
    """For the calling rank the job has one process: what names no group is of this one."""
    before = distributed_c10d._get_default_group()
    distributed_c10d._update_default_pg(group)
    try:
        yield
    finally:
        distributed_c10d._update_default_pg(before)


def _of_one_process(model, whole):
    if whole is not None:
        return whole()
    inner = getattr(model, "module", model)
    if any(type(p) is not torch.nn.Parameter for p in inner.parameters()):
        raise ValueError("the model is divided among ranks: give whole=, a function that makes it on one process")
    return copy.deepcopy(inner)


def _told(model, rows, sizes):
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    print(f"weft.torch.check: one step of all ranks, two of rank 0 alone with all {rows} samples; parameters of {size / 1e6:.0f} MB, "
          f"of which rank 0 holds four times as many more", file=sys.stderr)


def _gathered(x, ranks):
    of_all = [None] * ranks if dist.get_rank() == 0 else None
    dist.gather_object(x, of_all)
    return of_all


def check(model, step, batch, whole=None, parts=None, truth=None, quiet=False):
    """Collective: every rank calls it with its model and its own samples, in place of a step, and gets the verdict.

    `step(model, batch)` returns the loss of this rank, or calls backward itself. `whole()` makes the model on one process, where
    the model of the job is divided among ranks (FSDP2, tensor parallel). Consecutive ranks share the samples of each of `parts`,
    if fewer than the ranks have samples of their own. Groups that the step has made itself are as they were on one process, too:
    let it make them in the step. `truth` is as for run. Gradients are gone afterwards; parameters
    are as before.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = parts or ranks
    group = dist.new_group([0], backend="gloo")
    batches, started = _gathered(batch, ranks), time.perf_counter()
    if rank == 0:
        batches = [batches[next(r for r in range(ranks) if r * parts // ranks == part)] for part in range(parts)]
        if not quiet:
            _told(model, sum(map(rows_of, batches)), parts)
    random_numbers = torch.get_rng_state()
    own = evidence_of(model, step, batch)
    step_seconds = time.perf_counter() - started
    evidences = _gathered(Evidence({}, own.local, own.reduced), ranks)
    told = [None]
    if rank == 0:
        told = [_verdict(lambda: _of_one_process(model, whole), truth or step, batches, evidences, own.weights, group, random_numbers)]
        if not isinstance(told[0], Exception):
            told[0].cost = (time.perf_counter() - started) / step_seconds
    dist.broadcast_object_list(told)
    for p in model.parameters():
        p.grad = None
    if isinstance(told[0], Exception):
        raise told[0]
    return told[0]


def _verdict(model, step, batches, evidences, weights, group, random_numbers):
    """Or the exception: other ranks wait for it."""
    try:
        with _alone(group), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random_numbers)
            truth = truth_of(model(), step, joined(batches), weights, passes=1)
        return judged(evidences, truth, [rows_of(each) for each in batches])
    except Exception as error:
        return error
