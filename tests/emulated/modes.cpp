// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/modes.h"

#include "tests/emulated/contrastive.h"
#include "tests/emulated/statistics.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::emulated {
namespace {

using Towers = std::span<const Var>;

template <Adjoint adjoint> Var nt_xent_with(Towers x, Towers, Communicator& comm) {
  return nt_xent(x[0], x[1], nt_xent_temperature, adjoint, comm);
}
template <Adjoint adjoint> Var clip_of_own_rows_with(Towers x, Towers scalars, Communicator& comm) {
  return clip_of_own_rows(x[0], x[1], scalars[0], adjoint, comm);
}
template <Adjoint adjoint> Var clip_of_all_rows_with(Towers x, Towers scalars, Communicator& comm) {
  return clip_of_all_rows(x[0], x[1], scalars[0], adjoint, comm);
}
Var cached_clip(Towers x, Towers scalars, Communicator& comm) {
  return clip_of_cached_features(x[0], x[1], scalars[0], cached_passes, comm);
}
// Each rank's mean over its own pairs, whatever their number.
Var mean_of_means(Towers x, Towers scalars, Communicator& comm) {
  return cast(mean(clip_losses(x[0], x[1], scalars[0], Adjoint::sum, comm)), x[0].dtype());
}
Var siglip_without_return(Towers x, Towers scalars, Communicator& comm) {
  return siglip(x[0], x[1], scalars[0], scalars[1], Adjoint::own_slot, comm);
}
template <Averaging averaging> Var entropy_with(Towers x, Towers, Communicator& comm) {
  return lookup_free_entropy(x[0], inverse_temperature, diversity, averaging, comm);
}
Var metric(Towers x, Towers, Communicator& comm) { return root_mean_squared_error(x[0], x[1], comm); }

}  // namespace

const std::vector<Mode>& emulated_modes() {
  static const std::vector<Mode> all = {
      {"lightly_own_slot", "Lightly before May 2024, gather_distributed=True", "Lightly #1528, #1531", "S2", "nt_xent",
       nt_xent_with<Adjoint::own_slot>},
      {"own_slots_all_reduced", "cellarium-ml before its #184", "cellarium-ml #170, #184", "S5", "nt_xent",
       nt_xent_with<Adjoint::all_reduced_own_slots>},
      {"gather_without_gradient", "torch.distributed.all_gather in a loss", "OpenCLIP #980, #1047", "S1", "nt_xent",
       nt_xent_with<Adjoint::none>},
      {"openclip_default", "OpenCLIP, local_loss=False, gather_with_grad=False", "", "S3", "clip",
       clip_of_all_rows_with<Adjoint::own_slot>},
      {"openclip_gather_with_grad", "OpenCLIP, local_loss=False, gather_with_grad=True", "OpenCLIP #616", "S0", "clip",
       clip_of_all_rows_with<Adjoint::sum>},
      {"openclip_local_loss", "OpenCLIP, local_loss=True, gather_with_grad=False", "", "S1", "clip",
       clip_of_own_rows_with<Adjoint::none>},
      {"openclip_local_loss_gather_with_grad", "OpenCLIP, local_loss=True, gather_with_grad=True", "OpenCLIP #894",
       "S0", "clip", clip_of_own_rows_with<Adjoint::sum>},
      {"openclip_cached", "OpenCLIP from 2022 to June 2026, accum_freq above 1", "OpenCLIP #267, #761, #957", "S19",
       "clip", cached_clip},
      {"siglip_without_return", "SigLIP's ring, if the gradient of the texts is not sent back", "OpenCLIP #742, #944",
       "S20", "siglip", siglip_without_return},
      {"mean_of_means", "Transformers, and the captions of OpenCLIP's CoCa", "Transformers #34242", "S12", "clip",
       mean_of_means},
      {"lfq_raw_all_reduce", "vector-quantize-pytorch 1.14.33 to 1.16.2", "vector-quantize-pytorch #158", "S10",
       "lookup_free_entropy", entropy_with<Averaging::raw>},
      {"lfq_discarded_all_reduce", "vector-quantize-pytorch from 1.16.3", "", "S11", "lookup_free_entropy",
       entropy_with<Averaging::discarded>},
      {"torchmetrics_own_slot", "TorchMetrics from 1.6, dist_sync_on_step=True", "TorchMetrics #2745, #2754", "S3",
       "root_mean_squared_error", metric},
  };
  return all;
}

}  // namespace weft::emulated
