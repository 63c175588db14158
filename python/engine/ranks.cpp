// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each of which runs a function of Python.
#include <nanobind/stl/unique_ptr.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "python/engine/casters.h"
#include "python/engine/engine.h"
#include "python/engine/rank_scope.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/run_ranks.h"

namespace weft::python {

RankScope*& RankScope::current() {
  static thread_local RankScope* scope = nullptr;
  return scope;
}

nb::object RankScope::keep(nb::object communicator) {
  communicators_.push_back(communicator);
  return communicator;
}

void RankScope::add(nb::handle tape) {
  std::erase_if(tapes_, [](const nb::weakref& known) { return known().is_none(); });
  tapes_.emplace_back(tape);
}

RankScope::~RankScope() {
  for (const nb::weakref& known : tapes_)
    if (const nb::object tape = known(); !tape.is_none()) nb::inst_destruct(tape);
  for (; !communicators_.empty(); communicators_.pop_back())  // those of parts before that of the job
    nb::inst_destruct(communicators_.back());
  current() = nullptr;
}

namespace {

// A Site has the address of its file's name, and a tape may have the Site for long.
const char* lasting(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

nb::list results_of(int ranks, const nb::callable& body, std::optional<double> deadline) {
  std::vector<nb::object> results(static_cast<size_t>(std::max(ranks, 0)));
  const auto on_rank = [&](std::unique_ptr<Transport> transport) {
    const size_t me = static_cast<size_t>(transport->rank());
    const nb::gil_scoped_acquire acquired;
    RankScope scope;
    const nb::object comm = scope.keep(nb::cast(std::make_unique<Communicator>(std::move(transport))));
    results[me] = body(comm);
  };
  const auto limit = deadline ? std::chrono::milliseconds(static_cast<int64_t>(*deadline * 1000)) : default_deadline();
  {
    const nb::gil_scoped_release aside;
    run_ranks(ranks, on_rank, limit);
  }
  nb::list all;
  for (nb::object& result : results) all.append(std::move(result));
  return all;
}

template <class Make> nb::object kept(const Make& make) {
  const Site site = here();
  std::unique_ptr<Communicator> made;
  {
    const nb::gil_scoped_release aside;
    made = make(site);
  }
  if (!made) return nb::none();
  return RankScope::current()->keep(nb::cast(std::move(made)));
}

}  // namespace

Site here() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return Site::here();
  const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  const std::filesystem::path file(nb::cast<std::string>(code.attr("co_filename")));
  return {lasting(file.filename().string()), PyFrame_GetLineNumber(frame), ""};
}

void add_ranks(nb::module_& module) {
  auto communicator = nb::borrow<nb::class_<Communicator>>(module.attr("collectives").attr("Communicator"));
  communicator
      .def(
          "split",
          [](Communicator& comm, int color, int key) {
            return kept([&](Site site) { return comm.split(color, key, site); });
          },
          nb::arg("color"), nb::arg("key") = 0,
          "The group of the ranks that give the same color, ordered by key and then by rank; None for a negative "
          "color.")
      .def(
          "duplicate", [](Communicator& comm) { return kept([&](Site site) { return comm.duplicate(site); }); },
          "Another group of all ranks.");
  module.def(
      "run_ranks", &results_of, nb::arg("ranks"), nb::arg("body"), nb::arg("deadline") = nb::none(),
      "Calls body(comm) on so many ranks, threads of this process, and returns what they return, in their order. If "
      "one "
      "fails, the others end, and this raises its error. A collective that waits longer than `deadline` seconds (60, "
      "or WEFT_TIMEOUT) is an error. Communicators and tapes end with their rank.");
}

}  // namespace weft::python
