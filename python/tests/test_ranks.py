# SPDX-License-Identifier: Apache-2.0
"""Ranks from Python: each collective against NumPy and its adjoint, each loss and quantizer on many ranks against one."""
import threading
import time

import numpy as np
import pytest
import weft
from weft import collectives, losses, ops, quantizers

from public_names import public_names

all_ranks = pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape)


def uneven(total, ranks):
    """How many of the samples each rank has: all of them different, and none on the last of five and more."""
    counts = [total * (r + 1) // (ranks * (ranks + 1) // 2) for r in range(ranks)]
    if ranks >= 5:
        counts[-1] = 0
    counts[0] += total - sum(counts)
    return counts


def parts(array, counts):
    return np.split(array, np.cumsum(counts)[:-1])


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


# Losses: shares add up to the loss of one process, and so do gradients.

labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1])
scale, bias = np.array(3.0), np.array(-1.0)
pair = [drawn(11, 6), drawn(11, 6, seed=1)]
of_losses = {
    "clip_loss": (lambda a, b, n, c: losses.clip_loss(a, b, scale, c, form="local_rows"), pair),
    "siglip_loss": (lambda a, b, n, c: losses.siglip_loss(a, b, scale, bias, "ring", c), pair),
    "nt_xent": (lambda a, b, n, c: losses.nt_xent(a, b, c, temperature=0.3, schedule=("chunked", 2)), pair),
    "dcl": (lambda a, b, n, c: losses.dcl(a, b, c, weights="of_batch"), pair),
    "info_nce": (lambda a, b, n, c: losses.info_nce(a, b, c, symmetric=True), pair),
    "supcon": (lambda a, n, c: losses.supcon(a, labels[n], 3, c), pair[:1]),
    "barlow_twins": (lambda a, b, n, c: losses.barlow_twins(a, b, c, lambda_=0.01), pair),
    "vicreg": (lambda a, b, n, c: losses.vicreg(a, b, c), pair),
    "koleo": (lambda a, n, c: losses.koleo(a, c, neighbours=2), pair[:1]),
    "sigreg": (lambda a, n, c: losses.sigreg(a, 7, c, directions=16), pair[:1]),
    "lejepa": (lambda a, b, n, c: losses.lejepa(a, b, 7, c, directions=16), [drawn(11, 2, 6), drawn(11, 3, 6)]),
    "msn": (lambda a, b, n, c: losses.msn([a], b, drawn(4, 6), c, power_law=0.5), pair),
    "swav": (lambda a, b, n, c: losses.swav([a, b], [], c, iterations=2), pair),
    "cross_entropy": (lambda a, n, c: losses.cross_entropy(a, labels[n], c, label_smoothing=0.1), pair[:1]),
}
# The same on all ranks.
of_metrics = {
    "mean_squared_error": losses.mean_squared_error, "root_mean_squared_error": losses.root_mean_squared_error,
    "pearson_correlation": losses.pearson_correlation, "r2_score": losses.r2_score, "explained_variance": losses.explained_variance,
    "cosine_similarity": lambda a, b, c: losses.cosine_similarity(a, b, "mean", c),
    "structural_similarity": lambda a, b, c: losses.structural_similarity(a, b, c, sigma=0.5, places="everywhere"),
}
of_losses |= {name: (lambda a, b, n, c, f=f: collectives.keep_on(ops.mean(f(a, b, c)), 0, c),
                     [drawn(11, 5, 5, 2), drawn(11, 5, 5, 2, seed=1)] if name == "structural_similarity" else pair) for name, f in of_metrics.items()}


def test_every_loss_is_called():
    assert set(of_losses) | {"sinkhorn", "Dino", "Tico", "MemoryBank"} == public_names(losses)


def loss_on(ranks, call, inputs):
    counts = uneven(11, ranks)
    numbers = parts(np.arange(11), counts)

    def on_rank(comm):
        tape, mine = weft.Tape(), numbers[comm.rank()]
        leaves = [tape.watch(each[mine]) for each in inputs]
        loss, gradients = call(*leaves, mine, comm), weft.Gradients()
        tape.backward(loss, gradients)
        return loss.item(), [gradients[leaf].numpy() for leaf in leaves if leaf in gradients]
    values, found = zip(*weft.run_ranks(ranks, on_rank))
    return sum(values), [np.concatenate(each) for each in zip(*found)]


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("name", of_losses)
def test_losses(name, ranks):
    call, inputs = of_losses[name]
    (value, gradients), (truth, expected) = loss_on(ranks, call, inputs), loss_on(1, call, inputs)
    assert value == pytest.approx(truth, rel=1e-12) and any(np.abs(each).max() > 0 for each in expected)
    for mine, other in zip(gradients, expected):
        assert mine == pytest.approx(other, rel=1e-10, abs=1e-13)


def test_sinkhorn():
    def on_rank(comm):
        return losses.sinkhorn([np.asarray(parts(pair[0], [4, 0, 7])[comm.rank()])], 3, comm)[0].numpy()
    (whole,) = weft.run_ranks(1, lambda comm: losses.sinkhorn([pair[0]], 3, comm)[0].numpy())
    assert np.concatenate(weft.run_ranks(3, on_rank)) == pytest.approx(whole)


# Objects with a state: the same after two steps on many ranks as on one.

def vector_quantize():
    return quantizers.VectorQuantize("vq", weft.Init(5, "f64"), dim=6, codes=8, dead_below=0.1)


