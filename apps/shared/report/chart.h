// SPDX-License-Identifier: Apache-2.0
#pragma once
// Charts as SVG for an HTML page. Colors are classes of the page's style sheet: one, two, three, ...
#include <string>
#include <vector>

#include "apps/shared/run/metrics.h"

namespace weft {

struct Line {
  std::string name;
  Curve points;
};

// Lines over one axis, with their last values in a legend. Many points are drawn as means, within a band from the
// smallest to the largest. Points that are not finite are left out.
std::string line_chart(const std::vector<Line>& lines, const std::string& x_name);

// One bar per height; heights are not negative.
std::string bar_chart(const std::vector<double>& heights, const std::string& x_name);

// Points in a plane without axes, each group in a colour of its own. Groups without a name have no legend.
std::string scatter_chart(const std::vector<Line>& groups);

}  // namespace weft
