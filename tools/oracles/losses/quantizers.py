# SPDX-License-Identifier: Apache-2.0
"""Quantizers of vector-quantize-pytorch. Their losses include that of a decoder, a weighted sum of a token's values."""
import torch
import torch.distributed.nn
from vector_quantize_pytorch import FSQ, LFQ, ResidualFSQ, ResidualVQ, SimVQ, VectorQuantize, lookup_free_quantization

from cases import Case, ranks, uniform

PACKAGE = "vector-quantize-pytorch"
TOKENS, WIDTH, CODES = 12, 4, 6


def vector_quantize(**options):
    def call(x, shared, given):
        quantize = VectorQuantize(WIDTH, CODES, decay=0.8, threshold_ema_dead_code=0, kmeans_init=False, **options)
        book = quantize._codebook
        book.embed.data.copy_(given["codes"][None])
        book.embed_avg.data.copy_(given["codes"][None])
        values, indices, loss = quantize(x[0])
        return loss.sum() + decoded(x[1], values), {
            "indices": indices, "codes": book.embed[0], "sums": book.embed_avg[0], "sizes": book.cluster_size[0]}
    return call


def tokens(name):
    """The tokens, and the weights of their values."""
    return [uniform(f"{name} tokens", TOKENS, WIDTH), uniform(f"{name} weights", TOKENS, WIDTH)]


def decoded(weights, values):
    return (weights * values).sum(1).mean()


def codes(name, count=CODES):
    return uniform(f"{name} codes", count, WIDTH).float().double()


def vq(mode, division=(4, 4, 4), variant=None, **options):
    given = codes("VectorQuantize")
    if "use_cosine_sim" in options:
        given = torch.nn.functional.normalize(given, dim=1)
    return Case("VectorQuantize", mode, vector_quantize(**options), tokens("VectorQuantize"), given={"codes": given},
                division=division, precision=1e-5, variant=variant)


shipped = lookup_free_quantization.maybe_distributed_mean


def returned(t):
    """The intended result of maybe_distributed_mean: the reduced tensor instead of its argument."""
    return torch.distributed.nn.all_reduce(t) / ranks() if ranks() > 1 else t


def lfq(helper, masked=False, **options):
    def call(x, shared, given):
        lookup_free_quantization.maybe_distributed_mean = helper
        quantize = LFQ(dim=WIDTH, entropy_loss_weight=1.0, diversity_gamma=2.0, force_quantization_f32=False,
                       **options).double()
        mask = x[1].bool()[None] if masked else None
        result, terms = quantize(x[0][None], inv_temperature=0.5, return_loss_breakdown=True, mask=mask)
        values, indices, loss = result
        return loss, {"values": values[0], "indices": indices[0], "sample_entropy": terms.per_sample_entropy,
                      "codebook_entropy": terms.batch_entropy}
    return call


def lookup_free(loss, mode, call, mask=None, **more):
    rows = tokens(loss)[:1] + ([] if mask is None else [torch.tensor(mask)])
    return Case(loss, mode, call, rows, **more)


def fsq(levels, **options):
    def call(x, shared, given):
        values, indices = FSQ(levels, **options)(x[0][None])
        return decoded(x[1], values[0]), {"values": values[0], "indices": indices[0]}
    return call


def residual_fsq(x, shared, given):
    quantize = ResidualFSQ(levels=[5, 5, 3, 5], num_quantizers=3)
    values, indices = quantize(x[0][None])
    return decoded(x[1], values[0]), {"values": values[0], "indices": indices[0], "scales": quantize.scales}


def sim_vq(rotation_trick):
    def call(x, shared, given):
        quantize = SimVQ(WIDTH, CODES, rotation_trick=rotation_trick).double()
        quantize.frozen_codebook = given["codes"]
        del quantize.code_transform  # the map is an input here, so that it gets a gradient
        quantize.code_transform = lambda frozen: frozen @ shared[0]
        values, indices, loss = quantize(x[0][None])
        return loss + decoded(x[1], values[0]), {"indices": indices[0]}
    return call


def residual_vq(x, shared, given):
    quantize = ResidualVQ(dim=WIDTH, num_quantizers=3, codebook_size=CODES, rotation_trick=False)
    for i, layer in enumerate(quantize.layers):
        layer._codebook.embed.data.copy_(given[f"codes {i}"][None])
    values, indices, losses = quantize(x[0][None], freeze_codebook=True)
    return losses.sum() + decoded(x[1], values[0]), {"values": values[0], "indices": indices[0]}


diverse = {"codebook_diversity_loss_weight": 1.0, "codebook_diversity_temperature": 1.0}

CASES = [
    vq("EMA", variant="moving averages", rotation_trick=False),
    vq("EMA, shards 5, 3, 4", (5, 3, 4), rotation_trick=False),
    vq("rotation trick", variant="rotation", rotation_trick=True),
    vq("codebook diversity", rotation_trick=False, **diverse),
    vq("codebook diversity, codes at rest", variant="diversity", rotation_trick=False, freeze_codebook=True, **diverse),
    vq("cosine", variant="cosine", rotation_trick=False, use_cosine_sim=True),
    lookup_free("LFQ", "the reduced mean", lfq(returned)),
    lookup_free("LFQ", "as shipped", lfq(shipped), variant="entropies"),
    lookup_free("LFQ", "masked", lfq(shipped, masked=True), [1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1], distributed=False),
    lookup_free("LFQ", "commitment", lfq(shipped, commitment_loss_weight=0.25), distributed=False),
    lookup_free("BSQ", "as shipped", lfq(shipped, spherical=True), variant="all bits together"),
    lookup_free("BSQ", "the reduced mean", lfq(returned, spherical=True)),
    Case("FSQ", "local", fsq([5, 4, 3, 6]), tokens("FSQ"), precision=1e-5, variant="mask"),
    Case("FSQ", "preserve_symmetry", fsq([5, 4, 2, 6], preserve_symmetry=True), tokens("symmetric FSQ"),
         precision=1e-5, variant="symmetric, mask"),
    Case("FSQ", "residual", residual_fsq, tokens("residual FSQ"), precision=1e-5, variant="residual, mask"),
    Case("SimVQ", "straight-through", sim_vq(False), tokens("SimVQ"), [uniform("SimVQ map", WIDTH, WIDTH)],
         {"codes": codes("SimVQ")}, variant="mask"),
    Case("SimVQ", "rotation trick", sim_vq(True), tokens("SimVQ"), [uniform("SimVQ map", WIDTH, WIDTH)],
         {"codes": codes("SimVQ")}, variant="rotation, mask"),
    Case("Residual", "VQ, frozen codebooks", residual_vq, tokens("ResidualVQ"),
         given={f"codes {i}": codes(f"ResidualVQ {i}") * 0.5 ** i for i in range(3)}, precision=1e-5,
         variant="VQ in VQ"),
]
