// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/labelled_arrays.h"

#include <algorithm>
#include <cmath>

#include "weft/data/files/input_file.h"
#include "weft/data/pictures/class_names.h"

namespace weft {
namespace {

constexpr int64_t max_classes = 1 << 16;

[[noreturn]] void wrong(const std::string& whose, const std::string& what) {
  throw MalformedInput(whose + ": " + what);
}

bool are_channels(int64_t extent) { return extent == 1 || extent == 3 || extent == 4; }

struct Layout {
  int64_t count, height, width, channels;
  bool planes;  // channels before height
};

Layout layout_of(const Shape& shape, const std::string& whose) {
  if (shape.rank() == 3) return {shape[0], shape[1], shape[2], 1, false};
  if (shape.rank() == 4 && are_channels(shape[3])) return {shape[0], shape[1], shape[2], shape[3], false};
  if (shape.rank() == 4 && are_channels(shape[1])) return {shape[0], shape[2], shape[3], shape[1], true};
  wrong(whose, "images (n, h, w), (n, h, w, c) or (n, c, h, w) of 1, 3 or 4 channels c are needed, not " + text(shape));
}

Tensor as_bytes(const Tensor& array, const std::string& whose) {
  if (array.dtype() == DType::u8) return array;
  Tensor bytes(array.shape(), DType::u8);
  auto* to = bytes.mutate<uint8_t>();
  const bool whole = array.dtype() == DType::i64;
  const double most = whole ? 255 : 1, factor = whole ? 1 : 255;
  constexpr int64_t at_once = 1 << 16;
  const Tensor flat = array.reshape({array.size()});
  for (int64_t begin = 0; begin < flat.size(); begin += at_once) {
    const std::vector<double> some = flat.slice(begin, std::min(begin + at_once, flat.size())).values();
    for (size_t i = 0; i < some.size(); ++i) {
      if (!(some[i] >= 0 && some[i] <= most))
        wrong(whose, "value " + text(begin + static_cast<int64_t>(i)) + " is " + text(some[i]) + ", but " +
                         (whole ? "integers have to be from 0 to 255" : "floating values have to be from 0 to 1"));
      *to++ = static_cast<uint8_t>(std::floor(some[i] * factor + 0.5));
    }
  }
  return bytes;
}

}  // namespace

Tensor images_of(const Tensor& array, const std::string& whose) {
  const Layout of = layout_of(array.shape(), whose);
  if (array.size() == 0) wrong(whose, "there are no images in " + text(array.shape()));
  const Tensor bytes = as_bytes(array, whose);
  const int64_t channels = of.channels == 4 ? 3 : of.channels, pixels = of.height * of.width;
  if (channels == of.channels && (!of.planes || channels == 1))
    return bytes.reshape({of.count, of.height, of.width, channels});
  Tensor images({of.count, of.height, of.width, channels}, DType::u8);
  const int64_t pixel_step = of.planes ? 1 : of.channels, channel_step = of.planes ? pixels : 1;
  auto* to = images.mutate<uint8_t>();
  for (int64_t n = 0; n < of.count; ++n) {
    const uint8_t* from = bytes.data<uint8_t>() + n * pixels * of.channels;
    for (int64_t i = 0; i < pixels; ++i)
      for (int64_t c = 0; c < channels; ++c) *to++ = from[i * pixel_step + c * channel_step];
  }
  return images;
}

Tensor labels_of(const Tensor& array, int64_t images, const std::string& whose) {
  const Shape& shape = array.shape();
  const bool whole = array.dtype() == DType::u8 || array.dtype() == DType::i64;
  if (!whole || array.size() != images || (shape != Shape{images} && shape != Shape{images, 1}))
    wrong(whose, text(images) + " labels are needed, one whole number per image, not " + text(array.dtype()) + " " +
                     text(shape));
  const Tensor labels = array.to(DType::i64).reshape({images});
  for (int64_t i = 0; i < images; ++i)
    if (const int64_t label = labels.data<int64_t>()[i]; label < 0 || label >= max_classes)
      wrong(whose,
            "label " + text(i) + " is " + text(label) + ", which is no class from 0 to " + text(max_classes - 1));
  return labels;
}

Tensor no_labels(int64_t images) { return Tensor::full({images}, -1, DType::i64); }

std::vector<std::string> classes_of(const LabelledImages& train, const LabelledImages& test) {
  int64_t last = -1;
  for (const LabelledImages* part : {&train, &test})
    for (int64_t i = 0; part->labels.defined() && i < part->count(); ++i)
      last = std::max(last, part->labels.data<int64_t>()[i]);
  return numbered_classes(last + 1);
}

}  // namespace weft
