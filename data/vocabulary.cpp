// SPDX-License-Identifier: Apache-2.0
#include "weft/data/vocabulary.h"

#include <algorithm>
#include <sstream>

#include "weft/engine/tensor/error.h"

namespace weft {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80);
}

std::vector<std::string> words_in(const std::string& text) {
  std::vector<std::string> words;
  bool within = false;
  for (const char c : text) {
    if (is_letter(c)) {
      if (!within) words.emplace_back();
      words.back() += c;
    }
    within = is_letter(c);
  }
  return words;
}

std::string in_small_letters(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace

Vocabulary::Vocabulary(std::span<const std::string> texts) {
  std::map<std::string, int64_t> counts;
  for (const std::string& text : texts) {
    const std::vector<std::string> words = words_in(in_small_letters(text));
    length_ = std::clamp<int64_t>(std::ssize(words), length_, max_length);
    for (const std::string& word : words) ++counts[word];
  }
  std::vector<std::pair<int64_t, std::string>> frequent;
  for (const auto& [word, count] : counts) frequent.emplace_back(-count, word);
  std::sort(frequent.begin(), frequent.end());
  words_ = {"", "?"};
  for (const auto& [count, word] : frequent) {
    if (size() == max_words) break;
    numbers_.emplace(word, size());
    words_.push_back(word);
  }
}

Vocabulary::Vocabulary(std::vector<std::string> words, int64_t length) : words_(std::move(words)), length_(length) {
  require(!words_.empty() && words_[0].empty() && size() <= max_words, "Vocabulary: not the words of one");
  require(length >= 1 && length <= max_length, "Vocabulary: a length of ", length);
  for (int64_t i = 1; i < size(); ++i)
    if (const std::string& word = words_[static_cast<size_t>(i)]; word != "?") numbers_.emplace(word, i);
}

int64_t Vocabulary::number(const std::string& word) const {
  const auto known = numbers_.find(word);
  if (known != numbers_.end()) return known->second;
  return size() > 1 && words_[1] == "?" ? 1 : 0;
}

std::vector<int64_t> Vocabulary::numbers_in(const std::string& text) const {
  std::vector<int64_t> numbers;
  std::istringstream pieces(in_small_letters(text));
  for (std::string piece; pieces >> piece;) {
    const bool known = numbers_.count(piece) > 0;
    for (const std::string& word : known ? std::vector{piece} : words_in(piece)) numbers.push_back(number(word));
  }
  return numbers;
}

bool Vocabulary::knows(const std::string& text) const {
  const std::vector<int64_t> numbers = numbers_in(text);
  return std::any_of(numbers.begin(), numbers.end(), [&](int64_t each) { return each != number("?"); });
}

Tensor Vocabulary::tokens(std::span<const std::string> texts) const {
  Tensor all = Tensor::zeros({std::ssize(texts), length_}, DType::i64);
  auto* row = all.mutate<int64_t>();
  for (const std::string& text : texts) {
    const std::vector<int64_t> numbers = numbers_in(text);
    std::copy_n(numbers.begin(), std::min(length_, std::ssize(numbers)), row);
    row += length_;
  }
  return all;
}

}  // namespace weft
