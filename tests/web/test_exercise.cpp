// SPDX-License-Identifier: Apache-2.0
// The exercises of the page: what comes back is what the transpose says, computed here by hand, and mistakes are named.
#include <catch2/catch.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tools/web/exercise.h"
#include "tools/web/requests.h"

using namespace weft;
using namespace weft::web;

namespace {

// What each rank gets back of losses 10^r times the sums of results.
std::vector<std::vector<double>> digits(const Blocks& forward) {
  std::vector<std::vector<double>> back;
  for (const int64_t rows : forward.inputs) back.emplace_back(static_cast<size_t>(rows));
  for (int r = 0; r < forward.ranks(); ++r)
    for (int s = 0; s < forward.ranks(); ++s)
      for (int64_t i = 0; i < forward.at(r, s).count; ++i)
        back[static_cast<size_t>(s)][static_cast<size_t>(forward.at(r, s).from + i)] += std::pow(10, r);
  return back;
}

template <class F> void for_each_exercise(const F& body) {
  for (const char* collective : collectives)
    for (int ranks = 1; ranks <= 5; ++ranks)
      for (const bool uneven : {false, true})
        for (const int root : {0, ranks - 1})
          body(Exercise{.collective = collective, .ranks = ranks, .uneven = uneven, .root = root});
}

Cells cells(int ranks, const std::function<bool()>& draw) {
  Cells all(static_cast<size_t>(ranks), std::vector<bool>(static_cast<size_t>(ranks)));
  for (auto& row : all)
    for (auto cell : row) cell = draw();
  return all;
}

Cells turned(const Cells& cells) {
  Cells turned = cells;
  for (size_t r = 0; r < cells.size(); ++r)
    for (size_t s = 0; s < cells.size(); ++s) turned[s][r] = cells[r][s];
  return turned;
}

}  // namespace

TEST_CASE("an exercise: what comes back is what the transpose says") {
  for_each_exercise([](const Exercise& exercise) {
    CAPTURE(exercise.collective, exercise.ranks, exercise.uneven, exercise.root);
    const Answer given = answer(exercise);
    CHECK(given.cotangents == digits(given.forward));
    CHECK(given.verdict.correct);
    REQUIRE_FALSE(given.verdict.names.empty());
    CHECK(given.verdict.names[0]->name == std::string("none"));
    CHECK(given.verdict.differences.empty());
    CHECK_FALSE(given.verdict.shows);
  });
}

TEST_CASE("an exercise: a wrong backward is named, and so is what it lacks") {
  std::set<std::string> named;
  for_each_exercise([&](Exercise exercise) {
    const Blocks forward = answer(exercise).forward;
    for (const Mistake& mistake : mistakes()) {
      exercise.mistake = mistake.name;
      CAPTURE(exercise.collective, exercise.ranks, exercise.uneven, exercise.root, exercise.mistake);
      const bool right = equal_for_all(mistake.made_of(forward), {forward.adjoint()});
      const Answer given = answer(exercise);
      CHECK(given.verdict.correct == right);
      CHECK(given.verdict.differences.empty() == right);
      CHECK(std::ranges::count(given.verdict.names, &mistake) == 1);
      if (!right) named.insert(mistake.name);
      if (!given.verdict.shows) CHECK(given.cotangents == digits(forward));
    }
  });
  CHECK(named.size() == mistakes().size() - 1);
}

TEST_CASE("an exercise: of drawn collectives, the transpose alone is right") {
  std::mt19937 random(1);
  for (int draw = 0; draw < 1000; ++draw) {
    const int ranks = 1 + draw % 5;
    Exercise exercise{.collective = "drawn", .drawn = cells(ranks, [&] { return random() % 2 == 0; }), .ranks = ranks};
    exercise.backward = turned(exercise.drawn);
    CAPTURE(draw, ranks);
    const Answer right = answer(exercise);
    REQUIRE(right.verdict.correct);
    REQUIRE(right.cotangents == digits(right.forward));
    const size_t r = random() % exercise.drawn.size(), s = random() % exercise.drawn.size();
    exercise.backward[r][s] = !exercise.backward[r][s];
    const Answer wrong = answer(exercise);
    REQUIRE_FALSE(wrong.verdict.correct);
    REQUIRE(wrong.verdict.shows);
    REQUIRE(wrong.verdict.differences.size() == 1);
  }
}

TEST_CASE("an exercise: some values cannot show a mistake") {
  // Each of two ranks gets the other's gradient, and both are equal.
  Exercise exercise{.collective = "all_reduce", .ranks = 2, .mistake = "ranks reversed"};
  CHECK(answer(exercise).verdict.correct);
  exercise = {.collective = "exscan", .ranks = 2, .mistake = "last rank missing"};
  const Answer given = answer(exercise);
  CHECK_FALSE(given.verdict.correct);
  CHECK(given.verdict.shows);
}

TEST_CASE("requests that are none are told") {
  const auto error = [](const char* request) { return nlohmann::json::parse(reply(request)).value("error", ""); };
  CHECK(error(R"({"collective": "all_shuffle"})") == "there is no collective 'all_shuffle'");
  CHECK(error(R"({"ranks": 6})") == "ranks: 6, not 1 to 5");
  CHECK(error(R"({"ranks": 2, "root": 2})") == "root: there is no rank 2 of 2");
  CHECK(error(R"({"mistake": "none at all"})") == "there is no mistake 'none at all'");
  CHECK(error(R"({"backward": [[true]]})") == "backward: a table of 3 x 3 cells is needed");
  CHECK(error(R"({"rank": 3})") == "an exercise has no 'rank'");
  CHECK(error("{") != "");
  CHECK(error(R"({"collective": "all_gather"})") == "");
}
