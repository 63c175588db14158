#pragma once
// Charts as SVG that stands in an HTML page. Colors are the page's: classes one, two, three, ... of its style sheet.
#include <string>
#include <vector>

#include "apps/shared/metrics.h"

namespace weft {

struct Line {
  std::string name;
  Curve points;
};

// Lines over one axis, with a legend that has their last values. Many points become a mean within the range of its
// neighbours; points that are not finite are left out.
std::string line_chart(const std::vector<Line>& lines, const std::string& x_name);

// A bar for each height, all above zero.
std::string bar_chart(const std::vector<double>& heights, const std::string& x_name);

// Text as it may stand in HTML and in attributes of it.
std::string escaped(const std::string& text);

}  // namespace weft
