# SPDX-License-Identifier: Apache-2.0
"""The engine from Python: what the bindings do beside calling Weft, and that every op, collective, loss and quantizer arrives."""
import ast
import pathlib

import numpy as np
import pytest
import weft
from weft import collectives, losses, ops, quantizers

from public_names import public_names
from shards import drawn


def functions_of(module):
    return {name for name in public_names(module) if not isinstance(getattr(module, name), type)}


# Arrays

@pytest.mark.parametrize("kind, dtype", [("float32", "f32"), ("float64", "f64"), ("int64", "i64"), ("uint8", "u8"), ("bool", "u8"),
                                         ("int32", "i64"), ("float16", "f32")])
def test_arrays_come_and_go(kind, dtype):
    given = (drawn(3, 4) * 9).astype(kind)
    for array in (given, given[::2, ::-1], given.T, given[:0], given[0, 0]):
        tensor = weft.Tensor(array)
        assert tensor.dtype == dtype and tensor.shape == array.shape
        assert np.array_equal(tensor.numpy(), array) and np.array_equal(np.from_dlpack(tensor), array)


def test_a_tensor_is_a_copy_and_its_array_is_not():
    given = np.ones(3)
    tensor = weft.Tensor(given)
    given[0] = 5
    assert tensor.numpy()[0] == 1
    view = tensor.numpy()
    del tensor
    assert view.sum() == 3
    with pytest.raises(ValueError):
        view[0] = 5


def test_lists_and_what_is_no_tensor():
    assert weft.Tensor([[1, 2], [3, 4]]).dtype == "i64" and weft.Tensor(2.5).shape == ()
    assert weft.Tensor([1, 2.5, 3], "bf16").dtype == "bf16" and weft.Tensor([1 + 2**-9], "bf16").numpy()[0] == 1
    for wrong in ("text", [[1], [2, 3]], object(), np.array([1j])):
        with pytest.raises((TypeError, ValueError)):
            weft.Tensor(wrong)
    with pytest.raises(ValueError, match="matmul: inner extents differ"):
        ops.matmul(drawn(2, 3), drawn(2, 3))


def test_torch():
    torch = pytest.importorskip("torch")
    leaf = torch.tensor([1.0, 2.5], requires_grad=True)
    assert weft.Tensor(leaf).numpy().tolist() == [1, 2.5]
    assert weft.Tensor(leaf.detach().to(torch.bfloat16)).dtype == "bf16"
    assert torch.equal(torch.from_dlpack(weft.Tensor([1.0, 2.5], "bf16")), torch.tensor([1.0, 2.5], dtype=torch.bfloat16))


# Ops: each, with inputs away from kinks. Gradients are those of differences.

positive = dict(low=0.5, high=2)
x, y, v = drawn(3, 4), drawn(3, 4, seed=1), drawn(4, seed=2)
distinct = np.random.default_rng(3).permutation(12).reshape(3, 4) / 6 - 0.9
picture, kernel = drawn(2, 5, 5, 3), drawn(3, 3, 3, 2)
rows = np.array([2, 0, 2])
columns = np.array([[1, 0, 2, 2], [2, 1, 0, 0]])

unary = ["neg", "abs", "exp", "expm1", "sin", "cos", "tanh", "sigmoid", "relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "softplus", "square",
         "round", "flatten", "transpose", "softmax", "log_softmax", "l2_normalize", "standardize", "log_sum_exp", "norm", "sum", "mean", "prod"]
