// SPDX-License-Identifier: Apache-2.0
// The page that summarises a run.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <regex>
#include <sstream>

#include "apps/shared/report/picture.h"
#include "apps/shared/report/report.h"
#include "tests/support/catch.h"

using namespace weft;
using Catch::Contains;

namespace {

Curve curve(int count, const std::function<double(int)>& f) {
  Curve points;
  for (int i = 1; i <= count; ++i) points.push_back({static_cast<double>(i), f(i)});
  return points;
}

Report everything() {
  Report report;
  report.title = "A run of <b>two</b> & more";
  report.subtitle = "on \"2\" ranks";
  report.figures = {{"loss", "0.25"}, {"weights", "0123456789abcdef"}};
  report.tables = {{"Options", {{"option", "this", "that"}, {"rate", "0.1", "< 0.2"}}}};
  report.charts = {{"Loss", line_chart({{"loss", curve(1000, [](int i) { return 1.0 / i; })}}, "step")},
                   {"Usage", bar_chart({3, 1, 2}, "codes")}};
  report.pictures = {{"Pictures", png(Tensor::zeros({4, 4, 3}, DType::u8))}};
  report.ranks = {{10, 2, 1}, {10, 4, 1}};
  report.traffic.resize(2);
  for (Traffic& traffic : report.traffic) traffic[Verb::all_reduce] = {1000, 1 << 20, 3};
  report.choices = "a message takes < 50us";
  report.config = "seed = 1\nloss = \"a<b\"\n";
  return report;
}

// Expects every opened tag to be closed in order, except void elements.
void expect_balanced(const std::string& page) {
  static const std::regex tag("<(/?)([a-z0-9]+)[^>]*?(/?)>");
  std::vector<std::string> open;
  for (std::sregex_iterator i(page.begin(), page.end(), tag), end; i != end; ++i) {
    const std::string name = (*i)[2];
    if ((*i)[3] == "/" || name == "meta" || name == "img") continue;
    if ((*i)[1] != "/") {
      open.push_back(name);
    } else {
      REQUIRE(!open.empty());
      REQUIRE(open.back() == name);
      open.pop_back();
    }
  }
  CHECK(open.empty());
}

// The y coordinates of a chart's line or bars, which point down.
std::vector<double> numbers_in(const std::string& drawing, const std::string& begin, const std::string& end) {
  const size_t from = drawing.find(begin) + begin.size();
  std::string part = drawing.substr(from, drawing.find(end, from) - from);
  for (char& c : part)
    if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = ' ';
  std::istringstream stream(part);
  return {std::istream_iterator<double>(stream), {}};
}

}  // namespace

TEST_CASE("a report is one well-formed page without external resources or scripts") {
  const std::string page = html(everything());
  expect_balanced(page);
  CHECK_THAT(page, !Contains("http") && !Contains("<script") && !Contains("<link") && !Contains("@import") &&
                       !Contains("url("));
  CHECK_THAT(page, Contains("prefers-color-scheme: dark") && Contains("name='viewport'"));
}

TEST_CASE("a report shows everything that it is given, escaped as text") {
  const std::string page = html(everything());
  CHECK_THAT(page, Contains("A run of &lt;b&gt;two&lt;/b&gt; &amp; more") && !Contains("<b>two"));
  CHECK_THAT(page, Contains("on &quot;2&quot; ranks") && Contains("a&lt;b"));
  CHECK_THAT(page, Contains("<dt>loss</dt><dd>0.25</dd>") && Contains("weights <b>0123456789abcdef</b>"));
  CHECK_THAT(page, Contains("data:image/png;base64,iVBORw0KGgo"));
  CHECK_THAT(page, Contains("<tr><th>option</th><th>this</th><th>that</th></tr>") &&
                       Contains("<tr><td>rate</td><td>0.1</td><td>&lt; 0.2</td></tr>"));
}

TEST_CASE("a report splits time by activity and sums calls over ranks") {
  const std::string page = html(everything());
  CHECK_THAT(
      page, Contains("computing <b>60 %</b>") && Contains("communication <b>30 %</b>") && Contains("data <b>10 %</b>"));
  CHECK_THAT(page, Contains("flex-grow:0.7000") && Contains("flex-grow:0.2000") && Contains("flex-grow:0.4000"));
  CHECK_THAT(page, Contains("<td>all_reduce</td><td>2,000</td><td>2 MiB</td><td>1.02 KiB</td><td>3.0 s</td>"));
  CHECK_THAT(page, Contains("<td>all</td><td>2,000</td>") && !Contains("<td>all_gather</td>"));
  CHECK_THAT(page, Contains("Chosen for the link between nodes: a message takes &lt; 50us."));
}

TEST_CASE("an empty report is a well-formed page") {
  expect_balanced(html({}));
  CHECK_THAT(html({}), !Contains("Pictures") && !Contains("Communication") && !Contains("Configuration"));
}

