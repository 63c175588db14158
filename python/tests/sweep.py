#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws correct steps, none of which may be called wrong, and multiplies one gradient of each by a factor that is off by twice what
its verdict says it shows: 99 of 100 have to be found.

    sweep.py [--count 5000] [--first 0] [--kind bf16] [--transformers] [--ranks 2 3 5]

Needs torch and the package weft; processes are started once for each number of ranks.
"""
import argparse
import collections
import random
import sys
import time

import torch
import torch.distributed as dist

import weft
from drawn_steps import drawn
from weft.stored import folder_of, write_evidence, write_step
from weft.torch.batches import divided, rows_of
from weft.torch.comparison import row_of, squares_of
from weft.torch.evidence import evidence_of, weights_of
from weft.torch.one_process import OneProcess
from weft.torch.ranks import on_ranks
from weft.torch.truth import truth_of


def shows_twice_the_resolution(number, found, evidences, exact, inexact):
    """Whether a factor on one parameter, the same on all ranks, shows; None where no factor would."""
    draw = random.Random(number)
    shown = {row["tensor"].rsplit(" of rank ")[0]: row["shown"] for row in found.verdicts[0].table}
    name = draw.choice([name for name in shown if shown[name] < 0.25] or [None])
    if name is None or not exact[name].any():
        return None
    factor = 1 + draw.choice([-2, 2]) * shown[name]
    rounded = lambda x: (x.double() * factor).to(x.dtype)
    of_ranks = squares_of([x for each in evidences for x in each.local.get(name, [])], exact[name].shape)
    return any(row_of(name, rank, rounded(each.reduced[name]), exact[name], [x[name] for x in inexact], *of_ranks).wrong
               for rank, each in enumerate(evidences) if name in each.reduced)


def judge(number, rank, alone, **how):
    """Collective; the verdict is on rank 0."""
    ranks = dist.get_world_size()
    of = drawn(number, ranks, **how)
    shares = divided(of.batch, of.parts, of.uneven)
    torch.manual_seed(number)
    model = of.model()
    own = weights_of(model), evidence_of(model, of.step, shares[rank * of.parts // ranks])
    of_all = [None] * ranks if rank == 0 else None
    dist.gather_object(own, of_all)
    if rank:
        return None
    weights = {name: x for each, _ in reversed(of_all) for name, x in each.items()}
    evidences = [each for _, each in of_all]
    with alone._alone():
        torch.manual_seed(number)
        exact, inexact, lost = truth_of(of.model(), of.step, of.batch, weights, passes=4)
    with folder_of(None) as folder:
        for each, evidence in enumerate(evidences):
            write_evidence(folder, each, evidence)
        weft.write_truth(folder, exact, inexact)
        write_step(folder, ranks, [rows_of(share) for share in shares], {}, lost)
        found = weft.verify(folder)
    if found.wrong:
        print(f"number {number} on {ranks} ranks, {of.family}, {of.kind}, {'un' if of.uneven else ''}even:\n{found}", flush=True)
    return of.family, of.kind, found.wrong, shows_twice_the_resolution(number, found, evidences, exact, inexact)


def judge_all(numbers, ranks, **how):
    def job(rank):
        alone = OneProcess(0)
        return [judge(number, rank, alone, **how) for number in numbers]
    return on_ranks(job, ranks, seconds=600)[0]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=5000)
    options.add_argument("--first", type=int, default=0, help="the number of the first step that is drawn")
    options.add_argument("--kind", choices=["f32", "f64", "bf16"], help="one type of numbers only")
    options.add_argument("--transformers", action="store_true", help="whole models only")
    options.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 5])
    given = options.parse_args()
    counts, started = collections.defaultdict(collections.Counter), time.time()
    for of_ranks, ranks in enumerate(given.ranks):
        numbers = range(given.first + of_ranks, given.first + given.count, len(given.ranks))
        for at in range(0, len(numbers), 100):  # a job of many groups and meshes grows
            for family, kind, wrong, shown in judge_all(numbers[at:at + 100], ranks, kind=given.kind, only_transformers=given.transformers):
                counts[family, kind].update(drawn=1, wrong=wrong, planted=shown is not None, found=bool(shown))
    total = sum(counts.values(), collections.Counter())
    print(f"{'steps':30}  {'type':5}  {'drawn':>6}  {'wrong':>6}  {'planted':>8}  {'found':>6}")
    for (family, kind), each in sorted(counts.items()) + [(("all", ""), total)]:
        print(f"{family:30}  {kind:5}  {each['drawn']:6}  {each['wrong']:6}  {each['planted']:8}  {each['found']:6}")
    print(f"{time.time() - started:.0f} s")
    return 0 if total["wrong"] == 0 and total["found"] >= 0.99 * total["planted"] else 1


if __name__ == "__main__":
    sys.exit(main())
