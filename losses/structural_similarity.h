#pragma once
// SSIM (Wang et al. 2004): the mean over the pictures of all ranks, and over channels and places of a Gaussian window,
// of
//
//   (2 m_a m_b + c1) (2 v_ab + c2) / ((m_a^2 + m_b^2 + c1) (v_a + v_b + c2)),   c = (k * data range)^2
//
// where m, v and v_ab are mean, variances and covariance of the two pictures under the window.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// Where the window is: inside of the picture, as in the paper and in scikit-image; or around every pixel, the picture
// being reflected at its borders, as in TorchMetrics.
enum class Places : uint8_t { inside, everywhere };

struct StructuralSimilarityOptions {
  double data_range = 1;  // between the least and the largest value that a pixel may have
  double sigma = 1.5;     // of the window, in pixels; it ends 3.5 of these from its middle
  double k1 = 0.01, k2 = 0.03;
  Places places = Places::inside;
};

// Of pictures (samples, height, width, channels): a scalar, the same on every rank (Replicated), as the metrics of
// regression_metrics.h are; zero of no pictures at all. The window must fit into them. One exchange of two numbers.
Var structural_similarity(const Var& predictions, const Var& targets, const StructuralSimilarityOptions& options,
                          Communicator& comm, Site caller = Site::here());

}  // namespace weft
