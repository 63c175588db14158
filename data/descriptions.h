#pragma once
// Sentences about the classes of Fashion-MNIST, as sequences of tokens: numbers of words, and 0 as padding behind them.
#include <span>
#include <string>
#include <vector>

#include "data/fashion_mnist.h"

namespace weft {

// All words of all sentences in order of the alphabet, behind the empty one that stands for padding.
const std::vector<std::string>& vocabulary();
int64_t sentence_length();  // of the longest, in words

// A sentence for each label, i64 (n, sentence_length()): "a picture of a sneaker", or "something worn for sports".
// Which one is drawn by the sample's global number.
Tensor describe(const Tensor& labels, std::span<const int64_t> samples, const Random& key);

// A sentence for each class, of known words, that `describe` never says.
Tensor prompts();

std::vector<std::string> in_words(const Tensor& sentences);

}  // namespace weft
