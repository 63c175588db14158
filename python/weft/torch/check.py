# SPDX-License-Identifier: Apache-2.0
"""A step inside a running job. Each rank compares what it has itself, one parameter at a time, so that no rank holds the
gradients of all; only what is wrong is gathered."""
import contextlib
import copy
import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .batches import joined, rows_of
from .comparison import rounding_of, row_of, squares_of
from .evidence import Evidence, evidence_of, weights_of
from .found import Found
from .judgement import blindness, cause_of_wrong, refuse_unknown
from .truth import load, truth_of


class _OneProcess:
    """The same step, which rank 0 makes alone, with the cores of all that wait for it."""

    def __init__(self):
        self.model = self.truth = None
        self.group = dist.new_group([0], backend="gloo")
        # Where the parent's threads were lost in a fork, more cannot be made.
        forked = isinstance(multiprocessing.current_process(), multiprocessing.context.ForkProcess)
        self.threads = torch.get_num_threads() * (1 if forked else int(os.environ.get("LOCAL_WORLD_SIZE", 1)))

    @contextlib.contextmanager
    def _alone(self):
        """The job has one process: what names no group is of this one."""
        before, own_threads = distributed_c10d._get_default_group(), torch.get_num_threads()
        distributed_c10d._update_default_pg(self.group)
        torch.set_num_threads(self.threads)
        try:
            with torch.random.fork_rng(devices=[]):
                yield
        finally:
            torch.set_num_threads(own_threads)
            distributed_c10d._update_default_pg(before)

    def take(self, model, whole, weights):
        """A model like that of the job, before its step."""
        if whole is None:
            inner = getattr(model, "module", model)
            if any(type(p) is not torch.nn.Parameter for p in inner.parameters()):
                raise ValueError("the model is divided among ranks: give whole=, a function that makes it on one process")
            self.model = copy.deepcopy(inner)
        else:
            with self._alone(), torch.no_grad():
                self.model = whole()
                load(self.model, weights)

    def differentiate(self, step, batch, random_numbers):
        with self._alone():
            torch.set_rng_state(random_numbers)
            self.truth = truth_of(self.model, step, batch)
        self.model = None


def _gathered(x):
    """On rank 0; nothing on the others."""
    of_all = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(x, of_all)
    return of_all or []


def _result_of(function):
    try:
        return function()
    except Exception as error:
        return error


def _from_rank_0(make):
    """What make() returns there, on all ranks; or its exception, for which they would wait."""
    told = [_result_of(make) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(told)
    if isinstance(told[0], Exception):
        raise told[0]
    return told[0]


class _Comparison:
    """Of what every rank has with the truth, which rank 0 has. All methods are collective."""

    def __init__(self, own, truth, rows):
        self.own, self.truth, self.rows = own, truth, rows
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(backend="gloo")  # tensors are on the host, whatever the job's backend
        names = _gathered(list(own.reduced))
        self.shapes = _from_rank_0(lambda: self._shapes(names))

    def _shapes(self, names):
        refuse_unknown({name for each in names for name in each}, self.truth)
        return {name: (x.shape, x.dtype, self.truth.moved[name].dtype) for name, x in self.truth.gradients.items()}

    def _expected(self, name):
        """The truth and its rounding."""
        shape, dtype, wide = self.shapes[name]
        squares, count = squares_of(self.own.local.get(name, []), shape)
        counts = torch.tensor([count])
        parts = [self.truth.gradients[name].contiguous(), self.truth.moved[name].contiguous()] if self.truth else [
            torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=wide)]
        for x in parts:
            dist.broadcast(x.view(-1).view(torch.uint8), 0, self.group)  # of any type
        for x in (squares, counts):
            dist.all_reduce(x, group=self.group)
        return parts[0], rounding_of(*parts, squares, counts.item())

    def errors(self):
        own = []
        for name in self.shapes:
            expected = self._expected(name)
            if name in self.own.reduced:
                own.append(row_of(name, self.rank, self.own.reduced[name], *expected))
        return [row for rows in _gathered(own) for row in rows]

    def cause(self, errors):
        wrong = _from_rank_0(lambda: {row.parameter for row in errors if row.wrong})
        if not wrong:
            return None
        rounding = {name: self._expected(name)[1] for name in sorted(wrong)}
        evidences = _gathered(Evidence(*({name: x for name, x in of.items() if name in wrong} for of in
                                         (self.own.local, self.own.reduced))))
        return _from_rank_0(lambda: cause_of_wrong(wrong, evidences, self.truth, rounding, self.rows))

    def blind(self):
        """Rank 0 asks for the parameters that it wants to see, and at last for none."""
        if len(self.rows) < self.ranks or self.ranks == 1:
            return []
        sizes = _gathered({name: x[0].numel() for name, x in self.own.local.items()})
        if self.rank:
            while names := _from_rank_0(None):
                self._local(names)
            return _from_rank_0(None)
        common = {name: sizes[0][name] for name in set.intersection(*map(set, sizes))}
        found = _result_of(lambda: blindness(common, lambda names: self._local(_from_rank_0(lambda: names)), self.rows))
        _from_rank_0(lambda: [])
        return _from_rank_0(lambda: found)

    def _local(self, names):
        return _gathered({name: self.own.local[name] for name in names})


def _told(model, rows):
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    print(f"weft.torch.check: a step of all ranks, and two of rank 0 alone with all {rows} samples; in memory that is as large as the "
          f"parameters ({size / 1e6:.0f} MB), five times on rank 0 and once on the others", file=sys.stderr)


def check(model, step, batch, whole=None, parts=None, truth=None, quiet=False):
    """Collective: every rank calls it with its model and its own samples, in place of a step, and gets the verdict.

    `step(model, batch)` returns the loss of this rank, or calls backward itself. `whole()` makes the model on one process, where
    the model of the job is divided among ranks (FSDP2, tensor parallel). Consecutive ranks share the samples of each of `parts`,
    if fewer than the ranks have samples of their own. Groups that the step has made itself are as they were on one process, too:
    let it make them in the step. `truth` is as for run. Gradients are gone afterwards; parameters are as before.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = parts or ranks
    batches, started = _gathered(batch), time.perf_counter()
    batches = batches and [batches[next(r for r in range(ranks) if r * parts // ranks == part)] for part in range(parts)]
    rows = _from_rank_0(lambda: [rows_of(each) for each in batches])
    if rank == 0 and not quiet:
        _told(model, sum(rows))
    one = _OneProcess()
    random_numbers, weights = torch.get_rng_state(), weights_of(model) if whole else None
    _from_rank_0(lambda: one.take(model, whole, weights))
    before_step = time.perf_counter()
    own = evidence_of(model, step, batch)
    step_seconds = time.perf_counter() - before_step
    _from_rank_0(lambda: one.differentiate(truth or step, joined(batches), random_numbers))
    comparison = _Comparison(own, one.truth, rows)
    errors = comparison.errors()
    cause, blind = comparison.cause(errors), comparison.blind()
    for p in model.parameters():
        p.grad = None
    return _from_rank_0(lambda: Found(ranks, errors, cause, blind, (time.perf_counter() - started) / step_seconds))
