// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/progress.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "weft/engine/text/words.h"

namespace weft {
namespace {

constexpr double live_every = 0.1, line_every = 5, window = 3;  // seconds
constexpr const char* clear_line = "\r\033[K";

}  // namespace

Progress::Style Progress::style_for(const Output& to, bool quiet, bool json) {
  Style style{quiet, json};
  // Open MPI's mpiexec gives each rank a terminal, which has a width only if its own output is a terminal.
  winsize size{};
  style.live = !quiet && !json && ioctl(to.file(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const char* no_color = std::getenv("NO_COLOR");
  style.color = style.live && !(no_color && *no_color);
  if (style.live) style.columns = size.ws_col;
  return style;
}

double Progress::images_per_second(const Status& now) const {
  return now.seconds > older_.seconds ? (now.images - older_.images) / (now.seconds - older_.seconds) : 0;
}
double Progress::seconds_left(const Status& now) const {
  if (now.step <= older_.step) return std::numeric_limits<double>::infinity();
  return static_cast<double>(now.steps - now.step) * (now.seconds - older_.seconds) /
         static_cast<double>(now.step - older_.step);
}

// What a terminal has no room for is left out.
std::string Progress::line(const Status& now) const {
  size_t shown = now.beside_loss.size();
  std::string line = line_of(now, shown);
  while (style_.live && shown > 0 && line.size() >= static_cast<size_t>(style_.columns)) line = line_of(now, --shown);
  return line;
}

std::string Progress::line_of(const Status& now, size_t beside_loss) const {
  std::string beside;
  for (size_t i = 0; i < beside_loss; ++i) beside += "  " + now.beside_loss[i];
  const auto of = [](int64_t part, int64_t whole) { return grouped(part) + "/" + grouped(whole); };
  return "epoch " + of(now.epoch, now.epochs) + "  step " + of(now.step, now.steps) + "  loss " +
         short_number(now.loss) + beside + "  " + short_number(images_per_second(now)) + " images/s  " +
         percent(now.communication - older_.communication, now.seconds - older_.seconds) + " communication  " +
         duration(seconds_left(now)) + " left";
}

std::string Progress::bar(const Status& now, size_t room) const {
  const size_t width = std::min<size_t>(room, 24);
  const auto done = now.steps > 0 ? static_cast<size_t>(now.step) * width / static_cast<size_t>(now.steps) : 0;
  std::string bar = style_.color ? "\033[36m" : "";
  for (size_t i = 0; i < width; ++i) {
    if (i == done) bar += style_.color ? "\033[2m" : "";
    bar += i < done || style_.color ? "━" : "─";
  }
  return bar + (style_.color ? "\033[0m  " : "  ");
}

std::string Progress::json(const Status& now) const {
  return nlohmann::ordered_json{{"event", "progress"},
                                {"epoch", now.epoch},
                                {"step", now.step},
                                {"steps", now.steps},
                                {"loss", now.loss},
                                {"images_per_second", images_per_second(now)},
                                {"seconds", now.seconds},
                                {"communication_seconds", now.communication},
                                {"seconds_left", seconds_left(now)}}
      .dump();
}

void Progress::show(const Status& now) {
  if (rank_ != 0 || style_.quiet) return;
  if (!begun_) {
    begun_ = true;
    older_ = newer_ = now;
    older_.step -= 1;  // the first step began at time zero
    older_.images = older_.seconds = older_.communication = 0;
  } else if (now.step < now.steps && now.seconds - shown_at_ < (style_.live ? live_every : line_every)) {
    return;
  }
  shown_at_ = now.seconds;
  if (style_.live) {
    std::string text = line(now);
    const auto columns = static_cast<size_t>(style_.columns - 1);  // the cursor would wrap after the last column
    text.resize(std::min(text.size(), columns));
    const size_t room = columns - text.size();
    to_.show(clear_line + (room >= 12 ? bar(now, room - 2) : "") + text);
  } else {
    to_.write((style_.json ? json(now) : line(now)) + "\n");
  }
  if (now.seconds - newer_.seconds >= window) older_ = newer_, newer_ = now;
}

void Progress::say(const char* event, const std::string& text) {
  if (style_.json) return to_.write(nlohmann::ordered_json{{"event", event}, {"text", text}}.dump() + "\n");
  to_.write((style_.live ? clear_line : "") + text + "\n");
}

void Progress::note(const std::string& text) {
  if (rank_ == 0 && !style_.quiet) say("note", text);
}

void Progress::warn(const std::string& text) {
  if (warnings_.insert(text).second)
    say("warning", (rank_ ? "[rank " + std::to_string(rank_) + "] " : "") + "warning: " + text);
}

void Progress::finish(const std::string& summary) {
  if (rank_ == 0) say("finished", summary);
}

void Progress::finish(const std::vector<Figure>& figures) {
  std::string summary;
  for (const auto& [name, value, number] : figures) summary += (summary.empty() ? "" : ", ") + name + " " + value;
  finish(summary, figures);
}

void Progress::finish_table(const std::vector<Figure>& figures) {
  size_t width = 0;
  for (const auto& [name, value, number] : figures) width = std::max(width, name.size());
  std::string table;
  for (const auto& [name, value, number] : figures)
    table += (table.empty() ? "" : "\n") + name + std::string(width - name.size() + 2, ' ') + value;
  finish(table, figures);
}

void Progress::finish(const std::string& text, const std::vector<Figure>& figures) {
  if (!style_.json) return finish(text);
  if (rank_ == 0) to_.write("{\"event\":\"finished\",\"figures\":" + weft::json(figures) + "}\n");
}

}  // namespace weft
