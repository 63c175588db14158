# SPDX-License-Identifier: Apache-2.0
"""A step inside a running job. Each rank compares what it has itself, one parameter at a time, so that no rank holds the
gradients of all; only what is wrong is gathered."""
import collections
import dataclasses
import hashlib
import itertools
import socket
import sys

import torch
import torch.distributed as dist

from .. import Verdicts, _weft
from ..dumps import write_truth
from ..stored import write_evidence, write_mended, write_step
from .batches import joined, rows_of
from .comparison import row_of, squares_of
from .counts import joined_counts, own_counts
from .evidence import Evidence, evidence_of, plain, weights_of
from .mended import mended
from .one_process import OneProcess
from .truth import Inexact, exactly

_files = "truth.safetensors", "inexact.safetensors"


def _gathered(x, on=0):
    """On one rank; nothing on the others."""
    of_all = [None] * dist.get_world_size() if dist.get_rank() == on else None
    dist.gather_object(x, of_all, on)
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


def _bytes(x):
    return x.contiguous().view(-1).view(torch.uint8)


def _marks(tensors):
    return {name: (x.shape, x.dtype, _weft.fingerprint(_bytes(x.detach().cpu()))) for name, x in tensors.items()}


def _second(state):
    """The rank that makes the inexact step while rank 0 makes the exact one: with the same weights, and another machine's cores if
    there are any. Whether those of rank 0 are shared, too."""
    marks = [None] * dist.get_world_size()
    dist.all_gather_object(marks, (socket.gethostname(), hashlib.sha256(repr(_marks(state)).encode()).digest()))
    alike = [rank for rank, (_, weights) in enumerate(marks) if rank and weights == marks[0][1]]
    elsewhere = [rank for rank in alike if marks[rank][0] != marks[0][0]]
    second = (elsewhere or alike or [0])[0]
    return second, second != 0 and not elsewhere


def _on_all(act):
    """An exception of one rank, for which the others would wait, is that of all."""
    told = [None] * dist.get_world_size()
    dist.all_gather_object(told, next((x for x in [_result_of(act)] if isinstance(x, Exception)), None))
    for error in told:
        if error:
            raise error


