// SPDX-License-Identifier: Apache-2.0
#pragma once
// Texts as sequences of tokens. A token is the number of a word; 0 is padding at the end, and 1 a word that is not
// known. Words are in small letters. They are runs of letters and digits, where whatever is not ASCII counts as a
// letter; but what stands between blanks is one word if it is known as such, as "t-shirt" may be.
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/engine/tensor/tensor.h"

namespace weft {

class Vocabulary {
 public:
  static constexpr int64_t max_words = 16384, max_length = 32;

  // The most frequent words of these texts, and of two with the same count the first in the alphabet.
  explicit Vocabulary(std::span<const std::string> texts);
  // The words of an earlier one. One without "?" as second word takes what it does not know for padding.
  Vocabulary(std::vector<std::string> words, int64_t length);

  const std::vector<std::string>& words() const { return words_; }
  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  int64_t length() const { return length_; }  // of the longest text in words, but at most max_length

  bool knows(const std::string& text) const;  // at least one word of it
  // i64 (texts, length()); what is longer is cut.
  Tensor tokens(std::span<const std::string> texts) const;

 private:
  std::vector<int64_t> numbers_in(const std::string& text) const;
  int64_t number(const std::string& word) const;  // of a word that is not known, that of "?"

  std::vector<std::string> words_;  // their places are the tokens
  std::map<std::string, int64_t> numbers_;
  int64_t length_ = 1;
};

}  // namespace weft
