# SPDX-License-Identifier: Apache-2.0
"""weft.torch: steps of PyTorch on processes that it starts, and in a job that runs already; right, and with mistakes."""
import importlib
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import weft
import weft.torch
from weft.torch.comparison import row_of, squares_of
from weft.torch.ranks import on_ranks

import planted_steps as planted

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "examples"))
pytest_plugins = ["pytester"]
kinds = [torch.float32, torch.float64, torch.bfloat16]


def run(step, kind=torch.float32, seed=0, ranks=3, **options):
    options |= {"truth": planted.loss_of_all} if "micro_batch" in step.__name__ else {}
    return weft.torch.run(step, planted.model_of(kind), planted.batch(seed, kind), ranks=ranks, seed=seed, **options)


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("step", planted.right_steps)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_right_steps(step, kind, ranks):
    found = run(step, kind, seed=ranks, ranks=ranks)
    assert found and found.cause is None, str(found)


def test_a_step_that_computes_in_a_coarser_type():
    """Its rounding is that of this type, whatever the type of its weights."""
    def step(model, batch, factor=1):
        inputs, targets = batch
        scores = (model(inputs) * planted.ranks()).float() / planted.ranks()  # which rounds otherwise than on one process
        loss = torch.nn.functional.cross_entropy(scores, targets.float().softmax(1), reduction="sum")
        (factor * loss / planted.count_of_all(len(inputs))).backward()
        planted.reduce(planted.all_of(model), by=1)
    found = run(step, torch.float64)
    assert found, str(found)
    assert run(lambda model, batch: step(model, batch, 1.00001 if planted.ranks() > 1 else 1), torch.float64).wrong


@pytest.mark.parametrize("kind", kinds)
@pytest.mark.parametrize("step, said", planted.wrong_steps)
def test_planted_mistakes(step, said, kind):
    found = run(step, kind)
    assert found.wrong
    # In bf16 what two explanations differ by may be less than rounding; being found is what is asked of it.
    assert kind == torch.bfloat16 or str(found.cause).startswith(said), str(found)
    with pytest.raises(weft.WrongGradient, match="parameters: wrong"):
        found.raise_if_wrong()


def in_a_job(example, step, whole=None, **options):
    from weft.torch.batches import divided
    shares = divided(example.batch, 3, False)

    def on_rank(rank):
        torch.manual_seed(0)
        found = weft.torch.check(example.model(), step, shares[rank], whole=whole, **options)
        return found.correct, str(found.cause), str(found)
    return on_ranks(on_rank, 3)


def test_inside_a_job():
    example = importlib.import_module("contrastive")
    assert all(correct for correct, _, _ in in_a_job(example, example.step))
    assert all(cause.startswith("S3") for _, cause, _ in in_a_job(example, example.wrong))


def test_what_a_job_has_kept_is_judged_alike(tmp_path):
    example = importlib.import_module("contrastive")
    lost = lambda model, batch: example.loss(model, batch, without_gradient)
    for step in example.step, example.wrong, lost:
        (correct, cause, text), *_ = in_a_job(example, step, dump=tmp_path, truth=example.step)
        found = weft.verify(tmp_path)
        assert found.correct == correct and str(found.cause) == cause
        assert found.text.splitlines()[:3] == text.splitlines()[:3]
    assert cause.startswith("S1: no gradient through the gather (all_gather at test_torch.py:")


def test_inside_a_job_of_fsdp2():
    example = importlib.import_module("fsdp2")
    whole = lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    assert all(correct for correct, _, _ in in_a_job(example, example.step, whole))
    with pytest.raises(RuntimeError, match="divided among ranks: give whole="):
        in_a_job(example, example.step)


def test_a_step_inside_a_job_leaves_weights_as_they_are():
    example = importlib.import_module("ddp")

    def step(model, batch):
        example.step(model, batch).backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
    with pytest.raises(RuntimeError, match="changes the parameter .*: leave the optimizer out"):
        in_a_job(example, step)