class _Comparison:
    """Of what every rank has with the truth, which rank 0 has, and of which the rank `second` knows how far it moves. All methods
    are collective."""

    def __init__(self, own, exact, inexact, second, rows, counts):
        self.own, self.exact, self.inexact, self.second, self.rows, self.counts = own, exact, inexact, second, rows, counts
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(backend="gloo")  # tensors are on the host, whatever the job's backend
        self.marks = _gathered(_marks(own.reduced))
        self.terms = collections.Counter()  # that are added up, on rank 0
        for each in _gathered({name: len(passes) for name, passes in own.local.items()}):
            self.terms.update(each)
        self.shapes = _from_rank_0(self._shapes)

    def _shapes(self):
        missing = {name for each in self.marks for name in each} - set(self.exact)
        if missing:
            raise ValueError(f"on one process the model has no parameter {min(missing)}")
        return {name: (x.shape, x.dtype) for name, x in self.exact.items()}

    def _each_inexact(self, names):
        """On rank 0, one after the other: the next comes while one is compared."""
        if self.second == 0:
            yield from ((name, self.inexact[name]) for name in names)
            return
        awaited = []
        for name in names:
            x = torch.empty(self.shapes[name][0], dtype=self.shapes[name][1])
            awaited.append((name, x, dist.irecv(_bytes(x), self.second, self.group)))
            if len(awaited) > 1:
                yield self._arrived(*awaited.pop(0))
        yield from (self._arrived(*each) for each in awaited)

    @staticmethod
    def _arrived(name, x, receiving):
        receiving.wait()
        return name, x

    def _expected(self, name):
        """The truth, how it moves, and the squares of what is added up."""
        shape, dtype = self.shapes[name]
        squares, count = squares_of(self.own.local.get(name, []), shape)
        counts = torch.tensor([count])
        parts = []
        for source, own in ((0, self.exact), (self.second, self.inexact)):
            parts.append(own[name].contiguous() if self.rank == source else torch.empty(shape, dtype=dtype))
            dist.broadcast(_bytes(parts[-1]), source, self.group)  # of any type
        for x in (squares, counts):
            dist.all_reduce(x, group=self.group)
        return parts[0], [parts[1]], squares, counts.item()

    def errors(self):
        """Gradients that are the same on all ranks are compared on rank 0, which counts only the rounding of what it has added
        itself. Where that does not explain them, that of the others counts, too."""
        alike = _from_rank_0(lambda: [name for name in self.shapes if all(each.get(name) == self.marks[0].get(name) is not None
                                                                           for each in self.marks)])
        found = []
        if self.rank == self.second != 0:
            for name in alike:
                dist.send(_bytes(self.inexact[name]), 0, self.group)
        elif self.rank == 0:
            found = [row for row in itertools.starmap(self._alike, self._each_inexact(alike)) if not row.wrong]
        settled = _from_rank_0(lambda: {row.parameter for row in found})
        own = [dataclasses.replace(row, rank=rank) for row in found for rank in range(self.ranks)]
        for name in self.shapes:
            if name in settled:
                continue
            expected = self._expected(name)
            if name in self.own.reduced:
                own.append(row_of(name, self.rank, self.own.reduced[name], *expected))
        return [row for rows in _gathered(own) for row in rows]

    def _alike(self, name, inexact):
        squares, _ = squares_of(self.own.local.get(name, []), inexact.shape)
        return row_of(name, 0, self.own.reduced[name], self.exact[name], [inexact], squares, self.terms[name])

    def of_wrong(self, errors):
        """What a cause is sought in, on rank 0: the numbers of wrong parameters, in the type of the truth."""
        names = _from_rank_0(lambda: _weft.sought_in(errors))
        expected = {name: self._expected(name) for name in names}
        evidences = _gathered(Evidence(*({name: of[name] for name in names if name in of} for of in (self.own.local, self.own.reduced))))

        def all_of(name):
            truth, inexact, *_ = expected[name]
            as_truth = lambda tensors: [x.to(truth.dtype).contiguous() for x in tensors]
            return (name, [as_truth(each.local.get(name, [])) for each in evidences],
                    as_truth(each.reduced[name] for each in evidences if name in each.reduced), truth, as_truth(inexact))
        return [all_of(name) for name in names] if self.rank == 0 else []

    def blind(self):
        """Mistakes that the data could not show. Rank 0 asks for the parameters that it wants to see, and at last for none."""
        whole = {name: shape.numel() for name, (shape, _) in self.shapes.items()
                 if all(x.shape == shape for x in self.own.local.get(name, [])) and self.own.local.get(name)}
        sizes = _gathered(whole)
        if self.rank:
            while name := _from_rank_0(None):
                self._local(name)
            return _from_rank_0(None)
        common = {name: size for name, size in sizes[0].items() if all(name in each for each in sizes)}
        found = _result_of(lambda: _weft.blindness(common, lambda name: self._local(_from_rank_0(lambda: name)), self.ranks, self.rows))
        _from_rank_0(lambda: None)
        return _from_rank_0(lambda: found)

    def _local(self, name):
        return _gathered([x.contiguous() for x in self.own.local[name]])


def _refuse_changes(before, model):
    """The truth is made with the job's own weights, so they have to be the ones that its step has had."""
    changed = [plain(name) for name, p in model.named_parameters() if p._version != before[name]]
    if changed:
        raise ValueError(f"the step changes the parameter {min(changed)}: leave the optimizer out of the step that is checked")


def _write(folder, own, own_roles, ranks, rows, counts, lost):
    """Each rank writes what it has; of the truth, too."""
    rank = dist.get_rank()
    write_evidence(folder, rank, own)
    for one in own_roles:
        exact = one.off is exactly
        write_truth(folder, *((one.gradients, ()) if exact else ({}, [one.gradients])), file=_files[0 if exact else 1])
    if rank == 0:
        write_step(folder, ranks, rows, counts, lost, files=_files)


