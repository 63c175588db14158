// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/captions/sentences.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "apps/shared/captions/caption_file.h"
#include "apps/shared/launch/options.h"
#include "weft/data/descriptions.h"
#include "weft/data/files/input_file.h"
#include "weft/data/vocabulary.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

using Texts = std::vector<std::string>;

Sentences of_fashion_mnist(const Pictures& pictures) {
  return {.vocabulary = Vocabulary(vocabulary(), sentence_length()),
          .draw = [](const auto& labels, auto samples, const Random& key) { return describe(labels, samples, key); },
          .candidates = prompts(),
          .texts = prompts_for(pictures),
          .answers = pictures.test.labels,
          .measured = "zero-shot test accuracy"};
}

// Several texts about each of some things, as rows of tokens one after the other.
struct Choices {
  Tensor tokens;
  std::vector<int64_t> first;  // the row of each thing's first text, and one behind the last

  Choices(const std::vector<Texts>& about, const Vocabulary& words) : first{0} {
    Texts all;
    for (const Texts& texts : about) {
      all.insert(all.end(), texts.begin(), texts.end());
      first.push_back(std::ssize(all));
    }
    tokens = words.tokens(all);
  }
  void copy_one(int64_t thing, double draw, int64_t* to) const {
    const int64_t begin = first[static_cast<size_t>(thing)], count = first[static_cast<size_t>(thing) + 1] - begin;
    const int64_t row = begin + static_cast<int64_t>(draw * static_cast<double>(count)), length = tokens.shape()[1];
    std::copy_n(tokens.data<int64_t>() + row * length, length, to);
  }
};

// `about` has the texts about each thing, and thing(label, sample) says which one a picture shows.
template <class F> Sentences drawn_from(const std::vector<Texts>& about, const Vocabulary& words, const F& thing) {
  const auto choices = std::make_shared<const Choices>(about, words);
  return {.vocabulary = words,
          .draw =
              [=, length = words.length()](const Tensor& labels, std::span<const int64_t> samples, const Random& key) {
                Tensor sentences({std::ssize(samples), length}, DType::i64);
                auto* to = sentences.mutate<int64_t>();
                const auto* label = labels.data<int64_t>();
                for (const int64_t sample : samples) {
                  choices->copy_one(thing(*label++, sample), uniform_draw<double>(key, static_cast<uint64_t>(sample)),
                                    to);
                  to += length;
                }
                return sentences;
              },
          .candidates = {},
          .texts = {},
          .answers = {},
          .measured = {}};
}

Texts spoken(Texts names) {
  for (std::string& name : names) std::replace(name.begin(), name.end(), '_', ' ');
  return names;
}

Sentences of_classes(const Pictures& pictures) {
  std::vector<Texts> about;
  Texts all;
  for (const std::string& name : spoken(pictures.classes)) {
    about.push_back({"a picture of a " + name, "this is a " + name, "here is one " + name, "a " + name});
    all.insert(all.end(), about.back().begin(), about.back().end());
  }
  const Vocabulary words(all);
  Sentences sentences = drawn_from(about, words, [](int64_t label, int64_t) { return label; });
  sentences.texts = prompts_for(pictures);
  sentences.candidates = words.tokens(sentences.texts);
  sentences.answers = pictures.test.labels;
  sentences.measured = "zero-shot test accuracy";
  return sentences;
}

std::string file_alone(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The captions of each picture of a file, by its path or by its name alone.
class CaptionsByFile {
 public:
  explicit CaptionsByFile(const std::vector<Caption>& captions) {
    for (const auto& [file, text] : captions) {
      const std::string path = file.starts_with("./") ? file.substr(2) : file;
      texts_[path].push_back(text);
    }
  }
  const Texts* of(const std::string& path) const {
    for (const std::string& name : {path, file_alone(path)})
      if (const auto found = texts_.find(name); found != texts_.end()) return &found->second;
    return nullptr;
  }

 private:
  std::unordered_map<std::string, Texts> texts_;
};

// Leaves out pictures without a caption, and returns the captions of the others.
std::vector<Texts> keep_captioned(LabelledImages& data, std::vector<std::string>& files,
                                  const CaptionsByFile& captions) {
  std::vector<Texts> about;
  std::vector<int64_t> kept;
  std::vector<std::string> names;
  for (size_t i = 0; i < files.size(); ++i) {
    const Texts* texts = captions.of(files[i]);
    if (!texts) continue;
    about.push_back(*texts);
    kept.push_back(static_cast<int64_t>(i));
    names.push_back(files[i]);
  }
  if (kept.size() < files.size()) data = subset(data, kept);
  files = names;
  return about;
}

Sentences of_captions(Pictures& pictures, const std::string& caption_file) {
  if (pictures.train_files.empty())
    throw WrongOption(
        "--captions needs a folder of PNG and JPEG files in --data, whose names stand beside the captions");
  const int64_t all = pictures.train.count() + pictures.test.count();
  const CaptionsByFile captions(read_captions(caption_file));
  const std::vector<Texts> of_train = keep_captioned(pictures.train, pictures.train_files, captions);
  const std::vector<Texts> of_test = keep_captioned(pictures.test, pictures.test_files, captions);
  if (of_train.size() < 2)
    throw MalformedInput(caption_file + ": only " + text(of_train.size()) + " of the training pictures in " +
                         pictures.folder.string() + " have a caption here");
  if (const int64_t left_out = all - std::ssize(of_train) - std::ssize(of_test); left_out > 0)
    pictures.warnings.push_back(grouped(left_out) + " pictures have no caption in " + caption_file +
                                " and are left out");
  Texts to_learn, to_find;
  for (const Texts& texts : of_train) to_learn.insert(to_learn.end(), texts.begin(), texts.end());
  for (const Texts& texts : of_test) to_find.push_back(texts.front());
  const Vocabulary words(to_learn);
  pictures.notes.push_back(grouped(words.size() - 2) + " words in the training captions, " + text(words.length()) +
                           " in the longest that is read");
  Sentences sentences = drawn_from(of_train, words, [](int64_t, int64_t sample) { return sample; });
  sentences.candidates = words.tokens(to_find);
  sentences.texts = to_find;
  sentences.answers = Tensor::arange(std::ssize(to_find));
  sentences.measured = "test pictures whose caption is the nearest";
  return sentences;
}

bool is_fashion_mnist(const Pictures& pictures) { return pictures.name == "Fashion-MNIST"; }

}  // namespace

Texts prompts_for(const Pictures& pictures) {
  if (is_fashion_mnist(pictures)) return in_words(prompts());
  Texts all;
  for (const std::string& name : spoken(pictures.classes)) all.push_back("this is a picture of one " + name);
  return all;
}

Sentences sentences_about(Pictures& pictures, const std::string& caption_file) {
  if (!caption_file.empty()) return of_captions(pictures, caption_file);
  if (is_fashion_mnist(pictures)) return of_fashion_mnist(pictures);
  if (pictures.labelled()) return of_classes(pictures);
  throw WrongOption("--captions: pictures without classes need a file of captions, CSV or JSONL");
}

}  // namespace weft
