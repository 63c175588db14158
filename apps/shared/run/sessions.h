// SPDX-License-Identifier: Apache-2.0
#pragma once
// Time and traffic of the steps of each session of a run, in sessions.json of its folder. A session lasts from a start
// of the run to its interruption or end. So a report covers the whole run, even if it was interrupted.
#include "apps/shared/report/report.h"

namespace weft {

struct RunSession {
  int64_t first_step = 0, last_step = 0;  // steps that were done before and after it
  double images = 0;
  std::vector<Report::RankTime> ranks;
  std::vector<Traffic> traffic;  // of every rank
};

std::string json(const std::vector<RunSession>& sessions);
// Throws MalformedInput if the text is not as `json` writes it.
std::vector<RunSession> read_sessions(std::string_view text);
// The sessions up to a step. None if the file is missing, damaged or longer than 8 MiB; the report then covers less.
std::vector<RunSession> sessions_up_to(int64_t step, const std::filesystem::path& file);

// The sums over all sessions, rank by rank.
RunSession whole(const std::vector<RunSession>& sessions);

}  // namespace weft
