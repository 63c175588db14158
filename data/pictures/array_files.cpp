// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/array_files.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>

#include "weft/data/files/safetensors.h"
#include "weft/data/numpy/npz.h"
#include "weft/data/pictures/labelled_arrays.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Arrays by their names, wherever they lie.
struct Arrays {
  fs::path path;
  std::vector<std::string> names;
  std::function<Tensor(const std::string&)> read;

  std::string whose(const std::string& name) const { return path.string() + ", " + name; }
  // The first of these names that is there; empty if none is.
  std::string first_of(std::initializer_list<const char*> wanted) const {
    for (const char* name : wanted)
      if (std::find(names.begin(), names.end(), name) != names.end()) return name;
    return "";
  }
};

Arrays in_npz(const fs::path& path, uint64_t max_bytes) {
  const auto file = std::make_shared<NpzFile>(path, max_bytes);
  return {path, file->names(), [file](const std::string& name) { return file->read(name); }};
}

Arrays in_safetensors(const fs::path& path) {
  const auto file = std::make_shared<SafetensorsFile>(path);
  std::vector<std::string> names;
  for (const SafetensorsFile::Entry& entry : file->tensors()) names.push_back(entry.name);
  return {path, names, [file](const std::string& name) { return file->read(name); }};
}

// The files in a folder that end so.
std::vector<fs::path> those_ending(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ending) found.push_back(entry.path());
  return found;
}

Tensor read_bounded(const fs::path& path, uint64_t max_bytes) {
  const InputFile file(path);
  if (file.bytes() > max_bytes)
    file.malformed(bytes_in_words(static_cast<double>(file.bytes())) + ", but at most " +
                   bytes_in_words(static_cast<double>(max_bytes)) + " are read; --cache raises this");
  return read_npy(path);
}

Arrays in_folder(const fs::path& folder, uint64_t max_bytes) {
  std::vector<std::string> names;
  for (const fs::path& file : those_ending(folder, ".npy")) names.push_back(file.stem().string());
  std::sort(names.begin(), names.end());
  return {folder, names, [=](const std::string& name) { return read_bounded(folder / (name + ".npy"), max_bytes); }};
}

Arrays in_npy(const fs::path& path, uint64_t max_bytes) {
  return {path, {"images"}, [=](const std::string&) { return read_bounded(path, max_bytes); }};
}

LabelledImages part(const Arrays& arrays, const std::string& images, const std::string& labels) {
  LabelledImages data;
  data.images = images_of(arrays.read(images), arrays.whose(images));
  const int64_t count = data.images.shape()[0];
  data.labels = labels.empty() ? no_labels(count) : labels_of(arrays.read(labels), count, arrays.whose(labels));
  return data;
}

Pictures pictures_in(const Arrays& arrays) {
  std::string images = arrays.first_of({"images", "x_train", "train_images", "x", "data"});
  if (images.empty() && arrays.names.size() == 1) images = arrays.names[0];
  const std::string labels = arrays.first_of({"labels", "y_train", "train_labels", "y"});
  const std::string test_images = arrays.first_of({"test_images", "x_test"});
  const std::string test_labels = arrays.first_of({"test_labels", "y_test"});
  if (images.empty()) {
    std::string there;
    for (const std::string& name : arrays.names) there += (there.empty() ? "" : ", ") + name;
    throw MalformedInput(arrays.path.string() +
                         ": no array is called images, x_train, train_images, x or data; there " +
                         (there.empty() ? "is none" : "are " + there));
  }
  Pictures pictures{.name = arrays.path.stem().string(),
                    .classes = {},
                    .train = part(arrays, images, labels),
                    .test = {},
                    .folder = arrays.path};
  if (!test_images.empty()) {
    if (labels.empty() != test_labels.empty())
      throw MalformedInput(arrays.path.string() + ": one part has labels and the other has none");
    pictures.test = part(arrays, test_images, test_labels);
  }
  pictures.classes = classes_of(pictures.train, pictures.test);
  pictures.notes.push_back("images are the array " + images +
                           (labels.empty() ? ", which has no labels" : ", labels are " + labels));
  return pictures;
}

}  // namespace

std::optional<Pictures> load_arrays(const fs::path& path, uint64_t max_bytes) {
  if (fs::is_directory(path)) {
    if (!those_ending(path, ".npy").empty()) return pictures_in(in_folder(path, max_bytes));
    for (const char* suffix : {".npz", ".safetensors"})
      if (const auto files = those_ending(path, suffix); files.size() == 1) return load_arrays(files[0], max_bytes);
    return std::nullopt;
  }
  const std::string ending = path.extension().string();
  if (ending == ".npy") return pictures_in(in_npy(path, max_bytes));
  if (ending == ".npz") return pictures_in(in_npz(path, max_bytes));
  if (ending == ".safetensors") return pictures_in(in_safetensors(path));
  return std::nullopt;
}

}  // namespace weft
