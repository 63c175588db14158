// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/named_loss.h"

#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"
#include "weft/losses/statistics/barlow_twins.h"
#include "weft/losses/statistics/sigreg.h"
#include "weft/losses/statistics/vicreg.h"

namespace weft {
namespace {

using Views = const Var&;
using Group = Communicator&;
const std::vector<NamedLoss> losses = {
    {"nt-xent",
     [](Views a, Views b, double t, const Random&, Group comm) { return nt_xent(a, b, {.temperature = t}, comm); }},
    {"info-nce", [](Views a, Views b, double t, const Random&,
                    Group comm) { return info_nce(a, b, {.temperature = t, .symmetric = true}, comm); }},
    {"dcl", [](Views a, Views b, double t, const Random&, Group comm) { return dcl(a, b, {.temperature = t}, comm); }},
    {"dclw", [](Views a, Views b, double t, const Random&,
                Group comm) { return dcl(a, b, {.temperature = t, .weights = DclWeights::of_batch}, comm); }},
    {"siglip",
     [](Views a, Views b, double t, const Random&, Group comm) {
       // At temperature 0.1 these are the initial values of SigLIP's learnt scale and bias.
       const auto constant = [&](double value) {
         return replicated_constant(Tensor::full({}, value, a.dtype(), a.device()));
       };
       return siglip_loss(l2_normalize(a), l2_normalize(b), constant(1 / t), constant(-1 / t), {}, comm);
     }},
    {"barlow-twins", [](Views a, Views b, double, const Random&, Group comm) { return barlow_twins(a, b, {}, comm); }},
    {"vicreg", [](Views a, Views b, double, const Random&, Group comm) { return vicreg(a, b, {}, comm); }},
    {"lejepa",
     [](Views a, Views b, double, const Random& step, Group comm) {
       const Var both = stack({a, b}, 1);  // (samples, views, width), none of them a small crop
       return lejepa(both, slice(both, 1, 0, 0), step, {}, comm);
     }},
};

}  // namespace

std::vector<std::string> names_of_losses() {
  std::vector<std::string> names;
  for (const NamedLoss& loss : losses) names.push_back(loss.name);
  return names;
}

const NamedLoss& loss_named(const std::string& name) {
  for (const NamedLoss& loss : losses)
    if (loss.name == name) return loss;
  fail({"loss: there is none called '", name, "'"});
}

}  // namespace weft
