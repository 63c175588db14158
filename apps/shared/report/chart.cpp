// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>

#include "weft/engine/maths/maths.h"
#include "weft/engine/tensor/error.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

// In the units of the SVG's view box, which a page scales.
constexpr double width = 440, height = 230, left = 44, right = 8, top = 10, bottom = 36;
constexpr size_t max_points = 160;
constexpr const char* colors[] = {"one", "two", "three", "four", "five"};

std::string number(double x) {
  char digits[32];
  return {digits, static_cast<size_t>(std::snprintf(digits, sizeof digits, "%.1f", x))};
}

// Values beyond are drawn at the edge, so that the extent of an axis is finite, and the smallest ones as zero, so that
// its parts are.
double drawn(double value) { return std::abs(value) < 1e-290 ? 0 : std::clamp(value, -1e300, 1e300); }
bool is_finite(Point point) { return std::isfinite(point.x) && std::isfinite(point.y); }

struct Extent {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  void include(double x) {
    least = std::min(least, drawn(x));
    most = std::max(most, drawn(x));
  }
};

// About `count` round numbers. `widened` extends the range to the round numbers around it.
std::vector<double> ticks(Extent& range, int count, bool widened) {
  if (range.most < range.least) range = {0, 1};
  const double largest = std::max(std::abs(range.least), std::abs(range.most));
  if (range.most - range.least <= 1e-9 * largest) {  // a constant is drawn in the middle
    const double around = range.least != 0 ? std::abs(range.least) : 1;
    range = {range.least - around, range.most + around};
  }
  const double rough = (range.most - range.least) / count, decades = maths::log(rough) * std::numbers::log10e,
               power = maths::pow(10.0, std::floor(decades));
  const double step = power * (rough > 7 * power ? 10 : rough > 3.5 * power ? 5 : rough > 1.5 * power ? 2 : 1);
  if (widened) range = {std::floor(range.least / step) * step, std::ceil(range.most / step) * step};
  std::vector<double> all;
  const double first = std::ceil(range.least / step), past = range.most / step + 1e-6;
  for (int i = 0; first + i <= past; ++i) all.push_back((first + i) * step);
  return all;
}

class Plot {
 public:
  Plot(Extent x, Extent y, const std::string& x_name, bool x_ticks) : x_(x), y_(y) {
    for (const double tick : ticks(y_, 3, true)) {
      add("<line class='grid' x1='" + number(left) + "' x2='" + number(width - right) + "' y1='" + v(tick) + "' y2='" +
          v(tick) + "'/>");
      label(left - 6, at_y(tick) + 4, "end", short_number(tick));
    }
    for (const double tick : x_ticks ? ticks(x_, 4, false) : std::vector<double>())
      label(at_x(tick), height - bottom + 16, "middle", short_number(tick));
    label(width - right, x_ticks ? height - 4 : height - bottom + 18, "end", x_name);
  }

  double at_x(double x) const { return left + (drawn(x) - x_.least) / (x_.most - x_.least) * (width - left - right); }
  double at_y(double y) const {
    return height - bottom - (drawn(y) - y_.least) / (y_.most - y_.least) * (height - top - bottom);
  }
  std::string h(double x) const { return number(at_x(x)); }
  std::string v(double y) const { return number(at_y(y)); }
  void add(const std::string& element) { inside_ += element; }
  std::string svg(const std::string& description) const {
    return "<svg viewBox='0 0 " + number(width) + " " + number(height) + "' role='img' aria-label='" +
           as_html(description) + "'>" + inside_ + "</svg>";
  }

 private:
  void label(double x, double y, const char* anchor, const std::string& text) {
    add("<text x='" + number(x) + "' y='" + number(y) + "' text-anchor='" + anchor + "'>" + as_html(text) + "</text>");
  }

  Extent x_, y_;
  std::string inside_;
};

// Neighbouring points that are drawn as one.
struct Bin {
  Point mean;
  Extent y;
};
std::vector<Bin> bins_of(const Curve& points) {
  Curve finite;
  std::copy_if(points.begin(), points.end(), std::back_inserter(finite), is_finite);
  const size_t count = std::min(finite.size(), max_points);
  std::vector<Bin> bins(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * finite.size() / count, end = (i + 1) * finite.size() / count;
    for (size_t p = begin; p < end; ++p) {
      bins[i].mean.x += finite[p].x / static_cast<double>(end - begin);
      bins[i].mean.y += finite[p].y / static_cast<double>(end - begin);
      bins[i].y.include(finite[p].y);
    }
  }
  return bins;
}

