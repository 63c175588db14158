// SPDX-License-Identifier: Apache-2.0
// Weft's side of bench/against_loader: decodes all pictures of a folder, brings them to one size, and makes two views
// of each, on one thread. Prints the seconds that it takes.
#include <cstdio>
#include <cstdlib>

#include "bench/measuring/measure.h"
#include "weft/data/augment.h"
#include "weft/data/batches.h"
#include "weft/data/pictures/image_file.h"
#include "weft/data/pictures/picture_list.h"
#include "weft/data/pictures/resize.h"

namespace weft::bench {
namespace {

Tensor decoded(const PictureList& list, int64_t side) {
  Tensor images({std::ssize(list.train), side, side, 3}, DType::u8);
  auto* to = images.mutate<uint8_t>();
  const PictureExtent extent{side, side, 3};
  for (const PictureFile& file : list.train) {
    fit(read_picture(list.folder / file.path, side), extent, to);
    to += extent.values();
  }
  return images;
}

void look_twice(const Tensor& images) {
  const Augmentation changes{.min_area = 0.2, .saturation = 0.4, .hue = 0.1, .grayscale = 0.2};
  const LabelledImages all{images, Tensor({images.shape()[0]}, DType::i64)};
  constexpr int64_t batch = 256;
  for (int64_t begin = 0; begin < all.count(); begin += batch) {
    const auto samples = samples_between(begin, std::min(begin + batch, all.count()));
    const Batch taken = take(all, samples);
    for (const uint64_t view : {1, 2}) augment(taken.images, samples, Random(1).fork(view), changes);
  }
}

void measure(const char* folder, int64_t side) {
  const PictureList list = list_pictures(folder);
  const double begin = now();
  look_twice(decoded(list, side));
  std::printf("{\"pictures\": %zu, \"seconds\": %.6f}\n", list.train.size(), now() - begin);
}

}  // namespace
}  // namespace weft::bench

int main(int count, char** words) {
  if (count != 3) return 64;
  weft::bench::measure(words[1], std::atoll(words[2]));
}
