#pragma once
// What a run took, from each of its starts to its interruption or end: sessions.json of the run's folder. So a report
// tells of the whole run, however often it was interrupted.
#include "apps/shared/report.h"

namespace weft {

struct RunSession {
  int64_t last_step = 0;
  double images = 0;
  std::vector<Report::RankTime> ranks;
  std::vector<Traffic> traffic;  // of every rank
};

std::string json(const std::vector<RunSession>& sessions);
// MalformedInput if it is not what `json` writes.
std::vector<RunSession> read_sessions(std::string_view text);
// Those up to a step. None where the file is missing, damaged or longer than 8 MiB: then a report tells of less.
std::vector<RunSession> sessions_up_to(int64_t step, const std::filesystem::path& file);

// All as one; a rank is one number, in however many sessions it was.
RunSession whole(const std::vector<RunSession>& sessions);

}  // namespace weft
