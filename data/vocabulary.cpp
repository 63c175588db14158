// SPDX-License-Identifier: Apache-2.0
#include "weft/data/vocabulary.h"

#include <algorithm>

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
      words.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    within = is_letter(c);
  }
  return words;
}

}  // namespace

Vocabulary::Vocabulary(std::span<const std::string> texts) {
  std::map<std::string, int64_t> counts;
  for (const std::string& text : texts) {
    const std::vector<std::string> words = words_in(text);
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

Tensor Vocabulary::tokens(std::span<const std::string> texts) const {
  Tensor all = Tensor::zeros({std::ssize(texts), length_}, DType::i64);
  auto* row = all.mutate<int64_t>();
  for (const std::string& text : texts) {
    const std::vector<std::string> words = words_in(text);
    for (int64_t i = 0; i < std::min(length_, std::ssize(words)); ++i) {
      const auto known = numbers_.find(words[static_cast<size_t>(i)]);
      row[i] = known == numbers_.end() ? 1 : known->second;
    }
    row += length_;
  }
  return all;
}

}  // namespace weft
