// SPDX-License-Identifier: Apache-2.0
// What objects with parameters have in common, and how they are made.
#include "weft/engine/nn/module.h"

#include "python/engine/casters.h"
#include "python/engine/engine.h"
#include "weft/engine/nn/init.h"

namespace weft::python {

void add_modules(nb::module_& module) {
  nb::class_<Module>(module, "Module", "An object with parameters.")
      .def("parameters", &Module::parameters, nb::rv_policy::reference_internal, "Those that are trained.")
      .def("buffers", &Module::buffers, nb::rv_policy::reference_internal,
           "Those that are not, such as running averages.");
  nb::class_<Init>(module, "Init", "How parameters begin: each draws from a stream that its name selects.")
      .def(
          "__init__",
          [](Init* self, const Random& key, DType dtype) {
            new (self) Init{key, dtype, Device::cpu};
          },
          nb::arg("key"), nb::arg("dtype") = DType::f32);
  nb::class_<Pass>(
      module, "Pass",
      "The settings of a forward pass. Random choices are keyed by `key` and the global index of the sample.")
      .def(
          "__init__",
          [](Pass* self, bool training, const Random& key, int64_t first_sample) {
            new (self) Pass{training, key, first_sample};
          },
          nb::arg("training") = false, nb::arg("key") = Random(), nb::arg("first_sample") = 0);
}

}  // namespace weft::python
