// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/open_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "weft/data/fashion_mnist.h"
#include "weft/data/files/input_file.h"
#include "weft/data/pictures/array_files.h"
#include "weft/data/pictures/cifar.h"
#include "weft/data/pictures/held_out.h"
#include "weft/data/pictures/idx_files.h"
#include "weft/data/pictures/resize.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_fashion_mnist(const fs::path& folder) {
  for (const char* part : {"train", "t10k"})
    for (const char* kind : {"images-idx3", "labels-idx1"})
      if (fs::exists(folder / (std::string(part) + "-" + kind + "-ubyte.gz"))) return true;
  return false;
}

PictureExtent extent_of(const Tensor& images) {
  const Shape& shape = images.shape();
  return {shape[1], shape[2], shape[3]};
}

// A coloured part makes the other one coloured.
void resize(LabelledImages& data, const PictureExtent& extent) {
  const PictureExtent before = extent_of(data.images);
  if (before == extent) return;
  Tensor images({data.count(), extent.height, extent.width, extent.channels}, DType::u8);
  auto* to = images.mutate<uint8_t>();
  for (int64_t i = 0; i < data.count(); ++i, to += extent.values()) {
    const uint8_t* from = data.images.data<uint8_t>() + i * before.values();
    fit({before, {from, from + before.values()}}, extent, to);
  }
  data.images = images;
}

Pictures finished(Pictures pictures, const WantedPictures& wanted) {
  if (pictures.test.images.defined() && pictures.test.images.size() == 0) pictures.test = {};
  const bool divided = pictures.test.images.defined();
  const PictureExtent first = extent_of(pictures.train.images),
                      second = divided ? extent_of(pictures.test.images) : first;
  const bool alike = first.height == second.height && first.width == second.width;
  PictureExtent extent = common_extent(wanted.side, first, alike);
  extent.channels = std::max(first.channels, second.channels);
  check_bytes(pictures.train.count() + (divided ? pictures.test.count() : 0), extent, wanted);
  if (!divided) hold_out(pictures);
  if (extent.height != first.height || extent.width != first.width || !alike)
    pictures.notes.push_back(note_of_resizing(extent));
  for (LabelledImages* part : {&pictures.train, &pictures.test}) resize(*part, extent);
  return pictures;
}

std::optional<Pictures> load_file_of_many(const WantedPictures& wanted) {
  if (auto cifar = load_cifar(wanted.path)) return cifar;
  // Arrays of f32 take four times the bytes of the pictures.
  if (auto arrays = load_arrays(wanted.path, static_cast<uint64_t>(4 * wanted.max_bytes))) return arrays;
  return load_idx(wanted.path, wanted.max_bytes);
}

PictureList list_of(const fs::path& path) {
  if (!fs::is_directory(path))
    throw MalformedInput(path.string() +
                         ": neither a folder nor a file of many pictures (IDX, .npy, .npz, "
                         ".safetensors, or CIFAR's .bin)");
  PictureList list = list_pictures(path);
  if (list.train.empty() && list.test.empty())
    throw MalformedInput(path.string() +
                         ": there are no pictures in it: no PNG or JPEG files, no IDX, .npy, .npz or "
                         ".safetensors files, and none of CIFAR's");
  return list;
}

}  // namespace

void check_bytes(int64_t pictures, const PictureExtent& extent, const WantedPictures& wanted) {
  const double bytes = static_cast<double>(pictures) * static_cast<double>(extent.values());
  const auto most = static_cast<double>(wanted.max_bytes);
  if (bytes <= most) return;
  const auto fits = static_cast<int64_t>(std::sqrt(most / static_cast<double>(pictures * extent.channels)));
  throw TooManyPictures(grouped(pictures) + " pictures of " + text(extent.height) + " x " + text(extent.width) + " x " +
                        text(extent.channels) + " would take " + bytes_in_words(bytes) +
                        " of memory, more than --cache allows (" + bytes_in_words(most) + ")" +
                        (fits >= 4 ? "; --size " + text(fits) + " would fit" : ""));
}

std::variant<Pictures, PictureList> open_pictures(const WantedPictures& wanted) {
  const char* from_environment = std::getenv("WEFT_DATA");
  const fs::path path = !wanted.path.empty() ? wanted.path : from_environment ? from_environment : "";
  const WantedPictures here{path, wanted.side, wanted.max_bytes};
  if (path.empty() || is_fashion_mnist(path)) return finished(load_fashion_mnist(path), here);
  if (!fs::exists(path))
    throw MissingInput(path.string() +
                       ": no such file or folder; docs/data.md says what --data may name, and without it Debian's "
                       "package dataset-fashion-mnist is read");
  if (auto pictures = load_file_of_many(here)) return finished(std::move(*pictures), here);
  return list_of(path);
}

std::string summary(const Pictures& pictures) {
  return grouped(pictures.train.count()) + " pictures for training and " + grouped(pictures.test.count()) +
         " for tests, " + text(pictures.height()) + " x " + text(pictures.across()) + ", " +
         (pictures.channels() == 1 ? "grey" : "coloured") + ", " +
         (pictures.labelled() ? grouped(pictures.count_of_classes()) + " classes" : "without classes");
}

std::string note_of_resizing(const PictureExtent& extent) {
  return "every picture is resized to " + text(extent.height) + " x " + text(extent.width) +
         ": scaled until it covers that, and what is over is cut off on both sides";
}

}  // namespace weft
