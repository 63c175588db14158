# SPDX-License-Identifier: Apache-2.0
"""What verify and compare return."""
import dataclasses
import html
import json


class WrongGradient(AssertionError):
    """A gradient that is not the one of a single process with the whole batch."""


class DifferentTensors(AssertionError):
    """Tensors that are further apart than rounding explains."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """A mistake that explains the numbers."""
    signature: str  # "S3"; empty, if the mistake has no name of its own but is described
    name: str       # "own slot re-inserted"
    variant: str    # such as "by the number of samples"; may be empty
    error: float    # in multiples of expected rounding
    repair: str

    def __str__(self):
        return (f"{self.signature}: " if self.signature else "") + self.name + (f" ({self.variant})" if self.variant else "")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Of one subject: a loss, a layer, a parameter, the norm of all gradients."""
    subject: str
    outcome: str               # "correct", "wrong" or "cannot tell"
    cause: Cause = None        # of what is wrong, if it is known
    next: Cause = None         # the nearest other explanation
    same_as_cause: tuple = ()  # signatures that predict the same numbers here
    blind_to: tuple = ()       # signatures that these data could not show
    remarks: tuple = ()
    factor_shown: float = None  # the smallest factor that would have shown, less one
    row_shown: float = None     # how far one row would have to be off
    table: tuple = ()           # a dictionary for each tensor: error, cosine, ratio, worst_element, dumped, expected


class Told:
    """Something with a text for people."""
    text = ""

    def __str__(self):
        return self.text

    def __repr__(self):
        return f"<{type(self).__name__}: {self.outcome}>"

    def _repr_html_(self):
        return f"<pre style='overflow-x: auto'>{html.escape(self.text)}</pre>"


class Judged(Told):
    """True if every gradient is correct."""
    correct = property(lambda self: self.outcome == "correct")
    wrong = property(lambda self: self.outcome == "wrong")

    def __bool__(self):
        return self.correct

    def raise_if_wrong(self):
        """Returns self, so that calls can be chained."""
        if self.wrong:
            raise WrongGradient("\n" + self.text)
        return self


class Verdicts(Judged):
    """What `verify` found."""

    def __init__(self, told):
        found, self.text, self.power = json.loads(told[0]), told[1], told[2]
        self.ranks, self.outcome = found["ranks"], found["outcome"]
        self.verdicts = tuple(_verdict(each) for each in found["verdicts"])

    @property
    def cause(self):
        """The first cause that was found, or None: nothing is wrong, or its cause is not known."""
        return next((each.cause for each in self.verdicts if each.cause), None)


class Differences(Told):
    """What `compare` found. True if all tensors are equal up to rounding."""

    def __init__(self, told):
        found, self.text = json.loads(told[0]), told[1]
        self.outcome, self.first, self.tensors = found["outcome"], found["first_difference"], tuple(found["tensors"])

    equal = property(lambda self: self.outcome == "equal")

    def __bool__(self):
        return self.equal

    def raise_if_different(self):
        if self.outcome == "different":
            raise DifferentTensors("\n" + self.text)
        return self


def _cause(found):
    return found and Cause(found["signature"], found["name"], found["variant"], found["error"], found["repair"])


def _verdict(found):
    wrong, shown = found["outcome"] == "wrong", found.get("resolution", {})
    return Verdict(found["subject"], found["outcome"], _cause(found.get("best")) if wrong else None, _cause(found.get("next")),
                   tuple(found["same_as_best"]), tuple(found["blind_to"]), tuple(found["remarks"]), shown.get("factor"),
                   shown.get("row"), tuple(found["table"]))