of_quantizers = {
    "VectorQuantize": vector_quantize,
    "SimVq": lambda: quantizers.SimVq("sim", weft.Init(5, "f64"), dim=6, codes=8),
    "FiniteScalar": lambda: quantizers.FiniteScalar([3, 4, 5, 3, 4, 5], "f64", preserve_symmetry=True),
    "LookupFree": lambda: quantizers.LookupFree(bits=6, groups=2, inverse_temperature=2.0, dtype="f64"),
    "BinarySpherical": lambda: quantizers.BinarySpherical(bits=6, temperature=2.0, dtype="f64"),
    "ResidualFiniteScalar": lambda: quantizers.ResidualFiniteScalar([4] * 6, 2, dtype="f64"),
    "ResidualQuantizer": lambda: quantizers.ResidualQuantizer([vector_quantize(), vector_quantize()]),
    "GroupedResidual": lambda: quantizers.GroupedResidual(
        [[quantizers.FiniteScalar([4] * 3, "f64")], [quantizers.LookupFree(bits=3, inverse_temperature=2.0, dtype="f64")]]),
}


def test_every_quantizer_is_called():
    assert set(of_quantizers) | {"Codebook", "Quantized", "Quantizer", "QuantizerDropout"} == public_names(quantizers)


def quantized_on(ranks, make):
    counts = uneven(11, ranks)

    def on_rank(comm):
        quantizer, losses_of_steps = make(), []
        first = sum(counts[:comm.rank()])
        for step in range(2):
            tape, gradients = weft.Tape(), weft.Gradients()
            x = tape.watch(parts(drawn(11, 6, seed=step), counts)[comm.rank()])
            out = quantizer(x, weft.Pass(training=True, key=step, first_sample=first), comm)
            tape.backward(out.loss + collectives.as_partial(ops.sum(out.values * drawn(*x.shape)[0, 0] if x.size else out.values), comm), gradients)
            quantizer.update(comm, 17 + step)
            losses_of_steps.append(collectives.sum_over_ranks(out.loss.item(), comm))
        decoded = quantizer.decode(out.indices.value).numpy()
        return out.indices.numpy(), decoded, losses_of_steps, [each.value.numpy() for each in quantizer.buffers()]
    return weft.run_ranks(ranks, on_rank)


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("name", of_quantizers)
def test_quantizers(name, ranks):
    found, (whole,) = quantized_on(ranks, of_quantizers[name]), quantized_on(1, of_quantizers[name])
    assert np.array_equal(np.concatenate([each[0] for each in found]), whole[0])
    assert np.concatenate([each[1] for each in found]) == pytest.approx(whole[1])
    for _, _, of_steps, buffers in found:
        assert of_steps == pytest.approx(whole[2])
        for mine, other in zip(buffers, whole[3]):
            assert mine == pytest.approx(other)


@pytest.mark.parametrize("make", [
    lambda: (losses.Tico("tico", 6, weft.Init(1, "f64")), lambda o, a, b, c: o(a, b, weft.Pass(training=True), c), lambda o, c: o.update(), "covariance"),
    lambda: (losses.Dino("dino", 6, weft.Init(1, "f64"), center_momentum=0.5), lambda o, a, b, c: o([a], [a, b], weft.Pass(training=True), c),
             lambda o, c: o.update(c), "center")])
def test_losses_with_a_state(make):
    def on(ranks):
        counts = uneven(11, ranks)

        def on_rank(comm):
            loss, call, update, state = make()
            total = []
            for step in range(2):
                tape = weft.Tape()
                mine = [tape.watch(parts(each, counts)[comm.rank()]) for each in (drawn(11, 6, seed=step), drawn(11, 6, seed=step + 5))]
                total.append(collectives.sum_over_ranks(call(loss, *mine, comm).item(), comm))
                update(loss, comm)
            return total, getattr(loss, state).value.numpy()
        return weft.run_ranks(ranks, on_rank)
    (whole,) = on(1)
    for total, state in on(3):
        assert total == pytest.approx(whole[0]) and state == pytest.approx(whole[1])


def test_a_memory_bank_has_the_keys_of_all_ranks():
    def on_rank(comm):
        bank = losses.MemoryBank("bank", 4, 2, weft.Init(1, "f64"))
        bank.push(np.full((1 + comm.rank(), 2), [1.0, comm.rank()]), comm)
        return bank.negatives().numpy()
    first, second = weft.run_ranks(2, on_rank)
    assert np.array_equal(first, second) and first[:3] == pytest.approx(np.array([[1, 0], [0.5**0.5, 0.5**0.5], [0.5**0.5, 0.5**0.5]]))


# Ranks

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
    x = pair[0]
    with pytest.raises(weft.Fault, match=r"rank 0 is in .*all_gather f64 \(.*\) at test_ranks.py:\d+"):
        weft.run_ranks(2, on_rank)


def test_options_arrive():
    def with_schedule(comm):
        losses.nt_xent(*pair, comm, schedule="ring" if comm.rank() else ("chunked", 2))
    with pytest.raises(weft.Fault, match="(?s)chunks of 2.*ring"):
        weft.run_ranks(2, with_schedule)

    def diversity(groups):
        quantizer = quantizers.BinarySpherical(bits=6, groups=groups, temperature=2.0, dtype="f64")
        return weft.run_ranks(1, lambda comm: quantizer(pair[0], weft.Pass(training=True), comm).loss.item())[0]
    assert diversity(6) == diversity(None) != diversity(2)
    (indices,) = weft.run_ranks(1, lambda comm: vector_quantize()(pair[0], weft.Pass(), comm, mask=(np.arange(11) % 2).astype("uint8")).indices.numpy())
    assert np.array_equal(indices == -1, np.arange(11) % 2 == 0)
    with pytest.raises(TypeError, match="'gather', 'ring'"):
        weft.run_ranks(1, lambda comm: losses.nt_xent(*pair, comm, schedule="rign"))


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
