// SPDX-License-Identifier: Apache-2.0
// A data set with two equal parts. The first two bytes give the length of the image file; the rest is the label file.
#include "weft/data/fashion_mnist.h"

#include "tests/fuzz/memory_file.h"
#include "tests/support/scratch_folder.h"

namespace weft::fuzz {
namespace {

struct Folder {
  MemoryFile images, labels;
  ScratchFolder folder;

  Folder() {
    for (const std::string part : {"train", "t10k"}) {
      std::filesystem::create_symlink(images.path(), folder / (part + "-images-idx3-ubyte.gz"));
      std::filesystem::create_symlink(labels.path(), folder / (part + "-labels-idx1-ubyte.gz"));
    }
  }
};

}  // namespace

void read(std::string_view bytes) {
  static const Folder place;
  const auto at = [&](size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : size_t{0}; };
  const size_t of_images = at(0) | at(1) << 8;
  bytes.remove_prefix(std::min<size_t>(2, bytes.size()));
  place.images.hold(bytes.substr(0, of_images));
  place.labels.hold(bytes.substr(std::min(of_images, bytes.size())));
  const Pictures data = load_fashion_mnist(place.folder.path);
  must(data.train.images.shape()[0] == data.train.count() && data.test.count() > 0, "every image has its label");
}

}  // namespace weft::fuzz
