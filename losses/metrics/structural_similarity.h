// SPDX-License-Identifier: Apache-2.0
#pragma once
// SSIM (Wang et al. 2004), the similarity of two pictures as people perceive it. It is the mean, over the pictures of
// all ranks, their channels and the positions of a Gaussian window, of
//
//   (2 m_a m_b + c1) (2 v_ab + c2) / ((m_a^2 + m_b^2 + c1) (v_a + v_b + c2)),   c = (k * data range)^2
//
// where m, v and v_ab are the means, variances and covariance of the two pictures a and b under the window.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// The positions of the window: only inside the picture, as in the paper and in scikit-image; or around every pixel,
// with the picture reflected at its borders, as in TorchMetrics.
enum class Places : uint8_t { inside, everywhere };

struct StructuralSimilarityOptions {
  double data_range = 1;  // the largest possible pixel value minus the smallest
  double sigma = 1.5;     // of the window, in pixels; the window extends 3.5 sigma from its centre
  double k1 = 0.01, k2 = 0.03;
  Places places = Places::inside;
};

// Returns a scalar that is the same on every rank (Replicated), as the metrics of regression_metrics.h; zero if no rank
// has pictures. Pictures are (samples, height, width, channels), and the window must fit into them. One all_reduce of
// two numbers crosses ranks.
Var structural_similarity(const Var& predictions, const Var& targets, const StructuralSimilarityOptions& options,
                          Communicator& comm, Site caller = Site::here());

}  // namespace weft
