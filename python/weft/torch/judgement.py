# SPDX-License-Identifier: Apache-2.0
"""The verdict on what the ranks have, given the truth."""
from .. import verify
from .causes import Evidences, cause_of
from .comparison import rounding_of, row_of
from .found import Found


def _blind(evidences):
    """Mistakes of the reducer that no parameter shows, and whether means of uneven shards could be told from the mean of all."""
    if not evidences.local or evidences.ranks == 1 or len(evidences.rows) < evidences.ranks:
        return []  # ranks that share samples are alike by intention
    dump = [{f"{kind}/{name}": x for name in evidences.local for kind, x in
             (("local", sum(evidences.local[name][rank])), ("reduced", sum(map(sum, evidences.local[name])) / evidences.ranks))}
            for rank in range(evidences.ranks)]
    each = [set(verdict.blind_to) for verdict in verify(dump).verdicts]
    even = ["S12: mean of the means of uneven shards"] if len(set(evidences.rows)) == 1 and len(evidences.rows) > 1 else []
    return sorted(set.intersection(*each)) + even if each else even


def judged(evidences, truth, rows, cost=None):
    """`evidences` of all ranks; `rows` of each part of the batch."""
    errors, rounding = [], {}
    for name, expected in truth.gradients.items():
        local = [x for each in evidences for x in each.local.get(name, [])]
        rounding[name] = rounding_of(expected, truth.squared_rounding[name], local)
        errors += [row_of(name, rank, each.reduced[name], expected, rounding[name])
                   for rank, each in enumerate(evidences) if name in each.reduced]
    missing = {name for each in evidences for name in each.reduced} - set(truth.gradients)
    if missing:
        raise ValueError(f"on one process the model has no parameter {min(missing)}")
    wrong = {row.parameter for row in errors if row.wrong}
    some_right = any(name not in wrong and x.any() for name, x in truth.gradients.items())

    def of(names):
        return Evidences(sorted(names), evidences, truth.gradients, rounding, rows)
    cause = cause_of(of(wrong), some_right) if wrong else None
    return Found(len(evidences), errors, cause, _blind(of(rounding)), cost)
