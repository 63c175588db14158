# SPDX-License-Identifier: Apache-2.0
"""The verdict on what the ranks have, given the truth."""
import itertools

from .. import Cause, _weft, verify
from .comparison import row_of, squares_of
from .found import Found

most_elements = 1 << 21  # of all parameters in which a cause is sought


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


def wrong_ones(errors, exact):
    """The wrong parameters, from the smallest, in which the cause is sought, without the largest of many; and whether others are
    right."""
    wrong = sorted({row.parameter for row in errors if row.wrong}, key=lambda name: (exact[name].numel(), name))
    sizes = itertools.accumulate(exact[name].numel() for name in wrong)
    sought_in = [name for place, (name, size) in enumerate(zip(wrong, sizes)) if place == 0 or size <= most_elements]
    return sought_in, any(name not in wrong and x.any() for name, x in exact.items())


def cause_of_wrong(expected, evidences, some_right, rows, counts):
    """As the verifier sees it. `expected` has the truth of each parameter, and inexact ones."""
    parameters = []
    for name, (truth, inexact, *_) in expected.items():
        as_truth = lambda tensors: [x.to(truth.dtype).contiguous() for x in tensors]
        parameters.append((name, [as_truth(each.local.get(name, [])) for each in evidences],
                           as_truth(each.reduced[name] for each in evidences if name in each.reduced), *as_truth([truth]),
                           as_truth(inexact)))
    told = _weft.cause(parameters, rows, counts, some_right)
    return Cause(*told) if told else None


def refuse_unknown(names, exact):
    missing = set(names) - set(exact)
    if missing:
        raise ValueError(f"on one process the model has no parameter {min(missing)}")


def judged(evidences, exact, inexact, lost, rows, counts):
    """`evidences` of all ranks; `lost` are collectives of the truth without a gradient; `rows` of each part of the batch; `counts` by name, rank and micro-batch."""
    refuse_unknown({name for each in evidences for name in each.reduced}, exact)
    errors, expected = [], {}
    for name, x in exact.items():
        local = [y for each in evidences for y in each.local.get(name, [])]
        expected[name] = x, [each[name] for each in inexact], *squares_of(local, x.shape)
        errors += [row_of(name, rank, each.reduced[name], *expected[name])
                   for rank, each in enumerate(evidences) if name in each.reduced]
    sought_in, some_right = wrong_ones(errors, exact)
    cause = cause_of_wrong({name: expected[name] for name in sought_in}, evidences, some_right, rows, counts) if sought_in else None
    sizes = {name: x.numel() for name, x in exact.items() if all(each.local.get(name) for each in evidences)}
    shared = len(evidences) == 1 or len(rows) < len(evidences)
    blind = [] if shared else blindness(sizes, lambda names: [{name: each.local[name] for name in names} for each in evidences], rows)
    return Found(len(evidences), errors, cause, sought_in, blind, lost, None)
