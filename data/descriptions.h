// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sentences about the classes of Fashion-MNIST as sequences of tokens. A token is the number of a word; 0 is padding at
// the end.
#include <span>
#include <string>
#include <vector>

#include "weft/data/fashion_mnist.h"

namespace weft {

// All words of all sentences in alphabetical order, after the empty word, which is padding.
const std::vector<std::string>& vocabulary();
int64_t sentence_length();  // of the longest sentence, in words

// A random sentence for each label, i64 (n, sentence_length()): "a picture of a sneaker", or "something worn for
// sports". The choice depends on the key and the sample's global number.
Tensor describe(const Tensor& labels, std::span<const int64_t> samples, const Random& key);

// A sentence for each class, in words of the vocabulary, that `describe` never returns.
Tensor prompts();

std::vector<std::string> in_words(const Tensor& sentences);

}  // namespace weft
