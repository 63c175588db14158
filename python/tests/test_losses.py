# SPDX-License-Identifier: Apache-2.0
"""Each loss and quantizer from Python, on many ranks against one."""
import numpy as np
import pytest
import weft
from weft import collectives, losses, ops, quantizers

from public_names import public_names
from shards import drawn, parts, uneven

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
