// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of a parameter, or of a part of it, as they are held against hypotheses.
#include "tools/weft/dump/evidence.h"
#include "tools/weft/dump/stored_parameter.h"

namespace weft::verify {

Matrix flat(const StoredTensor& tensor);
ParameterEvidence loaded(const StoredParameter& parameter);

std::vector<Powers> powers_of(const Stored& of_ranks);

// Ranges of indices, by dimension; none: all of it.
struct Excerpt {
  struct Range {
    int64_t begin, end;
  };
  std::vector<std::vector<Range>> of_dimensions;

  Shape shape(const Shape& whole) const;
  Matrix read(const StoredTensor& tensor) const;  // flat
};
ParameterEvidence loaded(const StoredParameter& parameter, const Excerpt& part);

// Dimensions that ranks do not divide among themselves, so that a part of a tensor is reduced as all of it is.
std::vector<int> undivided_dimensions(const StoredParameter& parameter, const Layout& layout);
// At most so many elements of a tensor of this shape, or as few as its other dimensions allow: spread evenly over these
// dimensions, or around an element.
Excerpt spread_excerpt(const Shape& shape, const std::vector<int>& dimensions, int64_t elements);
Excerpt excerpt_around(int64_t element, const Shape& shape, const std::vector<int>& dimensions, int64_t elements);

}  // namespace weft::verify
