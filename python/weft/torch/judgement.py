# SPDX-License-Identifier: Apache-2.0
"""The verdict on what the ranks have, given the truth."""
from .. import verify
from .causes import Evidences, cause_of
from .comparison import rounding_of, row_of, squares_of
from .found import Found


def blind_to(local):
    """Mistakes of the reducer that none of these parameters shows: of each rank, {name: gradients of its passes}."""
    sums = [{name: sum(passes[1:], passes[0]) for name, passes in of_rank.items()} for of_rank in local]
    dump = [{key: x for name, own in of_rank.items()
             for key, x in ((f"local/{name}", own), (f"reduced/{name}", sum(each[name] for each in sums) / len(sums)))}
            for of_rank in sums]
    return set.intersection(*(set(verdict.blind_to) for verdict in verify(dump).verdicts))


def by_size(sizes):
    """Groups of parameters, from the smallest: most often the first group shows every mistake."""
    group, total, enough = [], 0, 1 << 10
    for name in sorted(sizes, key=sizes.get):
        group, total = [*group, name], total + sizes[name]
        if total >= enough:
            yield group
            group, total, enough = [], 0, 4 * enough
    if group:
        yield group


def blindness(sizes, local_of, rows):
    """Mistakes that the data could not show, none if ranks share samples: then they are alike by intention. `local_of` returns
    what blind_to asks for."""
    found = None
    for names in by_size(sizes):
        of_group = blind_to(local_of(names))
        found = of_group if found is None else found & of_group
        if not found:
            break
    # Means of uneven shards cannot be told from the mean of all where they are even.
    even = ["S12: mean of the means of uneven shards"] if len(set(rows)) == 1 and len(rows) > 1 else []
    return sorted(found or ()) + even


def cause_of_wrong(names, evidences, truth, rounding, rows):
    some_right = any(name not in names and x.any() for name, x in truth.gradients.items())
    return cause_of(Evidences(sorted(names), evidences, truth.gradients, rounding, rows), some_right)


def refuse_unknown(names, truth):
    missing = set(names) - set(truth.gradients)
    if missing:
        raise ValueError(f"on one process the model has no parameter {min(missing)}")


def judged(evidences, truth, rows):
    """`evidences` of all ranks; `rows` of each part of the batch."""
    refuse_unknown({name for each in evidences for name in each.reduced}, truth)
    errors, rounding = [], {}
    for name, expected in truth.gradients.items():
        local = [x for each in evidences for x in each.local.get(name, [])]
        rounding[name] = rounding_of(expected, truth.moved[name], *squares_of(local, expected.shape))
        errors += [row_of(name, rank, each.reduced[name], expected, rounding[name])
                   for rank, each in enumerate(evidences) if name in each.reduced]
    wrong = {row.parameter for row in errors if row.wrong}
    cause = cause_of_wrong(wrong, evidences, truth, rounding, rows) if wrong else None
    sizes = {name: x.numel() for name, x in truth.gradients.items() if all(each.local.get(name) for each in evidences)}
    shared = len(evidences) == 1 or len(rows) < len(evidences)
    blind = [] if shared else blindness(sizes, lambda names: [{name: each.local[name] for name in names} for each in evidences], rows)
    return Found(len(evidences), errors, cause, blind, None)