TEST_CASE("a chart's line falls with its values and stays inside") {
  const std::string drawing = line_chart({{"loss", curve(100, [](int i) { return 100.0 - i; })}}, "step");
  const std::vector<double> numbers = numbers_in(drawing, "<polyline class='one line' points='", "'");
  REQUIRE(numbers.size() == 200);
  for (size_t i = 2; i < numbers.size(); ++i) CHECK(numbers[i] > numbers[i - 2]);  // y grows downwards
  CHECK((numbers[0] == 44 && numbers[198] == 432 && numbers[1] >= 10 && numbers[199] <= 194));
}

TEST_CASE("an axis has a moderate number of round ticks") {
  for (int steps = 5; steps < 10'000; steps = steps * 6 / 5) {
    const std::string drawing = line_chart({{"loss", curve(steps, [](int) { return 0.0; })}}, "step");
    int count = 0;
    for (size_t at = 0; (at = drawing.find("text-anchor='middle'", at)) != std::string::npos; ++at) ++count;
    INFO(steps << " steps");
    CHECK((count >= 3 && count <= 7));
  }
}

TEST_CASE("a chart of many points shows local means within a band of local extremes") {
  const std::string drawing = line_chart({{"loss", curve(100'000, [](int i) { return i % 2 ? 1.0 : 3.0; })}}, "step");
  CHECK(drawing.size() < 20'000);
  const std::vector<double> line = numbers_in(drawing, "<polyline class='one line' points='", "'");
  const std::vector<double> band = numbers_in(drawing, "<polygon class='one band' points='", "'");
  REQUIRE((line.size() == 2 * 160 && band.size() == 4 * 160));
  CHECK(line[1] == Approx((band[1] + band.back()) / 2).margin(0.1));
  CHECK(band.back() - band[1] > 100);
}

TEST_CASE("a chart skips non-finite values, and can be empty") {
  const std::string drawing = line_chart({{"loss", curve(9, [](int i) { return i == 5 ? std::nan("") : i; })}}, "step");
  CHECK(numbers_in(drawing, "<polyline class='one line' points='", "'").size() == 16);
  CHECK_THAT(drawing, !Contains("nan"));
  for (const Curve& odd : {Curve{}, Curve{{3, 7}}, Curve{{3, 0}, {4, 0}}, Curve{{1, std::nan("")}}}) {
    const std::string chart = line_chart({{"loss", odd}}, "step");
    expect_balanced(chart);
    CHECK_THAT(chart, !Contains("'nan") && !Contains("inf") && !Contains(",nan"));
  }
  for (const double next : {4.143134726392532, 4.1431347263925326, 4.1431347263926}) {  // so close that ticks coincide
    const std::string chart = line_chart({{"loss", {{1, 4.1431347263925317}, {2, next}}}}, "step");
    expect_balanced(chart);
    CHECK(chart.size() < 4000);
  }
  expect_balanced(bar_chart({}, "codes"));
  expect_balanced(bar_chart({0, 0}, "codes"));
  CHECK_THROWS_WITH(line_chart(std::vector<Line>(6), "step"), Contains("6 lines"));
}

TEST_CASE("a chart of the largest numbers ends, and is drawn") {
  for (const double most : {1e308, 1.2e308, std::numeric_limits<double>::max()})
    for (const double least : {most, most * 0.9, 0.0, -most}) {
      const std::string chart =
          line_chart({{"loss", {{1, most}, {2, least}}}}, "step") + bar_chart({most, least}, "code");
      CHECK_THAT(chart, !Contains("nan") && !Contains("inf'") && !Contains("inf "));
    }
}

TEST_CASE("charts of the smallest numbers, and of places that are not finite, are drawn") {
  constexpr double smallest = std::numeric_limits<double>::denorm_min();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Curve& odd : {Curve{{1, smallest}, {2, 0}}, Curve{{smallest, 1}, {0, 1}}, Curve{{infinity, 1}, {2, 2}},
                           Curve{{1e308, 1}, {-1e308, -1e308}}}) {
    const std::string chart =
        line_chart({{"loss", odd}}, "step") + scatter_chart({{"", odd}}) + bar_chart({smallest}, "code");
    CHECK_THAT(chart, !Contains("nan") && !Contains("inf"));
  }
}

TEST_CASE("a chart's bars are as high as their values") {
  const std::vector<double> n = numbers_in(bar_chart({4, 2, 0}, "codes"), "<path class='one bar' d='", "'");
  REQUIRE(n.size() == 15);  // for each bar: x, the base, its top, x, the base
  const double base = n[1];
  CHECK((base - n[2] == Approx(2 * (base - n[7])) && n[12] == base));
}

TEST_CASE("base64 encoding follows RFC 4648") {
  CHECK((base64("").empty() && base64("f") == "Zg==" && base64("fo") == "Zm8=" && base64("foo") == "Zm9v"));
  CHECK((base64("foobar") == "Zm9vYmFy" && base64("\xff\xfb\xf0") == "//vw"));
}
