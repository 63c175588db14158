// SPDX-License-Identifier: Apache-2.0
#pragma once
// The progress of a run: on a terminal one line that is kept up to date, elsewhere a line every few seconds. Rank 0
// prints it; the other ranks print warnings only.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/shared/report/figure.h"
#include "apps/shared/run/output.h"

namespace weft {

class Progress {
 public:
  struct Style {
    bool quiet = false, json = false;
    bool live = false, color = false;
    int columns = 80;  // of the terminal
  };
  // The style for a terminal or another output; respects NO_COLOR.
  static Style style_for(const Output& to, bool quiet, bool json);

  // Totals since the run started or resumed.
  struct Status {
    int64_t epoch = 0, epochs = 0, step = 0, steps = 0;  // epochs and steps count from 1
    double loss = 0;
    std::vector<std::string> beside_loss = {};          // further measurements, in words; the first matter most
    double images = 0, seconds = 0, communication = 0;  // seconds of communication are part of the seconds
  };

  Progress(Output& to, Style style, int rank) : to_(to), style_(style), rank_(rank) {}

  void show(const Status& status);  // called after every step; prints when it is time
  void note(const std::string& text);
  void warn(const std::string& text);  // from any rank, each text once
  // The last line, also when quiet; replaces a live line. As JSON, figures are numbers by their names.
  void finish(const std::string& summary);
  void finish(const std::vector<Figure>& figures);
  void finish_table(const std::vector<Figure>& figures);  // a line for each figure

 private:
  double images_per_second(const Status& now) const;
  double seconds_left(const Status& now) const;
  std::string line(const Status& now) const;
  std::string line_of(const Status& now, size_t beside_loss) const;
  std::string bar(const Status& now, size_t room) const;
  std::string json(const Status& now) const;
  void finish(const std::string& text, const std::vector<Figure>& figures);
  void say(const char* event, const std::string& text);

  Output& to_;
  Style style_;
  int rank_;
  bool begun_ = false;
  Status older_, newer_;  // rates are means since `older_`, over a few seconds
  double shown_at_ = 0;   // seconds
  std::set<std::string> warnings_;
};

}  // namespace weft
