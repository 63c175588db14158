# SPDX-License-Identifier: Apache-2.0
"""The package weft, as someone uses it who has installed it: gradients that NumPy computes, right and with a mistake."""
import json
import subprocess
import sys

import numpy
import pytest

import weft

pytest_plugins = ["pytester"]
width, scale = 5, 2.5


def softmax(scores):
    shifted = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def clip(factor=1.0, kind="float64", equal=False):
    """What each rank of a framework whose reducer averages has of CLIP's loss; the features' gradients times a factor.
    With data that are `equal` on all ranks, or different."""
    generator, rows = numpy.random.default_rng(5), (3, 3, 3) if equal else (3, 2, 4)
    images, texts = (generator.normal(size=(sum(rows), width)) for _ in range(2))
    if equal:
        images, texts = (numpy.tile(x[:3], (3, 1)) for x in (images, texts))
    images, texts = (x / numpy.linalg.norm(x, axis=1, keepdims=True) for x in (images, texts))
    products, one = images @ texts.T, numpy.eye(sum(rows))
    by_products = (softmax(scale * products) + softmax(scale * products.T).T - 2 * one) / (2 * sum(rows))
    dump, first = [], 0
    for count in rows:
        part = slice(first, first := first + count)
        tensors = {"images": images[part], "texts": texts[part],
                   "images.grad": len(rows) * factor * scale * (by_products @ texts)[part],
                   "texts.grad": len(rows) * factor * scale * (by_products.T @ images)[part],
                   "scale": scale, "scale.grad": (by_products * products).sum()}
        dump.append({name: numpy.asarray(x, kind) for name, x in tensors.items()})
    return dump


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_a_right_gradient(kind):
    found = weft.verify(clip(kind=kind), loss="clip", options={"normalize": 0})
    assert found and found.correct and not found.wrong and found.cause is None and found.ranks == 3
    assert found.raise_if_wrong() is found and "the loss 'clip': correct" in str(found)
    assert found.verdicts[0].factor_shown < 1e-5 and len(found.verdicts[0].table) == 7


@pytest.mark.parametrize("factor, signature", [(1 / 3, "S3"), (3, "S7"), (1.7, None)])
def test_a_wrong_gradient(factor, signature):
    found = weft.verify(clip(factor), loss="clip", options={"normalize": 0})
    assert found.wrong and not found and (found.cause and found.cause.signature) == signature
    with pytest.raises(weft.WrongGradient, match="the loss 'clip': wrong"):
        found.raise_if_wrong()
    assert found._repr_html_().startswith("<pre")


def test_a_reducer_without_a_loss():
    local = [numpy.random.default_rng(r).normal(size=(4, 6)).astype("float32") for r in range(3)]
    mean = sum(local) / 3
    dump = [{"local/w": g, "reduced/w": mean} for g in local]
    assert weft.verify(dump)
    assert weft.verify(dump, reducer="sum").cause.signature == "S9"
    assert weft.verify([{"local/w": g, "reduced/w": (local[0] + local[1]) / 3} for g in local]).cause.signature == "S24"


def test_float16():
    local = [numpy.random.default_rng(r).standard_normal((40, 40)).astype("float16") for r in range(3)]
    mean = (sum(g.astype("float32") for g in local) / 3).astype("float16")
    for factor, correct in ((1, True), (1.01, False)):
        found = weft.verify([{"local/w": g, "reduced/w": mean * numpy.float16(factor)} for g in local])
        assert found.correct == correct, str(found)


def test_bfloat16_of_pytorch():
    torch = pytest.importorskip("torch")
    local = [torch.randn(40, 40, generator=torch.Generator().manual_seed(r)).bfloat16() for r in range(3)]
    mean = (sum(g.float() for g in local) / 3).bfloat16()
    assert weft.verify([{"local/w": g, "reduced/w": mean} for g in local])
    assert weft.verify([{"local/w": g, "reduced/w": mean * 1.03} for g in local]).wrong


def test_a_folder_and_its_certificate(tmp_path):
    for rank, tensors in enumerate(clip(1 / 3)):
        weft.write_rank(tmp_path, rank, tensors)
    with pytest.raises(FileNotFoundError, match="manifest.json"):
        weft.verify(tmp_path)
    weft.write_manifest(tmp_path, 3, loss="clip", options={"normalize": 0})
    assert weft.verify(tmp_path).cause.signature == "S3"
    text, page = weft.certify(tmp_path)
    assert json.loads(text)["outcome"] == "wrong" and page.startswith("<!doctype html>")
    with pytest.raises(ValueError, match="has its own manifest.json"):
        weft.verify(tmp_path, reducer="sum")


def test_comparing():
    ours = {"a": numpy.arange(6.0), "b": numpy.ones((2, 3), "float32")}
    assert weft.compare(ours, ours).raise_if_different()
    theirs = ours | {"b": numpy.ones((2, 3), "float32") * 1.001}
    found = weft.compare(ours, theirs)
    assert not found and found.first == "b" and len(found.tensors) == 2
    with pytest.raises(weft.DifferentTensors):
        found.raise_if_different()


def test_what_is_refused():
    for dump, manifest, said in [([{"local/w": numpy.ones(3)}], {}, "there is no 'reduced/w'"),
                                 (clip(), {"loss": "clop"}, "no loss is called 'clop'"),
                                 (clip(), {"loss": "clip", "reducr": "sum"}, "did you mean reducer"),
                                 ([{"local/w": numpy.ones(3, "complex64")}], {}, "complex64"),
                                 (clip(), {"options": {"normalize": 0}}, "options are those of a loss"),
                                 (clip(), {"loss": "clip", "rows": [1, 2, 3]}, "by the manifest rank 0 has 1")]:
        with pytest.raises(ValueError, match=said):
            weft.verify(dump, **manifest)
    with pytest.raises(TypeError, match="a dictionary of tensors for each rank"):
        weft.verify(clip()[0])


def test_power_and_lists():
    assert "S5" in weft.power(clip(equal=True), loss="clip", options={"normalize": 0})
    assert {"S3", "S5"} <= {each["id"] for each in weft.signatures()} and "clip" in weft.known_losses()


def test_the_fixture(pytester):
    pytester.syspathinsert(__file__.rsplit("/", 1)[0])
    pytester.makepyfile("""
        from test_verify import clip
        given = {"loss": "clip", "options": {"normalize": 0}}
        def test_right(distributed_gradients): distributed_gradients(clip(), **given)
        def test_wrong(distributed_gradients): distributed_gradients(clip(1 / 3), **given)
        def test_blind(distributed_gradients): distributed_gradients(clip(equal=True), **given)
    """)
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*signature S3: own slot re-inserted*"])
    result.stdout.fnmatch_lines(["*this test is blind to *S5*"])


def test_an_import_brings_nothing_but_numpy():
    brought = "import sys, weft; print(*sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'jax', 'pytest'}))"
    assert subprocess.run([sys.executable, "-c", brought], check=True, capture_output=True, text=True).stdout == "\n"
