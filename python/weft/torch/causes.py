# SPDX-License-Identifier: Apache-2.0
"""Why gradients are not the truth. Where the reducer is at fault, the verifier says so, since it has the gradients before and
after; where those before are wrong already, factors and weights of ranks and micro-batches are fitted to the truth."""
import fractions

import torch

from .. import Cause, signatures, verify
from .comparison import error_of, limit


def _named(signature, variant, error):
    found = next(each for each in signatures() if each["id"] == signature)
    return Cause(signature, found["name"], variant, error, found["repair"])


def _described(text, error, repair="compare what each rank and micro-batch counts with its share of the whole batch"):
    return Cause("", text, "", error, repair)


def _worst(pairs):
    """Of (what is found, truth, rounding)."""
    return max(error_of(*each) for each in pairs)


def _fraction(x):
    """A ratio of small counts, if it is one to rounding."""
    near = fractions.Fraction(x).limit_denominator(64)
    return str(near) if abs(x - near) <= 1e-3 * abs(x) else f"{x:.4g}"


class Evidences:
    """Of some parameters, by name: `reduced[name]` of the ranks that have it, `truth[name]` and `rounding[name]`, and of those that
    all ranks have with their local gradients `local[name][rank][micro_batch]`."""

    def __init__(self, names, evidences, truth, rounding, rows):
        self.names, self.ranks, self.rows = names, len(evidences), rows
        self.truth, self.rounding = truth, rounding
        self.reduced = {name: [each.reduced[name] for each in evidences if name in each.reduced] for name in names}
        self.local = {name: [each.local[name] for each in evidences] for name in names
                      if all(each.local.get(name) for each in evidences)}
        counts = {len(passes) for ranks in self.local.values() for passes in ranks}
        self.passes = counts.pop() if len(counts) == 1 else 1  # micro-batches that all have
        if self.passes == 1:
            self.local = {name: [[sum(passes[1:], passes[0])] for passes in ranks] for name, ranks in self.local.items()}

    def terms(self, name):
        return [x.double() for passes in self.local[name] for x in passes]

    def error(self, of, name_of=None):
        return _worst((of(name), self.truth[name], self.rounding[name]) for name in (name_of or self.names))


def _weights(evidences, target):
    """The weights of all local gradients whose sum is target(name) for all parameters, and how well they explain it."""
    names = list(evidences.local)
    columns = torch.cat([torch.stack([x.flatten() / evidences.rounding[n].mean().sqrt() for x in evidences.terms(n)], 1)
                         for n in names])
    wanted = torch.cat([target(n).double().flatten() / evidences.rounding[n].mean().sqrt() for n in names])
    if len(wanted) <= 2 * columns.shape[1]:
        return None, float("inf")
    weights = torch.zeros(columns.shape[1], dtype=torch.float64)
    for _ in range(3):  # what is left of f64 gradients is fitted again
        weights += torch.linalg.lstsq(columns, (wanted - columns @ weights)[:, None], driver="gelsd").solution[:, 0]
    error = _worst((sum(w * x for w, x in zip(weights, evidences.terms(n))), target(n), evidences.rounding[n]) for n in names)
    return weights.reshape(evidences.ranks, evidences.passes), error


def _factor(evidences, some_right):
    """Every gradient, on every rank, is the truth times one number."""
    pairs = [(x, evidences.truth[name]) for name in evidences.names for x in evidences.reduced[name]]
    products = sum((x.double() * y.double()).sum() for x, y in pairs)
    factor = (products / sum(y.double().square().sum() for _, y in pairs)).item()
    error = _worst((x, factor * evidences.truth[n].double(), evidences.rounding[n])
                   for n in evidences.names for x in evidences.reduced[n])
    if error > limit:
        return None
    counts = {"the number of ranks": evidences.ranks, "the number of micro-batches": evidences.passes}
    same = [f"{over}{name}" for name, count in counts.items() if count > 1 for over, value in (("", count), ("one over ", 1 / count))
            if abs(factor - value) < 1e-3 * value]
    variant = f"{_fraction(factor)} of the truth" + "".join(f", {each}" for each in same)
    if any("ranks" in each for each in same):
        return _named("S8" if factor > 1 else "S3" if some_right else "S9", variant, error)
    return _named("S16" if same else "S33", variant, error)


def _by_the_verifier(evidences, reducer):
    """What the C++ verifier makes of the gradients before and after the reducer."""
    dump = [{**{f"local/{name}" + (f"/{k}" if evidences.passes > 1 else ""): x for name in evidences.local
                for k, x in enumerate(evidences.local[name][rank])},
             **{f"reduced/{name}": evidences.reduced[name][rank] for name in evidences.local}} for rank in range(evidences.ranks)]
    found = verify(dump, reducer=reducer, rows=evidences.rows if len(evidences.rows) == evidences.ranks else None)
    return found.cause if found.wrong and found.cause and found.cause.signature else None


