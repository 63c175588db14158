// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a file says about the encoder in it, in the words of its metadata. docs/export.md lists them. Exports have these
// words, and so have the checkpoints of programs that train an encoder.
#include <optional>
#include <string>
#include <vector>

#include "apps/shared/encoder/matcher.h"
#include "weft/engine/tensor/named_tensor.h"

namespace weft {

struct EncoderDescription {
  EncoderChoice encoder;
  DType dtype = DType::f32;  // of its weights
  // How it was trained.
  std::string data, method;
  std::vector<std::string> classes;
  std::optional<Vocabulary> vocabulary = {};  // of the sentences that it was trained with, if there were any

  static constexpr const char* name = "encoder";  // its tensors are "encoder.0.weight", ...
  std::unique_ptr<Sequential> make(Device device) const;
  std::unique_ptr<Matcher> make_matcher(Device device) const;  // null without sentences
};

Metadata in_words(const EncoderDescription& about);
// MalformedInput, which names `file`, if the words describe no encoder, or one that this version does not know.
EncoderDescription encoder_in(const Metadata& words, const std::string& file);

}  // namespace weft
