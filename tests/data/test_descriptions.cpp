// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "tests/support/catch.h"
#include "weft/data/descriptions.h"

namespace weft {
namespace test_descriptions {

const Random key{5};

Tensor labels_of(const std::vector<double>& labels) {
  return Tensor::from({static_cast<int64_t>(labels.size())}, labels, DType::i64);
}

// All sentences for a class in many draws.
std::set<std::string> said_of(int64_t label) {
  const auto samples = samples_between(0, 400);
  const auto sentences = in_words(describe(Tensor::full({400}, static_cast<double>(label), DType::i64), samples, key));
  return {sentences.begin(), sentences.end()};
}

TEST_CASE("a description fits the class of its sample and is padded to the common length") {
  const Tensor sentences = describe(labels_of({7, 0, 9}), std::vector<int64_t>{40, 41, 42}, key);
  CHECK(sentences.shape() == Shape{3, sentence_length()});
  CHECK(sentences.dtype() == DType::i64);
  const auto words = in_words(sentences);
  for (size_t i = 0; i < 3; ++i) CHECK(said_of(std::vector<int64_t>{7, 0, 9}[i]).count(words[i]) == 1);
  bool padded = false;
  const int64_t* token = sentences.data<int64_t>();
  for (int64_t i = 0; i < sentences.size(); ++i) {
    CHECK((token[i] >= 0 && token[i] < static_cast<int64_t>(vocabulary().size())));
    if (i % sentence_length() == 0) padded = false;
    padded = padded || token[i] == 0;
    CHECK(padded == (token[i] == 0));
  }
}

TEST_CASE("no description occurs for two classes") {
  for (int64_t a = 0; a < fashion_mnist::classes; ++a) {
    CHECK(said_of(a).size() == 5 * 3 + 1);
    for (int64_t b = 0; b < a; ++b)
      for (const std::string& sentence : said_of(a)) CHECK(said_of(b).count(sentence) == 0);
  }
}

TEST_CASE("a sample's description depends on the key, not on the other samples") {
  const std::vector<double> labels = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto samples = samples_between(100, 108);
  const auto all = in_words(describe(labels_of(labels), samples, key));
  for (size_t i = 0; i < labels.size(); ++i)
    CHECK(in_words(describe(labels_of({labels[i]}), std::span(samples).subspan(i, 1), key)).front() == all[i]);
  CHECK(in_words(describe(labels_of(labels), samples, Random{6})) != all);
  CHECK(describe(labels_of({}), {}, key).shape() == Shape{0, sentence_length()});
}

TEST_CASE("prompts are one sentence per class of known words, and never occur as descriptions") {
  const auto asked = in_words(prompts());
  REQUIRE(asked.size() == fashion_mnist::classes);
  CHECK(asked[7] == "this is a picture of one sneaker");
  for (int64_t c = 0; c < fashion_mnist::classes; ++c) {
    CHECK(said_of(c).count(asked[static_cast<size_t>(c)]) == 0);
    std::set<int64_t> known;
    const Tensor many = describe(Tensor::full({400}, static_cast<double>(c), DType::i64), samples_between(0, 400), key);
    known.insert(many.data<int64_t>(), many.data<int64_t>() + many.size());
    for (int64_t i = 0; i < sentence_length(); ++i)
      CHECK(known.count(prompts().data<int64_t>()[c * sentence_length() + i]) == 1);
  }
}

TEST_CASE("labels that are no classes, or do not match the number of samples, are refused") {
  using Catch::Contains;
  CHECK_THROWS_WITH(describe(labels_of({10}), std::vector<int64_t>{0}, key), Contains("no class 10"));
  CHECK_THROWS_WITH(describe(labels_of({1, 2}), std::vector<int64_t>{0}, key), Contains("one for each of 1 samples"));
}

}  // namespace test_descriptions
}  // namespace weft
