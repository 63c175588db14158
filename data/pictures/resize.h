// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pictures of any size as pictures of one size. The picture is scaled until it just covers the new size, and what is
// over on two opposite sides is cut off. Each new pixel is a mean of those below it, weighted by a triangle that is as
// wide as the scale demands, so that fine patterns do not alias. All is computed in integers: same bits everywhere.
#include "weft/data/pictures/bitmap.h"

namespace weft {

// Writes extent.values() values. A grey picture becomes a coloured one if `extent` has three channels.
void fit(const Bitmap& picture, const PictureExtent& extent, uint8_t* to);

// The size to which a set is brought: `side` squared if it is given, else its own if all pictures are alike and at most
// `default_side` high and wide, else that.
constexpr int64_t default_side = 64;
PictureExtent common_extent(int64_t side, const PictureExtent& first, bool all_alike);

}  // namespace weft