calls = {
    **{name: [(getattr(ops, name), [x + 0.05])] for name in unary},
    **{name: [(getattr(ops, name), [drawn(3, 4, **positive)])] for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal")},
    **{name: [(getattr(ops, name), [distinct]), (lambda a, f=getattr(ops, name): f(a, 1), [distinct])] for name in ("max", "min")},
    **{name: [(getattr(ops, name), [distinct, y])] for name in ("maximum", "minimum")},
    **{name: [(lambda a, b, f=getattr(ops, name): f(a, b, -1), [x, v + 2])] for name in ("add_along", "sub_along", "mul_along", "div_along")},
    "pow": [(lambda a: ops.pow(a, 1.7), [drawn(3, 4, **positive)]), (ops.pow, [drawn(3, 4, **positive), y])],
    "clamp": [(lambda a: ops.clamp(a, -0.5, 0.5), [distinct])],
    "affine": [(lambda a: ops.affine(a, 2, 3), [x])],
    "where": [(lambda a, b: ops.where((x > 0).astype("uint8"), a, b), [x, y])],
    "cast": [(lambda a: ops.cast(a, "f64"), [x])],
    "matmul": [(ops.matmul, [x, drawn(4, 2)]), (lambda a, b: ops.matmul(a, b, transpose_b=True), [x, y])],
    "linear": [(lambda a, w, b: ops.linear(a, w, b, activation="tanh"), [x, drawn(4, 2), drawn(2)])],
    "pairwise_squared_distance": [(ops.pairwise_squared_distance, [x, drawn(2, 4)])],
    "sum_outside": [(lambda a: ops.sum_outside(a, 1), [x])],
    "repeat": [(lambda a: ops.repeat(a, 1, 3), [x])],
    "variance": [(lambda a: ops.variance(a, 1, 1), [x])],
    "cumulative_sum": [(lambda a: ops.cumulative_sum(a, 0, reverse=True), [x])],
    "top_k": [(lambda a: ops.top_k(a, 2).values, [distinct])],
    "sort": [(lambda a: ops.sort(a, descending=True).values, [distinct])],
    "reshape": [(lambda a: ops.reshape(a, (2, 6)), [x])],
    "slice": [(lambda a: ops.slice(a, 1, 1, 3), [x])],
    "pad": [(lambda a: ops.pad(a, 0, 1, 2), [x])],
    "concat": [(lambda a, b: ops.concat([a, b], 0), [x, y])],
    "stack": [(lambda a, b: ops.stack([a, b], 1), [x, y])],
    "permute": [(lambda a: ops.permute(a, (2, 0, 1)), [drawn(2, 3, 4)])],
    "swap_axes": [(lambda a: ops.swap_axes(a, 0, 2), [drawn(2, 3, 4)])],
    "flip": [(lambda a: ops.flip(a, 1), [x])],
    "gather_rows": [(lambda a: ops.gather_rows(a, rows), [x])],
    "embedding": [(lambda a: ops.embedding(a, rows), [x])],
    "scatter_add_rows": [(lambda a: ops.scatter_add_rows(a, rows, 4), [x])],
    "take_along": [(lambda a: ops.take_along(a, columns, 0), [x])],
    "put_along": [(lambda a: ops.put_along(a, columns, 0, 4), [x[:2]])],
    "layer_norm": [(ops.layer_norm, [x, v, drawn(4, seed=3)])],
    "cross_entropy": [(lambda a: ops.cross_entropy(a, rows), [x])],
    "conv2d": [(lambda a, w, b: ops.conv2d(a, w, b, ops.Sliding(stride=2, padding=(1, 1))), [picture, kernel, drawn(2)])],
    "conv_transpose2d": [(lambda a, w: ops.conv_transpose2d(a, w, sliding=ops.SlidingBack(stride=(2, 1))), [drawn(1, 3, 3, 2), kernel])],
    "unfold": [(lambda a: ops.unfold(a, (2, 3)), [picture])],
    "fold": [(lambda a: ops.fold(a, (3, 3), 2), [drawn(1, 2, 2, 4, 3)])],
    "max_pool2d": [(lambda a: ops.max_pool2d(a, 2), [np.random.default_rng(4).permutation(150).reshape(2, 5, 5, 3) / 9.0])],
    "average_pool2d": [(lambda a: ops.average_pool2d(a, 2, ops.Sliding(stride=1)), [picture])],
    "upsample_nearest": [(lambda a: ops.upsample_nearest(a, 2), [picture])],
    "score_log_sum_exp": [(lambda q, k, s: ops.score_log_sum_exp(q, k, s, targets=np.array([1, 0, -1])), [x, drawn(2, 4), np.array(1.5)])],
    "score_log_sum_exp_both": [(ops.score_log_sum_exp_both, [x, drawn(2, 4), np.array(1.5)])],
    "score_softplus_sum": [(ops.score_softplus_sum, [x, drawn(2, 4), np.array(1.5), np.array(-0.5)])],
    "dropout": [(lambda a: ops.dropout(a, 0.5, weft.Random(3)), [x])],
}
without_gradient = {"argmax", "argmin", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "nearest_rows", "one_hot",
                    "detach", "constant_like", "replicated_constant", "straight_through"}


def test_every_op_is_called():
    assert set(calls) | without_gradient == functions_of(ops)


@pytest.mark.parametrize("name, function, inputs", [(name, *call) for name, of in calls.items() for call in of])
def test_gradients_are_those_of_differences(name, function, inputs):
    tape = weft.Tape()
    leaves = [tape.watch(a) for a in inputs]
    result = function(*leaves)
    seed = drawn(*result.shape, seed=9)
    gradients = tape.gradient(result, leaves, seed=seed)
    for i, (a, gradient) in enumerate(zip(inputs, gradients)):
        along = drawn(*np.shape(a), seed=i + 20)
        at = [function(*inputs[:i], np.asarray(a + step * along), *inputs[i + 1:]).numpy() for step in (-1e-6, 1e-6)]
        assert np.sum(gradient.numpy() * along) == pytest.approx(np.sum((at[1] - at[0]) * seed) / 2e-6, rel=1e-6, abs=1e-8)


def test_ops_without_a_gradient():
    assert ops.argmax(distinct, 1).numpy().tolist() == np.argmax(distinct, 1).tolist()
    assert np.array_equal(ops.less(x, y).numpy(), x < y) and np.array_equal(ops.greater_equal(x, y).numpy(), x >= y)
    assert ops.one_hot(rows, 3, "f64").numpy().tolist() == np.eye(3)[rows].tolist()
    assert ops.nearest_rows(x, x[::-1].copy()).numpy().tolist() == [2, 1, 0]
    tape = weft.Tape()
    leaf = tape.watch(x)
    (passed,) = tape.gradient(ops.sum(ops.straight_through(ops.round(leaf), leaf)) + ops.sum(ops.detach(leaf)), [leaf])
    assert passed.numpy().tolist() == np.ones_like(x).tolist()


def test_options_arrive():
    w, b = drawn(4, 2), drawn(2)
    assert ops.linear(x, w, b, activation="tanh").numpy() == pytest.approx(np.tanh(x @ w + b))
    assert ops.matmul(x, y, transpose_b=True).numpy() == pytest.approx(x @ y.T)
    assert ops.max_pool2d(picture, (2, 1), ops.Sliding(stride=(3, 2))).shape == (2, 2, 3, 3)


def test_operators_take_numbers_on_both_sides():
    tape = weft.Tape()
    a = tape.watch(np.array([2.0, 3.0]))
    assert (1 - a / 2 + 3 / a - (-a) * a**2).numpy() == pytest.approx([1 - 1 + 1.5 + 8, 1 - 1.5 + 1 + 27])
    assert (np.array([1.0, 1.0]) + a).numpy().tolist() == [3, 4] and (np.float64(2) * a * np.float64(2)).numpy().tolist() == [8, 12]


# Tapes

def test_gradients_add_up_and_hooks_fire():
    weight, told, gradients = weft.Parameter("weight", [1.0, 2.0]), [], weft.Gradients()
    handle = gradients.after_accumulate(lambda parameter, total: told.append((parameter.name, total.numpy().tolist())))
    assert weight not in gradients and gradients[weight] is None
    for factor in (1.0, 10.0):
        tape = weft.Tape()
        tape.backward(ops.sum(tape.watch(weight) * factor), gradients)
    handle.remove()
    tape = weft.Tape()
    tape.backward(ops.sum(tape.watch(weight)), gradients)
    assert told == [("weight", [1, 1]), ("weight", [11, 11])] and gradients[weight].numpy().tolist() == [12, 12]


def test_a_changed_value_is_noticed():
    weight, tape = weft.Parameter("weight", [1.0, 2.0]), weft.Tape()
    loss = ops.sum(ops.square(tape.watch(weight)))
    weight.value = [5.0, 6.0]
    with pytest.raises(ValueError, match="changed"):
        tape.backward(loss, weft.Gradients())


def test_second_order_and_checkpoints():
    tape = weft.Tape()
    a = tape.watch(np.array([1.0, 2.0]))
    (first,) = tape.gradient(ops.sum(a**3), [a], create=True)
    assert tape.gradient(ops.sum(first), [a])[0].numpy() == pytest.approx([6, 12])
    again = weft.Gradients()
    tape.backward(ops.sum(weft.checkpoint(lambda given: ops.exp(given[0]) * given[0], [a])), again)
    assert again[a].numpy() == pytest.approx(np.exp([1, 2]) * [2, 3])


def test_an_op_of_ones_own():
    def cube(a):
        return weft.record("cube", ops.pow(a.value, 3.0).value, [a], [lambda g: g * 3.0 * a * a])
    tape = weft.Tape()
    a = tape.watch(np.array([1.0, 2.0]))
    (first,) = tape.gradient(ops.sum(cube(a)), [a], create=True)
    assert first.numpy().tolist() == [3, 12] and tape.gradient(ops.sum(first), [a])[0].numpy().tolist() == [6, 12]
    assert "cube(0)" in str(tape)
    for pullback, error in ((lambda g: 1 / 0, ZeroDivisionError), (lambda g: ops.flatten(g, 0) * g.numpy()[:1], ValueError)):
        with pytest.raises(error):
            tape.gradient(weft.record("wrong", a.value, [a], [pullback]), [a], seed=np.ones(2))
    with pytest.raises(ValueError, match="2 pullbacks of 1 inputs"):
        weft.record("wrong", a.value, [a], [lambda g: g] * 2)


def test_an_error_within_a_hook_is_raised():
    def hook(parameter, total):
        raise KeyError("mine")
    gradients, weight, tape = weft.Gradients(), weft.Parameter("weight", [1.0]), weft.Tape()
    gradients.after_accumulate(hook)
    with pytest.raises(KeyError, match="mine"):
        tape.backward(ops.sum(tape.watch(weight)), gradients)


def test_a_tape_can_be_printed():
    tape = weft.Tape()
    a = tape.watch([1.0, 2.0])
    tape.backward(ops.sum(ops.square(a)), weft.Gradients(), keep=True)
    assert len(tape) == 3 and "square(0)" in str(tape) and "[2, 4]" in str(tape)


# Names, types and comments

def test_stubs_have_every_name():
    folder = pathlib.Path(weft._weft.__file__).parent / "_weft"
    for module in (ops, collectives, losses, quantizers):
        stub = ast.parse((folder / (module.__name__.split(".")[-1] + ".pyi")).read_text())
        declared = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        assert declared == public_names(module)


def test_losses_and_quantizers_have_their_formulas():
    for module in (losses, quantizers):
        for name in public_names(module):
            assert name in ("Quantized", "QuantizerDropout") or len(getattr(module, name).__doc__) > 100, name
