#pragma once
// A finished run as one HTML page that needs nothing but itself: no network, no scripts.
#include <string>
#include <vector>

#include "apps/shared/chart.h"
#include "collectives/traffic.h"

namespace weft {

struct Report {
  struct Figure {
    std::string name, value;
  };
  struct Chart {
    std::string title, drawing;  // of chart.h
  };
  struct Picture {
    std::string caption, png;  // the file's bytes
  };
  // Where a rank's time went; what is neither is computing.
  struct RankTime {
    double seconds = 0, communication = 0, data = 0;
  };

  std::string title, subtitle;
  std::vector<Figure> figures;
  std::vector<Chart> charts;
  std::vector<Picture> pictures;
  std::vector<RankTime> ranks;
  std::vector<Traffic> traffic;  // of every rank
  std::string config;
};

std::string html(const Report& report);

std::string base64(const std::string& bytes);

}  // namespace weft