def _told(model, rows, second):
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    whose = f"one of rank 0 and one of rank {second} at the same time," if second else "two of rank 0"
    print(f"weft.torch.check: a step of all ranks, then {whose} with all {rows} samples; in memory that is up to three times the "
          f"parameters ({size / 1e6:.0f} MB) beside these samples", file=sys.stderr)


def check(model, step, batch, whole=None, parts=None, truth=None, quiet=False, counts=None, dump=None):
    """Collective: every rank calls it with its model and its own samples, in place of a step, and gets the verdict.

    `step(model, batch)` returns the loss of this rank, or calls backward itself. `whole()` makes the model on one process, where
    the model of the job is divided among ranks (FSDP2, tensor parallel). Consecutive ranks share the samples of each of `parts`,
    if fewer than the ranks have samples of their own. Groups that the step has made itself are as they were on one process, too:
    let it make them in the step. `truth` is as for run. `counts` are those of this rank, {"tokens": 96} or
    {"tokens": [48, 48]} by micro-batch, or a function of its samples. `dump` is a folder that all ranks see, for all that is
    compared. Gradients are gone afterwards; parameters are as before.
    """
    if whole is None and any(type(p) is not torch.nn.Parameter for p in model.parameters()):
        raise ValueError("the model is divided among ranks: give whole=, a function that makes it on one process")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = parts or ranks
    random_numbers = _from_rank_0(torch.get_rng_state)
    weights = weights_of(model) if whole else None
    second, shared = _second(weights or dict((*model.named_parameters(), *model.named_buffers())))
    batches = [each for on in sorted({0, second}) for each in _gathered(batch, on)]
    batches = batches and [batches[next(r for r in range(ranks) if r * parts // ranks == part)] for part in range(parts)]
    rows = _from_rank_0(lambda: [rows_of(each) for each in batches])
    of_each = _gathered(own_counts(counts, batch))
    all_counts = _from_rank_0(lambda: joined_counts(of_each))
    exact, inexact = OneProcess(0, share=1 + shared), OneProcess(second, Inexact(0), share=1 + shared)
    own_roles = [one for one in (exact, inexact) if one.member == rank]
    if rank == 0 and not quiet:
        _told(model, sum(rows), second)
    _on_all(lambda: [one.take(model, whole, weights) for one in own_roles])
    versions = {name: p._version for name, p in model.named_parameters()}
    own_random_numbers = torch.get_rng_state()
    own = evidence_of(model, step, batch)
    _on_all(lambda: _refuse_changes(versions, model))
    _on_all(lambda: [one.differentiate(truth or step, joined(batches), random_numbers) for one in own_roles])
    comparison = _Comparison(own, exact.gradients, inexact.gradients, second, rows, all_counts)
    lost = [] if truth else exact.lost  # known on rank 0
    if dump:
        _on_all(lambda: _write(dump, own, own_roles, ranks, rows, all_counts, lost))
    errors = [row.told() for row in comparison.errors()]
    wrong, blind = comparison.of_wrong(errors), comparison.blind()

    def verdict(passing=(), error=0):
        return _from_rank_0(lambda: Verdicts(_weft.step_verdict(ranks, errors, wrong, rows, all_counts, blind,
                                                                list(dict.fromkeys(lost)), list(dict.fromkeys(passing)), error)))
    found = verdict()
    if found.wrong and not (found.cause and found.cause.signature):
        torch.set_rng_state(own_random_numbers)
        with mended() as calls:
            again = evidence_of(model, step, batch)
        left = _Comparison(again, exact.gradients, inexact.gradients, second, rows, all_counts).errors()
        if _from_rank_0(lambda: bool(calls) and not any(row.wrong for row in left)):
            if dump:
                _on_all(lambda: write_mended(dump, rank, again))
                _on_all(lambda: rank or write_step(dump, ranks, rows, all_counts, lost, calls, _files))
            found = verdict(calls, _from_rank_0(lambda: max(row.error for row in left)))
    for p in model.parameters():
        p.grad = None
    return found
