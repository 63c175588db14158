# SPDX-License-Identifier: Apache-2.0
"""Collectives from Python, each against NumPy and its adjoint; conversions, messages and groups."""
import numpy as np
import pytest
import weft
from weft import collectives, ops

from public_names import public_names
from shards import all_ranks, drawn, parts, uneven

# Collectives: of rank r's x (3 W, 2), W = ranks. What each gives, by NumPy, of all ranks' x.

def blocks(x, ranks):
    return np.split(x, ranks)


verbs = {
    "all_reduce": (lambda x, c: collectives.all_reduce(x, c), lambda xs, r: sum(xs)),
    "all_gather": (lambda x, c: collectives.all_gather(x, c), lambda xs, r: np.concatenate(xs)),
    "reduce_scatter": (lambda x, c: collectives.reduce_scatter(x, c), lambda xs, r: blocks(sum(xs), len(xs))[r]),
    "broadcast": (lambda x, c: collectives.broadcast(x, 0, c), lambda xs, r: xs[0]),
    "reduce": (lambda x, c: collectives.reduce(x, c.size() - 1, c), lambda xs, r: sum(xs) * (r == len(xs) - 1)),
    "gather": (lambda x, c: collectives.gather(x, 0, c), lambda xs, r: np.concatenate(xs) if r == 0 else xs[0][:0]),
    "scatter": (lambda x, c: collectives.scatter(x, 0, c), lambda xs, r: blocks(xs[0], len(xs))[r]),
    "all_to_all": (lambda x, c: collectives.all_to_all(x, c), lambda xs, r: np.concatenate([blocks(x, len(xs))[r] for x in xs])),
    "shift": (lambda x, c: collectives.shift(x, 1, c), lambda xs, r: xs[r - 1]),
    "permute": (lambda x, c: collectives.permute(x, [0] * c.size(), c), lambda xs, r: xs[0]),
    "scan": (lambda x, c: collectives.scan(x, c), lambda xs, r: sum(xs[:r + 1])),
    "exscan": (lambda x, c: collectives.exscan(x, c), lambda xs, r: sum(xs[:r]) + 0 * xs[0]),
    "all_reduce_norm": (lambda x, c: collectives.all_reduce_norm(x, c), lambda xs, r: np.linalg.norm(np.stack(xs), axis=0)),
    "all_reduce_log_sum_exp": (lambda x, c: collectives.all_reduce_log_sum_exp(x, c), lambda xs, r: np.log(sum(map(np.exp, xs)))),
    "weighted_mean": (lambda x, c: collectives.weighted_mean(x, np.array(c.rank() + 1.0), c),
                      lambda xs, r: sum((i + 1) * x for i, x in enumerate(xs)) / sum(range(1, len(xs) + 1))),
}
# With counts of rows, which are those of `uneven`.
uneven_verbs = {
    "all_gather_v": (lambda x, rows, c: collectives.all_gather_v(x, rows, c), "own", lambda xs, rows, r: np.concatenate(xs)),
    "gather_v": (lambda x, rows, c: collectives.gather_v(x, rows, 0, c), "own", lambda xs, rows, r: np.concatenate(xs) if r == 0 else xs[0][:0]),
    "reduce_scatter_v": (lambda x, rows, c: collectives.reduce_scatter_v(x, rows, c), "all", lambda xs, rows, r: parts(sum(xs), rows)[r]),
    "scatter_v": (lambda x, rows, c: collectives.scatter_v(x, rows, 0, c), "all", lambda xs, rows, r: parts(xs[0], rows)[r]),
    "all_to_all_v": (lambda x, rows, c: collectives.all_to_all_v(x, [rows] * c.size(), c), "all",
                     lambda xs, rows, r: np.concatenate([parts(x, rows)[r] for x in xs])),
    "all_gather_equal": (lambda x, rows, c: collectives.all_gather_equal(x, rows, c), "own", lambda xs, rows, r: np.concatenate(xs)),
    "padded_rows": (lambda x, rows, c: collectives.padded_rows(x, rows, c), "own",
                    lambda xs, rows, r: np.concatenate([x * (i == r) for i, x in enumerate(xs)])),
}
elsewhere = {"send", "receive", "share", "sum_over_ranks", "declare_group", "placement_of", "with_placement", "vary", "all_reduce_equal", "own_rows",
             "keep_on", "as_invariant", "as_partial", "as_varying", "as_replicated"}


