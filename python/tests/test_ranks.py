# SPDX-License-Identifier: Apache-2.0
"""Ranks from Python: threads whose errors, tapes and communicators end with them."""
import threading
import time

import numpy as np
import pytest
import weft
from weft import collectives, ops

from shards import drawn

def test_tapes_are_printed_where_python_prints(capsys):
    def on_rank(comm):
        tape = weft.Tape()
        collectives.all_gather(tape.watch(np.full((1, 1), comm.rank() + 1.0)), comm)
        weft.print_tapes(tape, comm)
    weft.run_ranks(3, on_rank)
    printed = capsys.readouterr().out
    assert printed.count("all_gather(0)") == 1 and "rank 2" in printed and "[[1], [2], [3]]" in printed


def test_the_page_of_all_tapes():
    def on_rank(comm):
        tape = weft.Tape()
        x = tape.watch(np.full((1, 1), comm.rank() + 1.0))
        tape.gradient(ops.sum(collectives.all_gather(x, comm)) * tape.constant(np.array(10.0**comm.rank())), [x])
        return weft.tapes_page(tape, comm, "a gather"), tape._repr_html_()
    (page, frame), *others = weft.run_ranks(3, on_rank)
    assert all(other == page for other, _ in others)
    assert page.startswith("<!doctype html>") and "a gather" in page and "[[111]]" in page and "test_ranks.py" in page
    assert frame.startswith("<iframe") and "&quot;[[111]]&quot;" in frame


def test_the_error_of_a_rank_is_that_of_all():
    def on_rank(comm):
        if comm.rank() == 1:
            raise KeyError("mine")
        comm.barrier()
    with pytest.raises(KeyError, match="mine"):
        weft.run_ranks(3, on_rank)


def test_different_calls_are_told_with_their_lines():
    def on_rank(comm):
        return comm.all_reduce(x[0]) if comm.rank() else comm.all_gather(x[0])
    x = drawn(11, 6)
    with pytest.raises(weft.Fault, match=r"rank 0 is in .*all_gather f64 \(.*\) at test_ranks.py:\d+"):
        weft.run_ranks(2, on_rank)


def test_a_rank_that_does_not_come_is_an_error():
    with pytest.raises(weft.Fault, match="barrier"):
        weft.run_ranks(2, lambda comm: comm.rank() or comm.barrier(), deadline=0.5)


def test_what_ends_with_its_rank():
    def on_rank(comm):
        tape = weft.Tape()
        x = tape.watch([1.0])
        return comm, comm.split(0), tape, x, collectives.all_reduce(x, comm)
    comm, part, tape, x, y = weft.run_ranks(1, on_rank)[0]
    assert y.numpy().tolist() == [1]
    for use in (comm.size, part.size, lambda: len(tape)):
        with pytest.warns(RuntimeWarning, match="uninitialized"), pytest.raises(TypeError):
            use()
    with pytest.raises(ValueError, match="tape"):
        ops.exp(x)


def test_ranks_are_threads_that_wait_beside_each_other():
    entered = []

    def on_rank(comm):
        if comm.rank() == 0:
            time.sleep(0.2)  # the others wait in a collective, without the interpreter's lock
        entered.append(threading.get_ident())
        comm.barrier()
        assert len(entered) == 3
    weft.run_ranks(3, on_rank)
    assert len(set(entered)) == 3
