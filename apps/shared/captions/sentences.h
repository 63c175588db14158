// SPDX-License-Identifier: Apache-2.0
#pragma once
// What train_clip says about pictures: Fashion-MNIST's sentences, the captions of a file, or sentences with the names
// of the classes.
#include <functional>
#include <string>

#include "weft/data/pictures.h"
#include "weft/data/vocabulary.h"

namespace weft {

struct Sentences {
  Vocabulary vocabulary;
  // A sentence for each of these training pictures, i64 (n, length). The choice among several depends on the key and
  // the picture's number.
  std::function<Tensor(const Tensor& labels, std::span<const int64_t> samples, const Random& key)> draw;

  // Test pictures look for their own among these.
  Tensor candidates;               // i64 (m, length)
  std::vector<std::string> texts;  // the same in words
  Tensor answers;                  // i64: for each test picture, the number of its sentence
  std::string measured;            // what the fraction of right ones is called
};

// A sentence about each class, which is in no training.
std::vector<std::string> prompts_for(const Pictures& pictures);

// Leaves pictures out that have no caption. Throws WrongOption if there is nothing to say.
Sentences sentences_about(Pictures& pictures, const std::string& caption_file);

}  // namespace weft
