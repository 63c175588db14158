// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/cifar.h"

#include <algorithm>
#include <sstream>

#include "weft/data/files/input_file.h"
#include "weft/data/pictures/class_names.h"
#include "weft/engine/text/file_text.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t side = 32, plane = side * side, pixels = 3 * plane;

struct Kind {
  const char* name;
  int64_t classes;
  int64_t labels;  // in a record; the last one counts
  const char* names_file;
  std::vector<std::string> train, test;

  int64_t record() const { return labels + pixels; }
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"CIFAR-10",
       10,
       1,
       "batches.meta.txt",
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
       {"test_batch.bin"}},
      {"CIFAR-100", 100, 2, "fine_label_names.txt", {"train.bin"}, {"test.bin"}}};
  return all;
}

LabelledImages read_records(const Kind& kind, const std::vector<fs::path>& files) {
  std::vector<InputFile> open;
  int64_t count = 0;
  for (const fs::path& path : files) {
    const InputFile& file = open.emplace_back(path);
    const auto bytes = static_cast<int64_t>(file.bytes());
    if (bytes == 0 || bytes % kind.record() != 0)
      file.malformed(text(bytes) + " bytes are no whole number of records of " + kind.name + ", which have " +
                     text(kind.record()) + " each");
    count += bytes / kind.record();
  }
  LabelledImages data{Tensor({count, side, side, 3}, DType::u8), Tensor({count}, DType::i64)};
  auto* image = data.images.mutate<uint8_t>();
  auto* label = data.labels.mutate<int64_t>();
  std::vector<uint8_t> record(static_cast<size_t>(kind.record()));
  for (const InputFile& file : open) {
    for (uint64_t at = 0; at < file.bytes(); at += record.size()) {
      file.read(at, record.data(), record.size());
      const uint8_t* values = record.data() + kind.labels;
      if (values[-1] >= kind.classes)
        file.malformed("record " + text(at / record.size()) + " has the label " + text(int{values[-1]}) +
                       ", which is no class from 0 to " + text(kind.classes - 1));
      *label++ = values[-1];
      for (int64_t i = 0; i < plane; ++i)
        for (int64_t c = 0; c < 3; ++c) *image++ = values[c * plane + i];
    }
  }
  return data;
}

// One name per line, or names of numbers if there is no such file.
std::vector<std::string> classes_of(const Kind& kind, const fs::path& folder) {
  std::istringstream lines(file_text(folder / kind.names_file, 1 << 16));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);)
    if (!name.empty()) names.push_back(name);
  return std::ssize(names) == kind.classes ? names : numbered_classes(kind.classes);
}

Pictures with_parts(const Kind& kind, const fs::path& folder, const std::vector<fs::path>& train,
                    const std::vector<fs::path>& test) {
  return {.name = kind.name,
          .classes = classes_of(kind, folder),
          .train = read_records(kind, train),
          .test = read_records(kind, test),
          .folder = folder};
}

std::vector<fs::path> those_there(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<fs::path> all;
  for (const std::string& name : names)
    if (fs::exists(folder / name)) all.push_back(folder / name);
  return all;
}

// A file under any name is of the kind whose records fit.
const Kind& kind_of_file(const fs::path& file) {
  const auto bytes = static_cast<int64_t>(fs::file_size(file));
  for (const Kind& kind : kinds()) {
    const auto is_it = [&](const std::string& name) { return file.filename() == name; };
    if (std::any_of(kind.train.begin(), kind.train.end(), is_it) ||
        std::any_of(kind.test.begin(), kind.test.end(), is_it))
      return kind;
  }
  return bytes % kinds()[0].record() != 0 && bytes % kinds()[1].record() == 0 ? kinds()[1] : kinds()[0];
}

}  // namespace

std::optional<Pictures> load_cifar(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    if (path.extension() != ".bin") return std::nullopt;
    const Kind& kind = kind_of_file(path);
    return with_parts(kind, path.parent_path(), {path}, {});
  }
  for (const Kind& kind : kinds()) {
    const auto train = those_there(path, kind.train), test = those_there(path, kind.test);
    if (train.empty() && test.empty()) continue;
    if (train.empty()) throw MissingInput((path / kind.train[0]).string() + ": no such file");
    return with_parts(kind, path, train, test);
  }
  return std::nullopt;
}

}  // namespace weft
