// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of one parameter in the files of all ranks, before they are read.
#include <map>
#include <optional>
#include <string>

#include "tools/weft/dump/mesh.h"
#include "tools/weft/dump/roles.h"
#include "tools/weft/dump/stored_tensor.h"

namespace weft::verify {

// Of each rank.
using Stored = std::vector<std::optional<StoredTensor>>;

struct StoredParameter {
  struct Term {  // of a local gradient
    size_t micro_batch;
    std::string use;
    StoredTensor tensor;
  };

  std::string name;
  std::vector<std::vector<Term>> local;  // by rank
  Stored reduced, previous, again, update, weight, mended;
  std::optional<StoredTensor> truth = {};       // of one process
  std::map<size_t, StoredTensor> inexact = {};  // the same, each time off by its precision
  Precision precision;                          // the lowest of `local` and `reduced`
  std::optional<Layout> layout = {};
  std::vector<std::string> hashes = {};

  StoredParameter(std::string name, size_t ranks) : name(std::move(name)), local(ranks), reduced(ranks) {}

  // `where` for errors.
  void place(const Role& role, StoredTensor tensor, size_t rank, const std::string& where);

  bool has_local() const;
  size_t passes(size_t rank) const;  // backward passes
  std::vector<Shape> local_shapes() const, reduced_shapes() const;
  int64_t elements() const;  // of all ranks, before and after the reducer
};

// What the reducer should make of the local gradients, on each rank.
std::vector<LazyBlock> expected(const StoredParameter& parameter, const Mesh& mesh, const Layout& layout);

}  // namespace weft::verify
