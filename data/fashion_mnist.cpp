// SPDX-License-Identifier: Apache-2.0
#include "weft/data/fashion_mnist.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "weft/data/idx.h"

namespace weft {
namespace {

constexpr const char* debian_folder = "/usr/share/datasets/fashion-mnist";
constexpr const char* hint =
    "install Debian's package dataset-fashion-mnist, or name the folder of the four IDX files by --data or WEFT_DATA";

LabelledImages load_part(const std::filesystem::path& folder, const std::string& part) {
  const std::filesystem::path image_file = folder / (part + "-images-idx3-ubyte.gz");
  const std::filesystem::path label_file = folder / (part + "-labels-idx1-ubyte.gz");
  const Tensor images = read_idx(image_file, hint, fashion_mnist::max_images * 28 * 28);
  const Tensor labels = read_idx(label_file, hint, fashion_mnist::max_images);
  const auto check = [](bool ok, const std::filesystem::path& file, const std::string& what) {
    if (!ok) throw MalformedInput(file.string() + ": " + what);
  };
  check(images.shape().rank() == 3 && images.shape() == Shape{images.shape()[0], 28, 28} && images.size() > 0,
        image_file, "images of 28 x 28 are needed, not " + text(images.shape()));
  check(labels.shape() == Shape{images.shape()[0]}, label_file,
        text(images.shape()[0]) + " labels are needed, one per image, not " + text(labels.shape()));

  const auto *first = labels.data<uint8_t>(), *last = first + labels.size();
  const auto* wrong = std::find_if(first, last, [](uint8_t x) { return x >= fashion_mnist::classes; });
  const std::string class_of_wrong = wrong == last ? "" : text(int{*wrong});
  check(wrong == last, label_file,
        "label " + text(wrong - first) + " is " + class_of_wrong + ", which is no class from 0 to " +
            text(fashion_mnist::classes - 1));
  return {images.reshape({labels.size(), 28, 28, 1}), labels.to(DType::i64)};
}

}  // namespace

Pictures load_fashion_mnist(const std::filesystem::path& folder) {
  const char* from_environment = std::getenv("WEFT_DATA");
  const std::filesystem::path chosen = !folder.empty() ? folder : from_environment ? from_environment : debian_folder;
  return {.name = "Fashion-MNIST",
          .classes = {fashion_mnist::class_names.begin(), fashion_mnist::class_names.end()},
          .train = load_part(chosen, "train"),
          .test = load_part(chosen, "t10k"),
          .folder = chosen};
}

}  // namespace weft
