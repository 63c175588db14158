// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/stored_parameter.h"

#include <algorithm>

namespace weft::verify {

void StoredParameter::place(const Role& role, StoredTensor tensor, size_t rank, const std::string& where) {
  const auto place_in = [&](Stored& of_ranks) {
    of_ranks.resize(local.size());
    of_ranks[rank] = std::move(tensor);
  };
  if (role.kind == Role::Kind::previous_gradient) return place_in(previous);
  if (role.kind == Role::Kind::repeated_gradient) return place_in(again);
  if (role.kind == Role::Kind::update) return place_in(update);
  if (role.kind == Role::Kind::weight) return place_in(weight);
  if (role.kind == Role::Kind::mended_gradient) return place_in(mended);
  if (role.kind == Role::Kind::true_gradient) {
    require(!truth, where, ": there are two true gradients of '", role.of, "'");
    truth = std::move(tensor);
    return;
  }
  if (role.kind == Role::Kind::inexact_gradient) {
    const bool is_new = inexact.emplace(role.micro_batch, std::move(tensor)).second;
    return require(is_new, where, ": there are two inexact gradients ", role.micro_batch, " of '", role.of, "'");
  }
  precision.lower_to(tensor.precision());
  if (role.kind == Role::Kind::reduced_gradient) return place_in(reduced);
  require(role.micro_batch < max_micro_batches, where, ": '", role.of, "' has a micro-batch ", role.micro_batch,
          ", but there are at most ", max_micro_batches);
  const bool first = std::ranges::find(local[rank], role.micro_batch, &Term::micro_batch) == local[rank].end();
  const bool has_uses = std::ranges::any_of(local, [](const auto& of_rank) {
    return std::ranges::any_of(of_rank, [](const Term& t) { return !t.use.empty(); });
  });
  require(first || (!role.use.empty() && has_uses && local[rank].back().tensor.shape() == tensor.shape()), where,
          ": there are two local gradients of '", role.of, "', which are not those of two uses of one shape");
  local[rank].push_back({role.micro_batch, role.use, std::move(tensor)});
}

bool StoredParameter::has_local() const {
  return std::ranges::any_of(local, [](const auto& of_rank) { return !of_rank.empty(); });
}

size_t StoredParameter::passes(size_t rank) const {
  size_t count = 0;
  for (const Term& term : local[rank]) count = std::max(count, term.micro_batch + 1);
  return count;
}

std::vector<Shape> StoredParameter::local_shapes() const {
  std::vector<Shape> shapes;
  for (const auto& of_rank : local) shapes.push_back(of_rank.empty() ? Shape{0} : of_rank.back().tensor.shape());
  return shapes;
}

std::vector<Shape> StoredParameter::reduced_shapes() const {
  std::vector<Shape> shapes;
  for (const auto& of_rank : reduced) shapes.push_back(of_rank ? of_rank->shape() : Shape{0});
  return shapes;
}

int64_t StoredParameter::elements() const {
  int64_t sum = 0;
  for (const auto& of_rank : local)
    for (const Term& term : of_rank) sum += term.tensor.shape().size();
  for (const Stored* each : {&reduced, &previous, &again, &update, &weight})
    for (const auto& of_rank : *each) sum += of_rank ? of_rank->shape().size() : 0;
  return sum;
}

std::vector<LazyBlock> expected(const StoredParameter& parameter, const Mesh& mesh, const Layout& layout) {
  const std::vector<Shape> shapes = parameter.local_shapes();
  std::vector<LazyBlock> blocks;
  for (size_t r = 0; r < shapes.size(); ++r) {
    std::vector<Lazy> terms;
    for (const StoredParameter::Term& term : parameter.local[r])
      terms.push_back(term.tensor.lazy(parameter.precision.epsilon));
    blocks.push_back({shapes[r], terms.size() == 1 ? terms[0] : lazy_sum(std::move(terms))});
  }
  return Reduction(mesh, layout, parameter.reduced_shapes())(std::move(blocks));
}

}  // namespace weft::verify
