# SPDX-License-Identifier: Apache-2.0
"""A fixture for tests of gradients:

    def test_gather(distributed_gradients):
        distributed_gradients([rank0, rank1, rank2], loss="clip")

It fails with the table of a wrong verdict, and if the data could not have shown a mistake that it should: by default any.
"""
import pytest

from . import verify


@pytest.fixture
def distributed_gradients():
    def check(dump, *, blind_to=(), **manifest):
        """`blind_to` names the signatures that the data need not show, such as "S5"."""
        found = verify(dump, **manifest)
        if found.wrong:
            pytest.fail(str(found), pytrace=False)
        blind = sorted({each for verdict in found.verdicts for each in verdict.blind_to if each.split()[0] not in blind_to})
        if blind:
            pytest.fail(f"the gradients are right, but this test is blind to {', '.join(blind)}:\n{found.power}"
                        "Take three ranks with different data, and a different number of samples on each.", pytrace=False)
        if not found.correct:
            pytest.fail(f"the dump does not tell whether the gradients are right:\n{found}", pytrace=False)
        return found
    return check
