// SPDX-License-Identifier: Apache-2.0
// What a dump cannot tell, as the verifier predicts it from correct gradients, against what happens when the mistakes
// are in the dump.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/verify/planted.h"
#include "tools/weft/verdict/verdict.h"

using namespace weft;
using namespace weft::planted;
using verify::Matrix;
using verify::Outcome;

namespace {

// A dump in f32 that has the numbers of a hypothesis.
verify::SeamEvidence with_mistake(verify::SeamEvidence seam, const verify::Hypothesis& mistake) {
  size_t next = 0;
  const auto take = [&] { return Matrix(mistake.prediction.tensors.at(next++).cast<float>().cast<double>()); };
  for (auto& tower : seam.gradients)
    for (Matrix& gradient : tower) gradient = take();
  for (const std::string& name : seam.loss->scalars)
    std::ranges::fill(seam.scalars.at(name), take()(0, 0));  // the reducer takes the mean of equal numbers
  return seam;
}

bool lists(const std::vector<std::string>& titles, const std::string& title) {
  return std::ranges::find(titles, title) != titles.end();
}

// Every third dump has the same data on all ranks, and some have two ranks, which hide mistakes.
Features features_of(int dump) {
  const int ranks = 2 + dump % 4;
  std::vector<int64_t> rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(dump % 3 == 0 ? 5 : 3 + (dump + r * 7) % 6);
  Features features(rows, 6, DType::f32, static_cast<uint64_t>(dump));
  if (dump % 3 == 0)
    for (auto& tower : features.towers) std::ranges::fill(tower, Tensor(tower[0]));
  return features;
}

}  // namespace

TEST_CASE("a dump hides the mistakes that the verifier says it hides, and no others") {
  const char* names[] = {"clip", "siglip", "nt_xent", "info_nce", "dcl"};
  int hidden = 0, named = 0;
  for (int i = 0; i < 20; ++i) {
    const verify::SeamEvidence seam = correct(names[i % 5], features_of(i));
    verify::Dump dump;
    dump.ranks = seam.batch.ranks();
    dump.micro_batches = 2;
    const std::vector<std::string> blind_to = verify::verdict(seam, dump).blind_to;
    const std::vector<verify::Hypothesis> all = verify::hypotheses(seam, dump, verify::Rounding());
    for (size_t h = 1; h < all.size(); ++h) {
      const std::string title = verify::title(*all[h].signature, all[h].variant);
      const verify::Verdict verdict = verify::verdict(with_mistake(seam, all[h]), dump);
      INFO(names[i % 5] << ", dump " << i << ": " << title);
      CHECK((verdict.outcome == Outcome::correct) == lists(blind_to, title));
      if (verdict.outcome == Outcome::correct) {
        ++hidden;
        continue;
      }
      ++named;
      REQUIRE(verdict.best);
      const std::string found = verify::title(*verdict.best->signature, verdict.best->variant);
      CHECK((found == title || lists(verdict.same_as_best, title)));
    }
  }
  CHECK(hidden > 0);
  CHECK(named > 100);
}
