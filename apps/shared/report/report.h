// SPDX-License-Identifier: Apache-2.0
#pragma once
// A finished run, or several that are compared, as one self-contained HTML page: no network, no scripts.
#include <string>
#include <vector>

#include "apps/shared/report/chart.h"
#include "apps/shared/report/figure.h"
#include "weft/collectives/checks/traffic.h"

namespace weft {

struct Report {
  using Figure = weft::Figure;
  struct Chart {
    std::string title, drawing;  // by chart.h
  };
  struct Table {
    std::string title;
    std::vector<std::vector<std::string>>
        rows;  // the first has the names of the columns, the first column those of rows
  };
  struct Picture {
    std::string caption, png;  // the file's bytes
  };
  // Where a rank's time went; the rest of `seconds` is computing.
  struct RankTime {
    double seconds = 0, communication = 0, data = 0;
  };

  std::string title, subtitle;
  std::vector<Figure> figures;
  std::vector<Table> tables;
  std::vector<Chart> charts;
  std::vector<Picture> pictures;
  std::vector<RankTime> ranks;
  std::vector<Traffic> traffic;  // of every rank
  std::string choices;           // how data move between nodes
  std::string config;
};

std::string html(const Report& report);

std::string base64(const std::string& bytes);

}  // namespace weft
