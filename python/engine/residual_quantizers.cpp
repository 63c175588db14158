// SPDX-License-Identifier: Apache-2.0
// Quantizers made of other quantizers. In C++ they own their parts; in Python others may have them, too.
#include "python/engine/casters.h"
#include "python/engine/engine.h"
#include "weft/losses/quantizers/grouped_residual.h"

namespace weft::python {
namespace {

// A part that Python owns.
class Part final : public Quantizer {
 public:
  explicit Part(nb::object owner)
      : Quantizer("Quantizer"), owner_(std::move(owner)), own_(nb::cast<Quantizer&>(owner_)) {
    register_module(own_);
  }

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override {
    return part(own_, x, pass, comm, mask, caller);
  }
  Var decoded(const Var& indices) override { return decoded_part(own_, indices); }
  void count(Communicator& comm, Site caller) override { add_up_part(own_, comm, caller); }
  void learn(Communicator& comm, const Random& key, Site caller) override { update_part(own_, comm, key, caller); }

  const nb::object owner_;
  Quantizer& own_;
};

ResidualQuantizer::Layers layers_of(const nb::sequence& quantizers) {
  ResidualQuantizer::Layers layers;
  for (const nb::handle each : quantizers) layers.push_back(std::make_unique<Part>(nb::borrow(each)));
  return layers;
}

}  // namespace

void add_residual_quantizers(nb::module_& module) {
  const auto dropout = nb::arg("dropout") = QuantizerDropout();
  nb::borrow<nb::class_<ResidualQuantizer>>(module.attr("ResidualQuantizer"))
      .def(
          "__init__",
          [](ResidualQuantizer* self, const nb::sequence& layers, const QuantizerDropout& dropout) {
            new (self) ResidualQuantizer(layers_of(layers), dropout);
          },
          nb::arg("layers"), dropout);
  nb::borrow<nb::class_<GroupedResidual>>(module.attr("GroupedResidual"))
      .def(
          "__init__",
          [](GroupedResidual* self, const nb::sequence& groups, const QuantizerDropout& dropout) {
            GroupedResidual::Groups all;
            for (const nb::handle layers : groups)
              all.push_back(std::make_unique<ResidualQuantizer>(layers_of(nb::borrow<nb::sequence>(layers)), dropout));
            new (self) GroupedResidual(std::move(all));
          },
          nb::arg("groups"), dropout, "Each group is the quantizers of its residuals.");
}

}  // namespace weft::python
