# SPDX-License-Identifier: Apache-2.0
"""A fixture for tests of gradients, of what ranks have or of a step of PyTorch:

    def test_gather(distributed_gradients):
        distributed_gradients([rank0, rank1, rank2], loss="clip")
        distributed_gradients(step, model=model, batch=batch, ranks=3, uneven=True)

It fails with the table of a wrong verdict, and if the data could not have shown a mistake that it should: by default any.
"""
import pytest

from . import verify


def _found(dump_or_step, **options):
    if not callable(dump_or_step):
        return verify(dump_or_step, **options)
    from .torch import run
    return run(dump_or_step, **options)


@pytest.fixture
def distributed_gradients():
    def check(dump_or_step, *, blind_to=(), **options):
        """`blind_to` names the signatures that the data need not show, such as "S5". Other options are those of weft.verify for
        a dump, and of weft.torch.run for a step."""
        found = _found(dump_or_step, **options)
        if found.wrong:
            pytest.fail(str(found), pytrace=False)
        not_shown = {each for verdict in found.verdicts for each in verdict.blind_to}
        blind = sorted(each for each in not_shown if each.split()[0] not in blind_to)
        if blind:
            pytest.fail(f"the gradients are right, but this test is blind to {', '.join(blind)}:\n{found.power}"
                        "Take three ranks with different data, and a different number of samples on each.", pytrace=False)
        if not found.correct:
            pytest.fail(f"the dump does not tell whether the gradients are right:\n{found}", pytrace=False)
        return found
    return check
