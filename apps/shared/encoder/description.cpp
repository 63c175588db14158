// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/encoder/description.h"

#include <algorithm>
#include <charconv>

#include "weft/data/files/input_file.h"  // MalformedInput
#include "weft/data/files/json_text.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

// What holds for every encoder of this version.
Metadata same_for_all() {
  return {{"encoder.version", "1"},
          {"encoder.epsilon", "1e-5"},  // of layer norms
          {"layout.images", "image, height, width, channel"},
          {"layout.convolution", "kernel height, kernel width, in, out"},
          {"layout.linear", "in, out"},
          {"picture.values", "pixels / 255"}};
}

std::string json_list(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ",") + in_quotes(name);
  return "[" + all + "]";
}

// The words of a file, with errors that name it.
struct Described {
  const Metadata& words;
  const std::string& file;

  [[noreturn]] void refuse(const std::string& what) const { throw MalformedInput(file + ": " + what); }
  const std::string& text(const std::string& key) const {
    const auto found = words.find(key);
    if (found == words.end()) refuse("its description of the encoder lacks " + in_quotes(key));
    return found->second;
  }
  int64_t count(const std::string& key, int64_t most) const {
    const std::string& digits = text(key);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < 1 || number > most)
      refuse(key + " is " + excerpt(digits) + ", not a number from 1 to " + weft::text(most));
    return number;
  }
  std::string choice(const std::string& key, const std::vector<std::string>& choices) const {
    const std::string& name = text(key);
    if (std::find(choices.begin(), choices.end(), name) == choices.end())
      refuse("this version of Weft does not know the " + key + " " + excerpt(name));
    return name;
  }
};

std::vector<std::string> list_in(const Described& described, const std::string& key) {
  std::vector<std::string> all;
  JsonText list(described.text(key), described.file + ": " + key, 0);
  list.array([&] { all.push_back(list.string()); });
  list.end();
  return all;
}

std::optional<Vocabulary> vocabulary_in(const Described& described) {
  if (described.words.count("sentences.words") == 0) return {};
  std::vector<std::string> words = list_in(described, "sentences.words");
  if (words.empty() || !words[0].empty() || std::ssize(words) > Vocabulary::max_words)
    described.refuse("sentences.words is not a list of an empty word and at most " + text(Vocabulary::max_words - 1) +
                     " others");
  return Vocabulary(std::move(words), described.count("sentences.length", Vocabulary::max_length));
}

DType dtype_in(const Described& words) {
  const std::string name = words.choice("encoder.dtype", {"f32", "f64", "bf16"});
  return name == "f32" ? DType::f32 : name == "f64" ? DType::f64 : DType::bf16;
}

}  // namespace

std::unique_ptr<Sequential> EncoderDescription::make(Device device) const {
  return encoder.make(name, {.key = {}, .dtype = dtype, .device = device});
}

std::unique_ptr<Matcher> EncoderDescription::make_matcher(Device device) const {
  if (!vocabulary) return nullptr;
  return std::make_unique<Matcher>(encoder.features(), *vocabulary, Init{.key = {}, .dtype = dtype, .device = device});
}

Metadata in_words(const EncoderDescription& about) {
  const EncoderChoice& encoder = about.encoder;
  Metadata words = {{"encoder.network", encoder.network},
                    {"encoder.width", text(encoder.width)},
                    {"encoder.parts", text(encoder.parts)},
                    {"encoder.features", text(encoder.features())},
                    {"encoder.dtype", text(about.dtype)},
                    {"picture.height", text(encoder.height)},
                    {"picture.width", text(encoder.across)},
                    {"picture.channels", text(encoder.channels)},
                    {"training.data", about.data},
                    {"training.method", about.method},
                    {"training.classes", json_list(about.classes)}};
  if (about.vocabulary) {
    words["sentences.words"] = json_list(about.vocabulary->words());
    words["sentences.length"] = text(about.vocabulary->length());
  }
  words.merge(same_for_all());
  return words;
}

EncoderDescription encoder_in(const Metadata& metadata, const std::string& file) {
  const Described words{metadata, file};
  if (metadata.count("encoder.version") == 0)
    words.refuse("it describes no encoder: it is no export, and no checkpoint of train_contrastive or train_clip");
  for (const auto& [key, value] : same_for_all()) words.choice(key, {value});
  constexpr int64_t most = 1 << 14;
  return {.encoder = {.network = words.choice("encoder.network", names_of_encoders()),
                      .width = words.count("encoder.width", 1024),
                      .parts = words.count("encoder.parts", most),
                      .height = words.count("picture.height", most),
                      .across = words.count("picture.width", most),
                      .channels = words.count("picture.channels", most)},
          .dtype = dtype_in(words),
          .data = words.text("training.data"),
          .method = words.text("training.method"),
          .classes = list_in(words, "training.classes"),
          .vocabulary = vocabulary_in(words)};
}

}  // namespace weft