def test_every_collective_is_called():
    assert set(verbs) | set(uneven_verbs) | elsewhere == public_names(collectives) - {"Communicator"}


def along_and_back(call, inputs):
    """On all ranks: the result, and, for a cotangent of each, the input's gradient and how the objective moves along a direction."""
    def on_rank(comm):
        me, x = comm.rank(), inputs[comm.rank()]
        direction = drawn(*x.shape, seed=100 + me)
        tape = weft.Tape()
        leaf = tape.watch(x)
        result = call(leaf, comm)
        seed = drawn(*result.shape, seed=200 + me)
        (gradient,) = tape.gradient(result, [leaf], seed=seed)
        moved = [call(tape.constant(x + step * direction), comm).numpy() for step in (-1e-6, 1e-6)]
        return result.numpy(), np.sum(gradient.numpy() * direction), np.sum((moved[1] - moved[0]) * seed) / 2e-6
    return zip(*weft.run_ranks(len(inputs), on_rank))


@all_ranks
@pytest.mark.parametrize("name", verbs)
def test_collectives(name, ranks):
    call, expected = verbs[name]
    inputs = [drawn(3 * ranks, 2, seed=r) for r in range(ranks)]
    results, gradients, differences = along_and_back(call, inputs)
    for r, result in enumerate(results):
        assert result == pytest.approx(expected(inputs, r), abs=1e-12)
    assert sum(gradients) == pytest.approx(sum(differences), abs=1e-7)


@all_ranks
@pytest.mark.parametrize("name", uneven_verbs)
def test_collectives_of_uneven_rows(name, ranks):
    call, rows_of, expected = uneven_verbs[name]
    rows = uneven(11, ranks)
    inputs = [drawn(rows[r] if rows_of == "own" else 11, 2, seed=r) for r in range(ranks)]
    results, gradients, differences = along_and_back(lambda x, comm: call(x, rows, comm), inputs)
    for r, result in enumerate(results):
        assert result == pytest.approx(expected(inputs, rows, r), abs=1e-12)
    if name not in ("all_gather_equal", "padded_rows"):  # whose cotangents have to be equal on all ranks
        assert sum(gradients) == pytest.approx(sum(differences), abs=1e-7)


@all_ranks
def test_conversions_and_shares(ranks):
    """Tensor parallelism by conversions: w (6, 2) divided by rows, x equal, and a penalty that counts once."""
    rows = uneven(6, ranks)
    x, w = drawn(4, 6), drawn(6, 2)

    def on_rank(comm):
        tape = weft.Tape()
        columns = collectives.own_rows(ops.transpose(ops.replicated_constant(x)), rows, comm)
        own = tape.watch(parts(w, rows)[comm.rank()])
        whole = collectives.all_reduce_equal(ops.matmul(columns, own, transpose_a=True), comm)
        assert collectives.placement_of(whole, comm) == "invariant"
        loss = collectives.keep_on(ops.sum(ops.square(whole)), 0, comm)
        gradients = weft.Gradients()
        tape.backward(loss, gradients)
        return collectives.sum_over_ranks(loss.item(), comm), gradients[own].numpy()

    values, found = zip(*weft.run_ranks(ranks, on_rank))
    assert values == pytest.approx([np.sum((x @ w) ** 2)] * ranks)
    assert np.concatenate(found) == pytest.approx(2 * x.T @ x @ w)


def test_messages():
    def on_rank(comm):
        tape = weft.Tape()
        if comm.rank() == 0:
            x = tape.watch([1.0, 2.0])
            (gradient,) = tape.gradient(collectives.send(x, 1, comm), [x], seed=np.zeros(0))
            return gradient.numpy().tolist()
        y = collectives.receive(tape, (2,), "f64", 0, comm)
        tape.backward(ops.sum(ops.square(y)), weft.Gradients())
    assert weft.run_ranks(2, on_rank)[0] == [2, 4]


def test_groups():
    def on_rank(comm):
        pairs = comm.split(comm.rank() // 2)
        assert comm.split(-1 if comm.rank() else 0) is None or comm.rank() == 0
        return pairs.size(), pairs.all_reduce(weft.Tensor([comm.rank() + 1])).item()
    assert weft.run_ranks(5, on_rank) == [(2, 3), (2, 3), (2, 7), (2, 7), (1, 5)]
