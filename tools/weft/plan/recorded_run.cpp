// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/recorded_run.h"

#include <algorithm>
#include <cmath>

#include "apps/shared/run/sessions.h"
#include "tools/weft/plan/call_cost.h"
#include "weft/data/files/input_file.h"
#include "weft/engine/text/file_text.h"

namespace weft::plan {
namespace {

RunSession last_session(const std::filesystem::path& file) try {
  std::vector<RunSession> sessions = read_sessions(file_text(file));
  if (sessions.empty()) throw MalformedInput("no session is recorded");
  const RunSession& last = sessions.back();
  if (last.ranks.empty()) throw MalformedInput("the last session has no ranks");
  if (last.last_step <= last.first_step) throw MalformedInput("the last session has no steps");
  for (const Report::RankTime& time : last.ranks)
    if (!(time.seconds > 0 && std::isfinite(time.seconds)))
      throw MalformedInput("the time of a rank is " + text(time.seconds) + " seconds");
  if (!(last.images > 0 && std::isfinite(last.images)))
    throw MalformedInput("the number of images is " + text(last.images));
  return std::move(sessions.back());
} catch (MalformedInput& error) {
  error.happened_in(file.string());
  throw;
}

RecordedRun::Calls calls_of(Verb verb, const RunSession& session, double steps) {
  Traffic::Count sum;
  for (const Traffic& rank : session.traffic) sum += rank[verb];
  const double ranks = static_cast<double>(session.ranks.size()), small = static_cast<double>(sum.small_calls);
  const double large = static_cast<double>(sum.calls) - small;
  if (!(large > 0)) return {small / ranks / steps, 0, 0};
  // Small calls have few bytes, which are not told apart.
  const double size = static_cast<double>(sum.bytes) / large;
  return {small / ranks / steps, large / ranks / steps, gathers(verb) || has_root(verb) ? ranks * size : size};
}

}  // namespace

RecordedRun read_run(const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::is_directory(path) ? path / "sessions.json" : path;
  if (!std::filesystem::exists(file))
    throw MissingInput("plan: there is no " + file.string() + "; it is in the folder that a program gets by --out");
  const RunSession session = last_session(file);
  const auto steps = static_cast<double>(session.last_step - session.first_step);
  RecordedRun run;
  run.ranks = std::ssize(session.ranks);
  for (const Report::RankTime& time : session.ranks) run.seconds = std::max(run.seconds, time.seconds / steps);
  run.images = session.images / steps / static_cast<double>(run.ranks);
  for (size_t v = 0; v < Traffic::verbs; ++v) run.calls[v] = calls_of(static_cast<Verb>(v), session, steps);
  return run;
}

}  // namespace weft::plan