void draw(Plot& plot, const std::vector<Bin>& bins, const std::string& color) {
  std::string line, above, below;
  for (const auto& [mean, y] : bins) {
    line += plot.h(mean.x) + "," + plot.v(mean.y) + " ";
    above += plot.h(mean.x) + "," + plot.v(y.most) + " ";
    below.insert(0, plot.h(mean.x) + "," + plot.v(y.least) + " ");
  }
  plot.add("<polygon class='" + color + " band' points='" + above + below + "'/>");
  plot.add("<polyline class='" + color + " line' points='" + line + "'/>");
  const Point end = bins.back().mean;
  plot.add("<circle class='" + color + " end' cx='" + plot.h(end.x) + "' cy='" + plot.v(end.y) + "' r='3'/>");
}

}  // namespace

std::string line_chart(const std::vector<Line>& lines, const std::string& x_name) {
  require(lines.size() <= std::size(colors), "line_chart: ", lines.size(), " lines, there are colors for ",
          std::size(colors));
  std::vector<std::vector<Bin>> bins;
  Extent x, y;
  for (const Line& line : lines) {
    bins.push_back(bins_of(line.points));
    for (const Point& point : line.points)
      if (std::isfinite(point.x)) x.include(point.x);
    for (const Bin& bin : bins.back()) {
      y.include(bin.y.least);
      y.include(bin.y.most);
    }
  }
  Plot plot(x, y, x_name, true);
  std::string legend, description;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (bins[i].empty()) continue;
    draw(plot, bins[i], colors[i]);
    const std::string last = short_number(lines[i].points.back().y);
    legend += "<span class='" + std::string(colors[i]) + "'>" + as_html(lines[i].name) + " <b>" + last + "</b></span> ";
    description += lines[i].name + ": " + last + " at the end. ";
  }
  return "<p class='legend'>" + legend + "</p>" + plot.svg(description);
}

std::string bar_chart(const std::vector<double>& heights, const std::string& x_name) {
  Extent y{0, 0};
  for (const double bar : heights) y.include(bar);
  const auto count = static_cast<double>(std::max<size_t>(heights.size(), 1));
  Plot plot({0, count}, y, x_name, false);
  const double gap = count > 100 ? 0 : 0.15;  // thin bars would vanish between gaps
  std::string path;
  for (size_t i = 0; i < heights.size(); ++i) {
    const double x = static_cast<double>(i);
    path += "M" + plot.h(x + gap) + " " + plot.v(0) + "V" + plot.v(heights[i]) + "H" + plot.h(x + 1 - gap) + "V" +
            plot.v(0) + "Z";
  }
  plot.add("<path class='one bar' d='" + path + "'/>");
  return plot.svg(grouped(static_cast<int64_t>(heights.size())) + " bars, up to " + short_number(y.most));
}

// Colours of many groups are hues, in steps that part neighbours.
std::string scatter_chart(const std::vector<Line>& groups) {
  Extent x, y;
  for (const Line& group : groups)
    for (const Point& point : group.points)
      if (is_finite(point)) x.include(point.x), y.include(point.y);
  const auto place = [](double at, const Extent& e, double room) {
    return number(6 + (drawn(at) - e.least) / std::max(e.most - e.least, 1e-12) * (room - 12));
  };
  std::string circles, legend;
  size_t count = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string hue = "style='--hue:" + number(std::fmod(static_cast<double>(g) * 137.5 + 205, 360)) + "'";
    if (!groups[g].name.empty() && !groups[g].points.empty())
      legend += "<span class='hue' " + hue + ">" + as_html(groups[g].name) + "</span> ";
    circles += "<g class='hue' " + hue + ">";
    for (const Point& point : groups[g].points) {
      if (!is_finite(point)) continue;
      circles += "<circle cx='" + place(point.x, x, width) + "' cy='" + place(point.y, y, height) + "' r='2.5'/>";
      ++count;
    }
    circles += "</g>";
  }
  return "<p class='legend'>" + legend + "</p><svg viewBox='0 0 " + number(width) + " " + number(height) +
         "' role='img' aria-label='" + grouped(static_cast<int64_t>(count)) + " points'>" + circles + "</svg>";
}

}  // namespace weft
