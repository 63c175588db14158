#include "apps/shared/named_loss.h"

#include "engine/ops/normalize.h"
#include "engine/ops/shape_ops.h"
#include "losses/barlow_twins.h"
#include "losses/dcl.h"
#include "losses/info_nce.h"
#include "losses/nt_xent.h"
#include "losses/siglip.h"
#include "losses/sigreg.h"
#include "losses/vicreg.h"

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
       // With the scale and the bias that it begins with where they are learnt, if the temperature is 0.1.
       const auto constant = [&](double value) {
         return same_everywhere(Tensor::full({}, value, a.dtype(), a.device()));
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
