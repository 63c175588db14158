// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/report/report.h"

#include <algorithm>
#include <cstdio>

#include "apps/shared/report/report_style.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

std::string figures(const Report& report) {
  constexpr size_t longest = 10;  // characters of a value in a card; longer values are listed below the cards
  std::string cards, names;
  for (const auto& [name, value, number] : report.figures) {
    if (value.size() <= longest)
      cards += "<div class='card'><dt>" + as_html(name) + "</dt><dd>" + as_html(value) + "</dd></div>\n";
    else
      names += "<p class='soft names'>" + as_html(name) + " <b>" + as_html(value) + "</b></p>\n";
  }
  return (cards.empty() ? "" : "<dl class='figures'>\n" + cards + "</dl>\n") + names;
}

std::string tables(const Report& report) {
  std::string all;
  for (const auto& [title, rows] : report.tables) {
    all += "<h2>" + as_html(title) + "</h2>\n<section class='card'><div class='scroll'><table class='even'>\n";
    for (const auto& row : rows) {
      const std::string cell = &row == rows.data() ? "th" : "td";
      all += "<tr>";
      for (const std::string& text : row) all += "<" + cell + ">" + as_html(text) + "</" + cell + ">";
      all += "</tr>\n";
    }
    all += "</table></div></section>\n";
  }
  return all;
}

std::string charts(const Report& report) {
  std::string all;
  for (const auto& [title, drawing] : report.charts)
    all += "<section class='card'><h3>" + as_html(title) + "</h3>" + drawing + "</section>\n";
  return all.empty() ? "" : "<h2>Curves</h2>\n<div class='grid'>\n" + all + "</div>\n";
}

std::string pictures(const Report& report) {
  std::string all;
  for (const auto& [caption, png] : report.pictures)
    all += "<figure class='card'><figcaption>" + as_html(caption) + "</figcaption><img alt='" + as_html(caption) +
           "' src='data:image/png;base64," + base64(png) + "'></figure>\n";
  return all.empty() ? "" : "<h2>Pictures</h2>\n<div class='grid pictures'>\n" + all + "</div>\n";
}

std::string share(const char* color, const char* what, double seconds, double whole) {
  char style[32];
  std::snprintf(style, sizeof style, "flex-grow:%.4f", whole > 0 ? std::max(seconds, 0.0) / whole : 0);
  return "<i class='" + std::string(color) + "' style='" + style + "' title='" + what + ": " + duration(seconds) +
         ", " + percent(seconds, whole) + "'></i>";
}

std::string ranks(const Report& report) {
  if (report.ranks.empty()) return "";
  Report::RankTime mean;
  std::string all;
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const auto [seconds, communication, data] = report.ranks[r];
    mean.seconds += seconds, mean.communication += communication, mean.data += data;
    all += "<div class='rank'><span>rank " + std::to_string(r) + "</span><div class='split'>" +
           share("one", "computing", seconds - communication - data, seconds) +
           share("two", "communication", communication, seconds) + share("three", "data", data, seconds) +
           "</div></div>\n";
  }
  const auto entry = [&](const char* color, const char* what, double part) {
    return "<span class='" + std::string(color) + "'>" + what + " <b>" + percent(part, mean.seconds) + "</b></span>";
  };
  return "<h2>Where the time went</h2>\n<section class='card'><p class='legend'>" +
         entry("one", "computing", mean.seconds - mean.communication - mean.data) +
         entry("two", "communication", mean.communication) + entry("three", "data", mean.data) + "</p>\n" + all +
         "</section>\n";
}

std::string configuration(const Report& report) {
  if (report.config.empty()) return "";
  return "<h2>Configuration</h2>\n<section class='card'><pre>" + as_html(report.config) + "</pre></section>\n";
}

std::string row(const std::string& name, const Traffic::Count& sum, double ranks) {
  const std::string each =
      sum.calls > 0 ? bytes_in_words(static_cast<double>(sum.bytes) / static_cast<double>(sum.calls)) : "";
  return "<tr><td>" + as_html(name) + "</td><td>" + grouped(sum.calls) + "</td><td>" +
         bytes_in_words(static_cast<double>(sum.bytes)) + "</td><td>" + each + "</td><td>" +
         duration(sum.seconds / ranks) + "</td></tr>\n";
}

std::string traffic(const Report& report) {
  if (report.traffic.empty()) return "";
  const auto count = static_cast<double>(report.traffic.size());
  Traffic::Count whole;
  std::string rows;
  for (size_t v = 0; v < Traffic::verbs; ++v) {
    Traffic::Count sum;
    for (const Traffic& rank : report.traffic) sum += rank[static_cast<Verb>(v)];
    if (sum.calls > 0) rows += row(text(static_cast<Verb>(v)), sum, count);
    whole += sum;
  }
  return "<h2>Communication</h2>\n<section class='card'><div class='scroll'><table>\n<tr><th>collective</th>"
         "<th>calls</th><th>bytes</th><th>bytes per call</th><th>mean time per rank</th></tr>\n" +
         rows + row("all", whole, count) +
         "</table></div>\n<p class='soft' style='margin:.8rem 0 0;font-size:.85rem'>" +
         "Of the training steps. Calls and bytes of inputs are sums over all ranks. Time includes "
         "waiting." +
         (report.choices.empty() ? "" : " Chosen for the link between nodes: " + as_html(report.choices) + ".") +
         "</p></section>\n";
}

}  // namespace

std::string html(const Report& report) {
  return "<!doctype html>\n<html lang='en'>\n<meta charset='utf-8'>\n"
         "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>" +
         as_html(report.title) + "</title>\n<style>" + report_style + "</style>\n<main>\n<header><h1>" +
         as_html(report.title) + "</h1><p>" + as_html(report.subtitle) + "</p></header>\n" + figures(report) +
         tables(report) + charts(report) + pictures(report) + ranks(report) + traffic(report) + configuration(report) +
         "<footer>Made by Weft. This page is self-contained: it "
         "loads nothing.</footer>\n</main>\n</html>\n";
}

std::string base64(const std::string& bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = i; j < i + 3; ++j)
      three = three << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += i + j <= bytes.size() ? digits[three >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace weft