def _text(weights, unit):
    """Weights of ranks, and of their micro-batches if they differ."""
    rows = [[_fraction(w * unit) if abs(w) > 1e-6 else "0" for w in row.tolist()] for row in weights]
    same = all(len(set(row)) == 1 for row in rows)
    return ", ".join(row[0] if same else "(" + ", ".join(row) + ")" for row in rows)


def _clipped(evidences, weights):
    """Gradients of ranks that were longer than others have been shortened to one length."""
    lengths = torch.stack([torch.stack([x.norm() for x in evidences.terms(n)]) for n in evidences.local]).square().sum(0).sqrt()
    after = weights.flatten() * lengths
    shortened = weights.flatten() < 0.999 * weights.max()
    return bool(evidences.passes == 1 and shortened.any() and ((after[shortened] / after.max() - 1).abs() < 1e-3).all())


def _groups(evidences, fits):
    """Ranks that were given the same, if it is made of what they have themselves."""
    of_rank = [tuple((weights.abs().amax(1) > 1e-4).nonzero().flatten().tolist()) for weights, _ in fits]
    own = all(set(each) == {other for other in range(evidences.ranks) if of_rank[other] == each} for each in of_rank)
    return sorted(set(of_rank)) if own and len(set(of_rank)) > 1 else None


def _fits(evidences):
    """The weights by which each rank's reduced gradients are made of the local ones."""
    return [_weights(evidences, lambda n, r=rank: evidences.reduced[n][r]) for rank in range(evidences.ranks)]


def _clipping(evidences):
    fits = _fits(evidences)
    error = max(error for _, error in fits)
    if error <= limit and all(_clipped(evidences, weights) for weights, _ in fits):
        return _described("clipped before the reduction", error, "reduce first, and clip by the norm of what was reduced")
    return None


def _of_the_reducer(evidences, reducer):
    """The local gradients are right, so what reduces them is not."""
    named = _by_the_verifier(evidences, reducer)
    if named:
        return named
    fits = _fits(evidences)
    error = max(error for _, error in fits)
    if error > limit:
        return None
    groups = _groups(evidences, fits)
    if groups:
        return _described(f"reduced in groups of their own: ranks {'; '.join(', '.join(map(str, each)) for each in groups)}", error,
                          "reduce over the group of all ranks that have other samples")
    unit = evidences.ranks if reducer == "mean" else 1
    texts = [_text(weights, unit) for weights, _ in fits]
    return _described("the reduction weighs what the ranks have by " + (
        texts[0] if len(set(texts)) == 1 else "; ".join(f"{text} on rank {rank}" for rank, text in enumerate(texts))), error)


def _of_the_weights(evidences, unit):
    """The local gradients are wrong by weights: of ranks, micro-batches, or both."""
    weights, error = _weights(evidences, lambda n: evidences.truth[n])
    if weights is None or error > limit:
        return None
    has = 1 / (weights * unit)  # what each counts instead of 1
    if not has.isfinite().all():
        return None
    shares = torch.tensor(evidences.rows, dtype=torch.float64) / sum(evidences.rows)
    if len(shares) == len(has) and ((has * len(shares) * shares[:, None] - 1).abs() < 1e-3).all():
        return _named("S12", "the ranks' samples weigh " + _text(has, 1), error)
    return _described(f"samples of different {'micro-batches' if evidences.passes > 1 else 'ranks'} count differently: "
                      f"they weigh {_text(has, 1)}, where all should weigh 1", error)


def cause_of(evidences, some_right):
    """The mistake that explains all wrong gradients, or one that says where it is."""
    factor = _factor(evidences, some_right)
    if factor or not evidences.local or set(evidences.local) != set(evidences.names):
        return factor
    clipping = _clipping(evidences)
    if clipping:
        return clipping
    for reducer, unit in (("mean", evidences.ranks), ("sum", 1)):
        if evidences.error(lambda n: sum(evidences.terms(n)) / unit) <= limit:
            return _of_the_reducer(evidences, reducer)
    for reducer, unit in (("mean", evidences.ranks), ("sum", 1)):
        if not _by_the_verifier(evidences, reducer):
            return _of_the_weights(evidences, unit) or _described(
                "wrong before the reduction", evidences.error(lambda n: sum(evidences.terms(n)) / unit),
                "look at what ranks exchange in the forward pass: each collective there needs its adjoint in the backward pass")
    return _of_the_weights(evidences, evidences.ranks) or _described(
        "wrong before the reduction, and by it", float("inf"), "see first to the gradients of one rank")
