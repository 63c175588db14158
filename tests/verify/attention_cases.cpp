// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/mesh_cases.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/parallel_linear.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

namespace weft::planted {
namespace {

constexpr int64_t in = 3, tokens_of_rank = 2;
constexpr size_t dp = 0, other = 1;

// Attention over a sequence whose tokens are divided: keys and values travel around a ring.

struct Projections {
  Parameter queries{"queries", data_of(0, {in, 4}, 50)}, keys{"keys", data_of(0, {in, 4}, 51)},
      values{"values", data_of(0, {in, 4}, 52)};
};
Tensor sequence_part(int sample_rank, int part, int k) {
  return data_of(10 * sample_rank + part, {tokens_of_rank, in}, 60 + k);
}
Var attended(const Var& queries, const std::vector<Var>& keys, const std::vector<Var>& values) {
  const Var scores = matmul(queries, concat(keys, 0), Transpose::no, Transpose::yes);
  return sum(square(matmul(softmax(scores), concat(values, 0))));
}

std::vector<NamedGradient> ring_on_rank(Groups& groups, int k) {
  Communicator& cp = groups[other];
  Projections by;
  Tape tape;
  Gradients gradients;
  const Var x = tape.constant(sequence_part(groups.coordinate(dp), cp.rank().value, k));
  std::vector<Var> keys = {matmul(x, tape.watch(by.keys))}, values = {matmul(x, tape.watch(by.values))};
  for (int step = 1; step < cp.size(); ++step) {
    keys.push_back(shift(keys.back(), 1, cp));
    values.push_back(shift(values.back(), 1, cp));
  }
  tape.backward(attended(matmul(x, tape.watch(by.queries)), keys, values) * share_of_all(groups), gradients);
  return {{"queries", "Partial(avg) Partial()", gradients[by.queries]},
          {"keys", "Partial(avg) Partial()", gradients[by.keys]},
          {"values", "Partial(avg) Partial()", gradients[by.values]}};
}
std::vector<NamedGradient> ring_alone(const verify::Mesh& mesh, int k) {
  Projections by;
  Tape tape;
  Gradients gradients;
  std::vector<Var> losses;
  for (int r = 0; r < mesh.axes[dp].size; ++r) {
    std::vector<Var> parts;
    for (int part = 0; part < mesh.axes[other].size; ++part) parts.push_back(sequence_part(r, part, k));
    const Var x = tape.constant(concat(parts, 0).value());
    losses.push_back(attended(matmul(x, tape.watch(by.queries)), {matmul(x, tape.watch(by.keys))},
                              {matmul(x, tape.watch(by.values))}));
  }
  tape.backward(sum(stack(losses, 0)), gradients);
  return {
      {"queries", "", gradients[by.queries]}, {"keys", "", gradients[by.keys]}, {"values", "", gradients[by.values]}};
}

// Attention by heads that are divided over a group. One weight is that of the norm of every head; each head has a sink,
// a score of its own that takes attention to nothing.

constexpr int64_t heads = 5, width = 3, tokens_of_sequence = 4;
Tensor sequence(int sample_rank, int k) { return data_of(sample_rank, {tokens_of_sequence, in}, 90 + k); }
struct HeadWeights {
  Tensor up = data_of(0, {in, heads*width}, 94), norm = data_of(0, {width}, 95), sinks = data_of(0, {heads}, 96),
         down = data_of(0, {heads * width, in}, 97);
};

// Of these heads: what they add to the output of the layer.
Var attended_by_heads(const Var& x, const Var& up, const Var& norm, const Var& sinks, const Var& down) {
  const Var h = matmul(x, up);
  const int64_t n = x.shape()[0];
  std::vector<Var> outputs;
  for (int64_t head = 0; head < sinks.shape()[0]; ++head) {
    const Var rows = slice(h, 1, head * width, (head + 1) * width);
    const Var normed = mul_along(standardize(rows), norm, -1);
    const Var sink = reshape(repeat(reshape(slice(sinks, 0, head, head + 1), {}), 0, n), {n, 1});
    const Var scores = concat({matmul(normed, normed, Transpose::no, Transpose::yes), sink}, 1);
    outputs.push_back(matmul(slice(softmax(scores), 1, 0, n), normed));
  }
  return matmul(concat(outputs, 1), down);
}

std::vector<NamedGradient> heads_on_rank(Groups& groups, int k) {
  Communicator& tp = groups[other];
  const FeatureRange mine = own_features(heads, tp);
  const HeadWeights whole;
  const auto own = [&](const Tensor& x, int axis, int64_t unit) {
    return slice(x, axis, mine.begin * unit, mine.end * unit).value().clone();
  };
  Tape tape;
  const auto slice_of_group = [&](const Tensor& x) { return with_placement(tape.watch(x), tp, Placement::varying); };
  const Var up = slice_of_group(own(whole.up, 1, width)), sinks = slice_of_group(own(whole.sinks, 0, 1)),
            down = slice_of_group(own(whole.down, 0, width)), norm = tape.watch(whole.norm);
  const Var x = with_placement(tape.constant(sequence(groups.coordinate(dp), k)), tp, Placement::replicated);
  const Var y = all_reduce(attended_by_heads(x, up, norm, sinks, down), tp);
  const std::vector<Var> gradients = tape.gradient(sum(square(y)) * share_of_all(groups), {up, norm, sinks, down});
  return {{"up", "Partial(avg) Shard(1)", gradients[0].value()},
          {"norm", "Partial(avg) Partial()", gradients[1].value()},
          {"sinks", "Partial(avg) Shard(0)", gradients[2].value()},
          {"down", "Partial(avg) Shard(0)", gradients[3].value()}};
}
std::vector<NamedGradient> heads_alone(const verify::Mesh& mesh, int k) {
  const HeadWeights whole;
  Tape tape;
  const std::vector<Var> weights = {tape.watch(whole.up), tape.watch(whole.norm), tape.watch(whole.sinks),
                                    tape.watch(whole.down)};
  std::vector<Var> losses;
  for (int r = 0; r < mesh.axes[dp].size; ++r)
    losses.push_back(
        sum(square(attended_by_heads(tape.constant(sequence(r, k)), weights[0], weights[1], weights[2], weights[3]))));
  const std::vector<Var> gradients = tape.gradient(sum(stack(losses, 0)), weights);
  return {{"up", "", gradients[0].value()},
          {"norm", "", gradients[1].value()},
          {"sinks", "", gradients[2].value()},
          {"down", "", gradients[3].value()}};
}

}  // namespace

std::vector<MeshCase> attention_cases() {
  return {{"ring of two", {{{"dp", 3}, {"cp", 2}}}, ring_on_rank, ring_alone},
          {"ring of three", {{{"dp", 2}, {"cp", 3}}}, ring_on_rank, ring_alone},
          {"ring of four", {{{"dp", 2}, {"cp", 4}}}, ring_on_rank, ring_alone},
          {"heads", {{{"dp", 3}, {"tp", 2}}}, heads_on_rank, heads_alone}};
}

}  // namespace weft::planted
