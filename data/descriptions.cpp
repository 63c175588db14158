// SPDX-License-Identifier: Apache-2.0
#include "weft/data/descriptions.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace weft {
namespace {

struct Kind {
  std::array<const char*, 3> names;
  const char* use;
};
constexpr std::array<Kind, fashion_mnist::classes> kinds = {{
    {{"t-shirt", "tee", "top with short sleeves"}, "worn in summer"},
    {{"pair of trousers", "pair of pants", "pair of jeans"}, "worn on the legs"},
    {{"pullover", "sweater", "jumper"}, "worn in winter"},
    {{"dress", "gown", "frock"}, "worn to a party"},
    {{"coat", "jacket", "overcoat"}, "worn outdoors"},
    {{"sandal", "flip-flop", "shoe with straps"}, "worn on the beach"},
    {{"shirt", "blouse", "top with buttons"}, "worn at work"},
    {{"sneaker", "trainer", "running shoe"}, "worn for sports"},
    {{"bag", "handbag", "purse"}, "carried by hand"},
    {{"boot", "ankle boot", "high shoe"}, "worn in the rain"},
}};

// NAME and USE are replaced by those of a class.
constexpr std::array templates = {"a picture of a NAME",   "this is a NAME", "one NAME in shades of grey",
                                  "here is a NAME to buy", "a NAME USE",     "something USE"};
constexpr const char* prompt = "this is a picture of one NAME";

std::string filled(std::string sentence, const Kind& kind, size_t name) {
  const auto put = [&](const std::string& mark, const char* words) {
    const size_t at = sentence.find(mark);
    if (at != std::string::npos) sentence.replace(at, mark.size(), words);
  };
  put("NAME", kind.names[name]);
  put("USE", kind.use);
  return sentence;
}

std::vector<std::string> words_of(const std::string& sentence) {
  std::istringstream text(sentence);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

// Calls f with the words of every possible sentence.
template <class F> void each_sentence(F f) {
  for (const Kind& kind : kinds) {
    for (size_t name = 0; name < kind.names.size(); ++name)
      for (const char* sentence : templates) f(words_of(filled(sentence, kind, name)));
    f(words_of(filled(prompt, kind, 0)));
  }
}

void write(const std::string& sentence, int64_t* tokens) {
  const std::vector<std::string>& known = vocabulary();
  for (const std::string& word : words_of(sentence))
    *tokens++ = std::lower_bound(known.begin(), known.end(), word) - known.begin();
}

Tensor blank(int64_t sentences) { return Tensor::zeros({sentences, sentence_length()}, DType::i64); }

}  // namespace

const std::vector<std::string>& vocabulary() {
  static const std::vector<std::string> all = [] {
    std::set<std::string> words = {""};
    each_sentence([&](const std::vector<std::string>& sentence) { words.insert(sentence.begin(), sentence.end()); });
    return std::vector<std::string>(words.begin(), words.end());
  }();
  return all;
}

int64_t sentence_length() {
  static const size_t longest = [] {
    size_t most = 0;
    each_sentence([&](const std::vector<std::string>& sentence) { most = std::max(most, sentence.size()); });
    return most;
  }();
  return static_cast<int64_t>(longest);
}

Tensor describe(const Tensor& labels, std::span<const int64_t> samples, const Random& key) {
  require(labels.dtype() == DType::i64 && labels.shape() == Shape{static_cast<int64_t>(samples.size())},
          "describe: i64 labels are needed, one for each of ", samples.size(), " samples, not ", labels.dtype(), " ",
          labels.shape());
  Tensor sentences = blank(labels.size());
  const int64_t* label = labels.data<int64_t>();
  int64_t* tokens = sentences.mutate<int64_t>();
  for (const int64_t sample : samples) {
    require(*label >= 0 && *label < fashion_mnist::classes, "describe: there is no class ", *label);
    const Kind& kind = kinds[static_cast<size_t>(*label++)];
    const auto draw = [&](uint64_t use, size_t choices) {
      return static_cast<size_t>(uniform_draw<double>(key.fork(use), static_cast<uint64_t>(sample)) *
                                 static_cast<double>(choices));
    };
    write(filled(templates[draw(0, templates.size())], kind, draw(1, kind.names.size())), tokens);
    tokens += sentence_length();
  }
  return sentences;
}

Tensor prompts() {
  Tensor sentences = blank(fashion_mnist::classes);
  int64_t* tokens = sentences.mutate<int64_t>();
  for (const Kind& kind : kinds) {
    write(filled(prompt, kind, 0), tokens);
    tokens += sentence_length();
  }
  return sentences;
}

std::vector<std::string> in_words(const Tensor& sentences) {
  std::vector<std::string> all;
  const int64_t* token = sentences.data<int64_t>();
  for (int64_t i = 0; i < sentences.shape()[0]; ++i) {
    std::string& sentence = all.emplace_back();
    for (int64_t place = 0; place < sentences.shape()[1]; ++place, ++token)
      if (*token > 0) sentence += (place > 0 ? " " : "") + vocabulary()[static_cast<size_t>(*token)];
  }
  return all;
}

}  // namespace weft
