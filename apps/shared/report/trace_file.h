// SPDX-License-Identifier: Apache-2.0
#pragma once
// The timelines of ranks as a trace in Chrome's format, which Perfetto (ui.perfetto.dev) shows and queries. Every rank
// is a process with one track. Arrows lead from the rank that came last to a collective to those that waited for it,
// and from a sender to its receiver.
#include <filesystem>
#include <span>

#include "weft/collectives/checks/timeline.h"

namespace weft {

// In one file; or, if `place` is a folder, each rank's in a file of its own, without arrows, as HTA (Holistic Trace
// Analysis) reads them. `backend` says what connects the ranks.
void write_trace(const std::filesystem::path& place, const std::string& backend,
                 std::span<const Timeline::Events> ranks);

void expect_room_for_trace(const std::filesystem::path& place);  // throws OutputFailure

}  // namespace weft
