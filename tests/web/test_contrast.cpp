// SPDX-License-Identifier: Apache-2.0
// What mistakes leave of a contrastive loss's gradient: parts that add up to all of it, and settings that are refused.
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tools/web/contrast.h"
#include "tools/web/requests.h"

using namespace weft;
using namespace weft::web;

TEST_CASE("a contrast: what is left of the gradient adds up") {
  for (const int ranks : {1, 2, 3, 5})
    for (const int steps : {0, 20}) {
      CAPTURE(ranks, steps);
      const ContrastOutcome outcome = contrast({.ranks = ranks, .steps = steps});
      const auto left = [&](const std::string& name) {
        for (const Left& each : outcome.left)
          if (each.mistake->name == name) return each;
        throw Error("there is no '" + name + "'");
      };
      CHECK(left("none").ratio == Approx(1));
      CHECK(left("mean").ratio == Approx(1.0 / ranks));
      CHECK(left("mean").cosine == Approx(1));
      // The two parts are all of it.
      const Left own = left("own slot"), others = left("without its own");
      CHECK(own.ratio * own.cosine + others.ratio * others.cosine == Approx(1).epsilon(1e-5));
      if (ranks == 1) CHECK(own.ratio == Approx(1));
      if (ranks > 1) CHECK(own.ratio < 0.99);
      if (ranks > 1) CHECK(left("off by a rank").cosine < 0.9);  // other rows' gradients
    }
  CHECK(nlohmann::json::parse(reply(R"({"contrast": {"ranks": 7}})"))["error"] ==
        "ranks: 7 do not divide 120 pairs, or are more than 12");
  CHECK(nlohmann::json::parse(reply(R"({"contrast": {"rank": 7}})"))["error"] == "a contrast has no 'rank'");
}
