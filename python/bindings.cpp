// SPDX-License-Identifier: Apache-2.0
// The verifier for Python. Verdicts cross as JSON, which the program weft prints, too, so both say the same.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "tools/weft/verdict/certificate.h"
#include "tools/weft/verdict/compare.h"
#include "tools/weft/verdict/print.h"
#include "weft/data/idx.h"
#include "weft/engine/tensor/error.h"

namespace nb = nanobind;
using namespace weft::verify;

namespace {

// For programs and for people, and what the dump could not tell.
using Told = std::vector<std::string>;

Told told_verdicts(const std::string& folder) {
  const Dump dump = read_dump(std::filesystem::path(folder));
  const std::vector<Verdict> all = verdicts(dump);
  return {json_of(all, dump), text_of(all, dump), power_of(all, dump)};
}

Told told_differences(const std::string& ours, const std::string& theirs, double limit) {
  const Difference difference = compare(ours, theirs, limit);
  return {json_of(difference), text_of(difference)};
}

Told told_certificate(const std::string& folder) {
  const Certificate certificate = certificate_of(folder);
  return {certificate.json, certificate.page};
}

std::vector<std::map<std::string, std::string>> all_signatures() {
  std::vector<std::map<std::string, std::string>> all;
  for (const Signature& each : signatures())
    all.push_back({{"id", each.id}, {"name", each.name}, {"effect", each.effect}, {"repair", each.repair}});
  return all;
}

std::map<std::string, std::string> all_losses() {
  std::map<std::string, std::string> all;
  for (const Loss& loss : losses()) all[loss.name] = loss.formula;
  return all;
}

}  // namespace

NB_MODULE(_weft, module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const weft::MissingInput& error) {
      PyErr_SetString(PyExc_FileNotFoundError, error.what());
    } catch (const weft::Error& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });
  const nb::call_guard<nb::gil_scoped_release> aside;
  module.def("verify", &told_verdicts, aside);
  module.def("compare", &told_differences, aside);
  module.def("certify", &told_certificate, aside);
  module.def("signatures", &all_signatures);
  module.def("losses", &all_losses);
}
