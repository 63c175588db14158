// SPDX-License-Identifier: Apache-2.0
#pragma once
// What train_clip adds to an encoder of pictures, so that pictures and sentences have features in one space.
#include "weft/data/vocabulary.h"
#include "weft/models/encoders.h"
#include "weft/models/text_tower.h"

namespace weft {

struct Matcher : Module {
  std::unique_ptr<Sequential> head;  // from the features of a picture
  TextTower sentences;

  Matcher(int64_t features, const Vocabulary& words, const Init& init)
      : head(projection_head("head", features, 256, width, init)),
        sentences("sentences", {.vocabulary = words.size(), .length = words.length(), .out = width}, init) {
    register_module(*head);
    register_module(sentences);
  }

 private:
  static constexpr int64_t width = 64;
};

}  // namespace weft