def test_rows_of_small_and_broken_gradients():
    small = torch.tensor([[1e-12, -2e-12], [0, 3e-12]])
    row = row_of("weight", 0, 3 * small, small, [small * (1 + 2e-7)])
    assert row.wrong and row.cosine == pytest.approx(1) and row.ratio == pytest.approx(3) and row.worst_element == 3
    broken = small.clone()
    broken[0, 1] = float("nan")
    row = row_of("weight", 0, broken, small, [small + 2])
    assert row.wrong and row.worst_element == 1
    assert not row_of("weight", 0, small[:0], small[:0], [small[:0]]).wrong


def test_rounding_of_what_is_added_up_counts():
    """Of two large terms that cancel: their own rounding is more than the distance, that of the sum is less."""
    truth = torch.tensor([1.0, 2.0])
    found, terms = truth + 1e-4, [truth + 1e4, -1e4 * torch.ones(2)]
    assert row_of("weight", 0, found, truth, [truth]).wrong
    assert not row_of("weight", 0, found, truth, [truth], *squares_of(terms, truth.shape)).wrong
    assert terms[0][0] == 1e4 + 1  # these are used again


def test_what_is_refused():
    with pytest.raises(ValueError, match="too small for 3 parts"):
        weft.torch.run(planted.right, planted.model_of(torch.float32), planted.batch(0, torch.float32, rows=2))
    with pytest.raises(RuntimeError, match="return its loss, or call backward"):
        run(lambda model, batch: None)
    with pytest.raises(RuntimeError, match="rank . of 3 failed: KeyError"):
        run(lambda model, batch: batch["images"] if isinstance(batch, dict) else {}["images"])
    with pytest.raises(ValueError, match="one number of rows"):
        weft.torch.run(planted.right, planted.model_of(torch.float32), {"a": torch.ones(6, 2), "b": torch.ones(5)})


def test_counts_name_factors():
    found = run(planted.divided_by_local_world, counts=lambda batch: {"local world": 2})
    assert str(found.cause).endswith("ranks / local world)"), str(found)
    with pytest.raises(ValueError, match="equally many"):
        run(planted.right, counts={"tokens": [[1, 2], [3], [4, 5]]})


def test_the_fixture_takes_a_step(pytester):
    pytester.syspathinsert(__file__.rsplit("/", 1)[0])
    pytester.makepyfile("""
        import torch, planted_steps as planted
        given = {"model": planted.model_of(torch.float32), "batch": planted.batch(0, torch.float32)}
        alike = tuple(x[:1].expand(36, -1) for x in given["batch"])
        def test_right(distributed_gradients): distributed_gradients(planted.right, ranks=3, uneven=True, **given)
        def test_wrong(distributed_gradients): distributed_gradients(planted.sum_for_mean, ranks=3, **given)
        def test_blind(distributed_gradients): distributed_gradients(planted.right, uneven=False, **given | {"batch": alike})
    """)
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*S8: the reducer sums instead of averaging*"])
    result.stdout.fnmatch_lines(["*this test is blind to *S12*"])


def without_gradient(x):
    slots = [torch.empty_like(x) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(slots, x)
    return (*slots[:-1], slots[-1] + 0 * x.sum())  # x takes part, as DDP demands


def test_a_gather_that_loses_its_gradient_on_one_process_too():
    import contrastive

    def lost(model, batch):
        return contrastive.loss(model, batch, without_gradient)

    def logged(model, batch):
        loss = contrastive.step(model, batch)
        torch.distributed.all_reduce(loss.detach().clone())
        return loss
    found = weft.torch.run(lost, contrastive.model, contrastive.batch, uneven=False)
    assert found.outcome == "cannot tell" and not found
    assert "no gradient passes through allgather at test_torch.py:" in str(found)
    found = weft.torch.run(lost, contrastive.model, contrastive.batch, uneven=False, truth=contrastive.step)
    assert str(found.cause).startswith("S1: no gradient through the gather (all_gather at test_torch.py:"), str(found)
    assert weft.torch.run(logged, contrastive.model, contrastive.batch, uneven=False).correct
