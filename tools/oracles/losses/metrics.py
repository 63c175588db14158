# SPDX-License-Identifier: Apache-2.0
"""TorchMetrics' metrics as losses: differentiates the values that dist_sync_on_step returns. Shards are 1, 2 and 4."""
import torch
from torchmetrics.image import StructuralSimilarityIndexMeasure
from torchmetrics.regression import CosineSimilarity, ExplainedVariance, MeanSquaredError, PearsonCorrCoef, R2Score

from cases import Case, uniform

PACKAGE = "torchmetrics"


def metric(loss, make, *shape, variant="", **more):
    def call(x, shared, given):
        return make(dist_sync_on_step=True).set_dtype(torch.float64)(x[0], x[1])
    pair = [uniform(f"{loss} predictions", 7, *shape), uniform(f"{loss} targets", 7, *shape)]
    return Case(loss, "dist_sync_on_step", call, pair, division=(1, 2, 4), variant=variant, **more)


def root_mean_squared(**options):
    return MeanSquaredError(squared=False, **options)


def mixed(x, shared, given):
    synced = root_mean_squared(dist_sync_on_step=True).set_dtype(torch.float64)(x[0], x[1])
    return synced + x[0].square().mean()


def structural_similarity(x, shared, given):
    measure = StructuralSimilarityIndexMeasure(sigma=0.6, data_range=2.0, k1=0.1, k2=0.3, dist_sync_on_step=True)
    return measure.set_dtype(torch.float64)(*(pictures.permute(0, 3, 1, 2) for pictures in x))


CASES = [
    metric("mean squared error", MeanSquaredError),
    metric("root mean squared error", root_mean_squared),
    metric("Pearson correlation", PearsonCorrCoef),
    metric("R2", R2Score),
    metric("explained variance", ExplainedVariance),
    metric("cosine similarity", lambda **options: CosineSimilarity(reduction="mean", **options), 3,
           variant="mean", precision=1e-5),
    Case("SSIM", "dist_sync_on_step", structural_similarity,
         [uniform(f"SSIM {which}", 7, 6, 7, 2, low=0.0) for which in ("predictions", "targets")], division=(1, 2, 4),
         variant="everywhere"),
    Case("metrics and a loss", "root mean squared error and an ordinary mean", mixed,
         [uniform("mixed predictions", 6), uniform("mixed targets", 6)], division=(2, 2, 2),
         variant="of single values"),
]
