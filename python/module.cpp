// SPDX-License-Identifier: Apache-2.0
// The package weft of Python: the verifier, and the engine.
#include <nanobind/nanobind.h>

#include "python/engine/engine.h"
#include "python/verifier.h"
#include "weft/collectives/fault.h"
#include "weft/data/files/input_file.h"

namespace nb = nanobind;
using namespace weft::python;

NB_MODULE(_weft, module) {
  nb::set_leak_warnings(false);  // hooks and their gradients may refer to each other to the end
  nb::exception<weft::Fault>(module, "Fault", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const weft::Fault&) {
      throw;
    } catch (const weft::MissingInput& error) {
      PyErr_SetString(PyExc_FileNotFoundError, error.what());
    } catch (const weft::Error& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  add_verifier(module);
  add_tensors(module);
  add_tapes(module);
  add_modules(module);
  const auto within = [&](const char* name, void (*add)(nb::module_&), const char* about) {
    nb::module_ part = module.def_submodule(name, about);
    add(part);
  };
  within("collectives", add_collectives,
         "Collectives on plain tensors and on tapes, and the conversions between placements.");
  add_tapes_page(module);
  add_ranks(module);
  within("ops", add_ops, "Every op of the engine.");
  within("losses", add_losses, "Losses and metrics over the samples of all ranks.");
  within(
      "quantizers",
      [](nb::module_& part) {
        add_quantizers(part);
        add_residual_quantizers(part);
      },
      "Quantizers over the tokens of all ranks.");
}
