# SPDX-License-Identifier: Apache-2.0
"""What run and check return."""
from ..verdicts import Judged


class Found(Judged):
    """True if every gradient of every rank is that of one process. `rows` has the errors, `cause` why they are, if it is known, as
    sought in the parameters `sought_in`; `blind_to` the mistakes that these data could not show. Of a truth with collectives
    through which no gradient passes, `lost`, equal gradients prove nothing: then the outcome is "cannot tell"."""

    def __init__(self, ranks, rows, cause, sought_in, blind_to, lost, cost):
        self.ranks, self.rows, self.cause, self.sought_in = ranks, tuple(rows), cause, tuple(sought_in)
        self.blind_to, self.lost, self.cost = tuple(blind_to), tuple(dict.fromkeys(lost)), cost
        self.outcome = "wrong" if any(row.wrong for row in rows) else "cannot tell" if self.lost else "correct"
        self.text = self._told()

    def _told(self):
        worst = {}
        for row in self.rows:
            worst[row.parameter] = max(row, worst.get(row.parameter, row), key=lambda each: each.error)
        wrong = [name for name, row in worst.items() if row.wrong]
        lines = [f"{self.ranks} ranks, against one process with the whole batch; errors are multiples of expected rounding, "
                 "up to 8 count as equal", ""]
        if wrong:
            lines += [f"{len(wrong)} of {len(worst)} parameters: wrong: {self.cause or 'of unknown cause'}"]
            lines += [f"    repair: {self.cause.repair}"] if self.cause else []
            if len(self.sought_in) < len(wrong):
                lines += [f"    sought in the smallest {len(self.sought_in)} of these {len(wrong)}"]
        else:
            lines += [f"{len(worst)} parameters: as on one process" if self.lost else f"{len(worst)} parameters: correct"]
        lines += [f"    no gradient passes through {each}, on one process neither: give truth=, or detach what needs none" for each in self.lost]
        if self.blind_to:
            lines += [f"    blind to {', '.join(self.blind_to)}: with these data they give the same numbers as the truth"]
        width = max(map(len, worst), default=0)
        lines += [f"  {'parameter':{width}}  rank      error     cosine      ratio     shows a factor off by   worst element"]
        lines += [f"  {name:{width}}  {row.rank:4}  {row.error:8.2g}x  {row.cosine:9.7f}  {row.ratio:9.7f}   {f'{100 * row.shown:.2g} %':>23}   "
                  f"[{row.worst_element}] {row.dumped:.7g}, not {row.expected:.7g}" for name, row in worst.items()]
        return "\n".join([*lines, "", f"verdict: {self.outcome}", ""])
