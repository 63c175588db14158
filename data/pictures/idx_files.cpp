// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/idx_files.h"

#include <algorithm>

#include "weft/data/idx.h"
#include "weft/data/pictures/labelled_arrays.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The files of one part.
struct PartFiles {
  fs::path images, labels;  // empty if there is none

  void add(const fs::path& file, int rank) {
    fs::path& mine = rank == 1 ? labels : images;
    if (!mine.empty())
      throw MalformedInput(file.string() + ": " + mine.filename().string() + " has " +
                           (rank == 1 ? "labels" : "images") + " of the same part; name one of the two files");
    mine = file;
  }
};

bool is_of_tests(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  return has("t10k") || has("test") || has("val");
}

LabelledImages read_part(const PartFiles& files, int64_t max_bytes) {
  LabelledImages data;
  data.images = images_of(read_idx(files.images, "", max_bytes), files.images.string());
  const int64_t count = data.images.shape()[0];
  data.labels = files.labels.empty() ? no_labels(count)
                                     : labels_of(read_idx(files.labels, "", max_bytes), count, files.labels.string());
  return data;
}

Pictures with_parts(const fs::path& path, const PartFiles& train, const PartFiles& test, int64_t max_bytes) {
  if (train.images.empty()) throw MissingInput(path.string() + ": there is no IDX file of training images");
  Pictures pictures{
      .name = path.stem().string(), .classes = {}, .train = read_part(train, max_bytes), .test = {}, .folder = path};
  if (!test.images.empty()) {
    if (train.labels.empty() != test.labels.empty())
      throw MalformedInput(path.string() + ": one part has labels and the other has none");
    pictures.test = read_part(test, max_bytes);
  }
  pictures.classes = classes_of(pictures.train, pictures.test);
  return pictures;
}

fs::path labels_beside(const fs::path& images) {
  std::string name = images.filename().string();
  const auto put = [&](const std::string& word, const std::string& instead) {
    if (const size_t at = name.find(word); at != std::string::npos) name.replace(at, word.size(), instead);
  };
  put("images", "labels");
  put("idx3", "idx1");
  const fs::path labels = images.parent_path() / name;
  return labels != images && idx_rank(labels) == 1 ? labels : fs::path();
}

}  // namespace

std::optional<Pictures> load_idx(const fs::path& path, int64_t max_bytes) {
  if (!fs::is_directory(path)) {
    if (idx_rank(path) < 3) return std::nullopt;
    return with_parts(path, {path, labels_beside(path)}, {}, max_bytes);
  }
  constexpr int most_files = 16;  // a folder with more is something else
  PartFiles train, test;
  int files = 0;
  std::vector<fs::path> entries(fs::directory_iterator(path), {});
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    if (!fs::is_regular_file(entry) || ++files > most_files) continue;
    if (const int rank = idx_rank(entry); rank > 0) (is_of_tests(entry) ? test : train).add(entry, rank);
  }
  if (train.images.empty() && test.images.empty()) return std::nullopt;
  return with_parts(path, train, test, max_bytes);
}

}  // namespace weft
