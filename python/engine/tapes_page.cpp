// SPDX-License-Identifier: Apache-2.0
// Tapes as the page of weft view.
#include "apps/shared/report/tape_file.h"
#include "python/engine/casters.h"
#include "python/engine/engine.h"
#include "tools/weft/view/page.h"

namespace weft::python {
namespace {

std::string page_of(const TapeTable& table, const std::string& title, int64_t ranks) {
  constexpr int64_t no_step = 0;
  return view::page_of(json(RecordedStep{title, no_step, ranks, {&table, 1}}), title);
}

std::string page_of_rank(const Tape& tape, const std::string& title) {
  return page_of(table_of(TapeLog::notes(tape)), title, 1);
}

std::string page_of_all(const Tape& tape, Communicator& comm, const std::string& title) {
  const Site site = here();
  const nb::gil_scoped_release aside;
  return page_of(table_of(TapeLog::notes(tape), comm, site), title, comm.size());
}

// A notebook shows the page in a frame, where neither's styles reach the other.
nb::object frame(const Tape& tape) {
  const nb::object escaped = nb::module_::import_("html").attr("escape")(page_of_rank(tape, "tape"));
  return nb::str("<iframe style=\"width:100%;height:30em;border:0\" srcdoc=\"") + escaped + nb::str("\"></iframe>");
}

}  // namespace

void add_tapes_page(nb::module_& module) {
  module.def("tapes_page", &page_of_all, nb::arg("tape"), nb::arg("comm"), nb::arg("title") = "tapes",
             "A page in one file, as text, that shows the tapes of all ranks of a group node by node, as *weft view* "
             "does. All of them call it.");
  module.def("tapes_page", &page_of_rank, nb::arg("tape"), nb::arg("title") = "tape", "The same of this rank alone.");
  nb::borrow<nb::class_<Tape>>(module.attr("Tape")).def("_repr_html_", &frame);
}

}  // namespace weft::python
