// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/mesh_cases.h"

#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/parallel_linear.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

namespace weft::planted {
namespace {

const Init init = {.key = {11}, .dtype = DType::f64};
const Activation tanh_between = {.op = Unary::Tanh};
constexpr int64_t in = 3, hidden = 7, words = 11;
constexpr size_t dp = 0, other = 1;

// Rows of a rank along dp: different ones, and none on the second.
int64_t rows_of(int sample_rank) { return std::array{3, 0, 2, 1}[static_cast<size_t>(sample_rank % 4)]; }
double count(const verify::Mesh& mesh) {
  double all = 0;
  for (int r = 0; r < mesh.axes[dp].size; ++r) all += static_cast<double>(rows_of(r));
  return all;
}
Tensor samples(int sample_rank, int micro_batch, int use = 0) {
  return data_of(sample_rank, {rows_of(sample_rank), in}, 2 * micro_batch + use);
}
Tensor all_samples(const verify::Mesh& mesh, int micro_batch, int use = 0) {
  std::vector<Var> parts;
  for (int r = 0; r < mesh.axes[dp].size; ++r) parts.push_back(samples(r, micro_batch, use));
  return concat(parts, 0).value();
}
double count(Groups& groups) {
  double all = 0;
  for (int r = 0; r < groups[dp].size(); ++r) all += static_cast<double>(rows_of(r));
  return all;
}
Var placed(Tape& tape, const Tensor& x, const Communicator& group, Placement placement) {
  return with_placement(tape.constant(x), group, placement);
}

// A pair of linear layers, divided by columns and then by rows.

std::vector<NamedGradient> pair_on_rank(Groups& groups, int k) {
  Communicator& tp = groups[other];
  ParallelMlp mlp("mlp", in, hidden, in, init, tp, tanh_between);
  Tape tape;
  Gradients gradients;
  const auto given = [&](int use) {
    return placed(tape, samples(groups.coordinate(dp), k, use), tp, Placement::constant);
  };
  tape.backward(sum(square(mlp(given(0)) - given(1))) * (share_of_all(groups) / count(groups)), gradients);
  return {{"first.weight", "Partial(avg) Shard(1)", gradients[mlp.first.weight]},
          {"first.bias", "Partial(avg) Shard(0)", gradients[mlp.first.bias]},
          {"second.weight", "Partial(avg) Shard(0)", gradients[mlp.second.weight]},
          {"second.bias", "Partial(avg) Replicate()", gradients[mlp.second.bias]}};
}
std::vector<NamedGradient> pair_alone(const verify::Mesh& mesh, int k) {
  Mlp mlp("mlp", {in, hidden, in}, init, tanh_between);
  Tape tape;
  Gradients gradients;
  const Var x = tape.constant(all_samples(mesh, k)), target = tape.constant(all_samples(mesh, k, 1));
  tape.backward(sum(square(mlp(x) - target)) / count(mesh), gradients);
  const auto of = [&](size_t i) { return gradients[*mlp.parameters()[i]]; };
  return {
      {"first.weight", "", of(0)}, {"first.bias", "", of(1)}, {"second.weight", "", of(2)}, {"second.bias", "", of(3)}};
}

// A norm of rows that are divided within the group of features, between divided layers: sequence parallelism.

Tensor tokens(const verify::Mesh& mesh, int rank, int k) {
  return data_of(rank, {1 + (mesh.coordinate(dp, rank) + mesh.coordinate(other, rank)) % 3, in}, 30 + k);
}
const verify::Mesh of_sequences{{{"dp", 3}, {"tp", 2}}};

std::vector<NamedGradient> norm_on_rank(Groups& groups, int k) {
  Communicator& tp = groups[other];
  LayerNorm norm("norm", in, init);
  norm.gamma.value = data_of(0, {in}, 3);
  ColumnParallelLinear up("up", in, hidden, init, tp, tanh_between);
  RowParallelLinear down("down", hidden, in, init, tp);
  Tape tape;
  Gradients gradients;
  const Var x = tape.constant(tokens(of_sequences, number(groups.world), k));
  const Rows rows = tp.rows_of(x.shape()[0]);
  const Var h = up(all_gather_v(norm(x), rows, tp));
  const Var y = x + add_along(reduce_scatter_v(down.part(h), rows, tp), tape.watch(down.bias), -1);
  tape.backward(sum(square(y)) * share_of_all(groups), gradients);
  return {{"norm.gamma", "Partial(avg) Partial()", gradients[norm.gamma]},
          {"norm.beta", "Partial(avg) Partial()", gradients[norm.beta]},
          {"up.weight", "Partial(avg) Shard(1)", gradients[up.weight]},
          {"down.weight", "Partial(avg) Shard(0)", gradients[down.weight]},
          {"down.bias", "Partial(avg) Partial()", gradients[down.bias]}};
}
std::vector<NamedGradient> norm_alone(const verify::Mesh& mesh, int k) {
  LayerNorm norm("norm", in, init);
  norm.gamma.value = data_of(0, {in}, 3);
  Linear up("up", in, hidden, init, tanh_between), down("down", hidden, in, init);
  Tape tape;
  Gradients gradients;
  std::vector<Var> parts;
  for (int r = 0; r < mesh.ranks(); ++r) parts.push_back(tokens(mesh, r, k));
  const Var x = tape.constant(concat(parts, 0).value());
  tape.backward(sum(square(x + down(up(norm(x))))), gradients);
  return {{"norm.gamma", "", gradients[norm.gamma]},
          {"norm.beta", "", gradients[norm.beta]},
          {"up.weight", "", gradients[up.weight]},
          {"down.weight", "", gradients[down.weight]},
          {"down.bias", "", gradients[down.bias]}};
}

// A vocabulary divided over ranks: a table that is both the embedding and, transposed, the head, and cross entropy.

Tensor table() { return data_of(0, {words, in}, 40); }
std::vector<int64_t> words_of(int sample_rank, int k, int use) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < rows_of(sample_rank); ++i) all.push_back((5 * i + 3 * sample_rank + 4 * k + 7 * use) % words);
  return all;
}
// Positions within these words, and ones where a word is among them.
struct Lookup {
  Tensor positions, found;
  Lookup(const std::vector<int64_t>& wanted, FeatureRange mine)
      : positions(Tensor::zeros({static_cast<int64_t>(wanted.size())}, DType::i64)),
        found(Tensor::zeros({static_cast<int64_t>(wanted.size())}, DType::f64)) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const bool here = wanted[i] >= mine.begin && wanted[i] < mine.end;
      positions.mutate<int64_t>()[i] = here ? wanted[i] - mine.begin : 0;
      found.mutate<double>()[i] = here;
    }
  }
};
Var picked(const Var& logits, const Lookup& at) {
  const Var columns = reshape(constant_like(at.positions, logits), {at.positions.size(), 1});
  return reshape(take_along(logits, columns, 1), {at.positions.size()}) * constant_like(at.found, logits);
}

std::vector<NamedGradient> vocabulary_on_rank(Groups& groups, int k) {
  Communicator& tp = groups[other];
  const FeatureRange mine = own_features(words, tp);
  const Tensor own = slice(table(), 0, mine.begin, mine.end).value().clone();
  Tape tape;
  const Var embedding = with_placement(tape.watch(own), tp, Placement::varying),
            head = with_placement(tape.watch(own), tp, Placement::varying);
  const Lookup inputs(words_of(groups.coordinate(dp), k, 0), mine),
      targets(words_of(groups.coordinate(dp), k, 1), mine);
  const Var found = mul_along(gather_rows(embedding, constant_like(inputs.positions, embedding)),
                              constant_like(inputs.found, embedding), 0);
  const Var logits = matmul(tanh(all_reduce(found, tp)), head, Transpose::no, Transpose::yes);
  const Var losses = all_reduce_log_sum_exp(log_sum_exp(logits), tp) - all_reduce(picked(logits, targets), tp);
  const Var loss = sum(losses) * (share_of_all(groups) / count(groups));
  Gradients unused;
  const std::vector<Var> gradients = tape.gradient(loss, {embedding, head});
  return {{"table@embedding", "Partial(avg) Shard(0)", gradients[0].value()},
          {"table@head", "Partial(avg) Shard(0)", gradients[1].value()}};
}
std::vector<NamedGradient> vocabulary_alone(const verify::Mesh& mesh, int k) {
  std::vector<int64_t> inputs, targets;
  for (int r = 0; r < mesh.axes[dp].size; ++r) {
    for (const int64_t word : words_of(r, k, 0)) inputs.push_back(word);
    for (const int64_t word : words_of(r, k, 1)) targets.push_back(word);
  }
  Tape tape;
  const Var both = tape.watch(table());
  const Var h = tanh(gather_rows(both, tape.constant(Lookup(inputs, {0, words}).positions)));
  const Var losses =
      cross_entropy(matmul(h, both, Transpose::no, Transpose::yes), Lookup(targets, {0, words}).positions);
  return {{"table", "", tape.gradient(sum(losses) / count(mesh), {both})[0].value()}};
}

// An expert on each rank of an axis, to which all ranks send tokens: rank r sends one more to each next expert.

const verify::Mesh of_experts{{{"dp", 3}, {"ep", 2}}};
Counts dispatch(const verify::Mesh& mesh, int sample_rank) {
  Counts counts(static_cast<size_t>(mesh.axes[other].size));
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t e = 0; e < counts.size(); ++e)
      counts[r].push_back(static_cast<int64_t>((r + 2 * e + static_cast<size_t>(sample_rank)) % 3));
  return counts;
}
Tensor routed(const verify::Mesh& mesh, int rank, int k) {
  const Counts counts = dispatch(mesh, mesh.coordinate(dp, rank));
  return data_of(rank, {total_rows(counts[static_cast<size_t>(mesh.coordinate(other, rank))]), in}, 70 + k);
}
Tensor expert(int number) { return data_of(number, {in, in}, 80); }
Parameter dense_layer() { return Parameter("dense", data_of(0, {in, in}, 81)); }

std::vector<NamedGradient> experts_on_rank(Groups& groups, int k) {
  Communicator& ep = groups[other];
  const Parameter dense = dense_layer(), own("expert", expert(ep.rank().value));
  Tape tape;
  Gradients gradients;
  const Var x = tape.constant(routed(of_experts, number(groups.world), k));
  const Var arrived = all_to_all_v(tanh(matmul(x, tape.watch(dense))), dispatch(of_experts, groups.coordinate(dp)), ep);
  const Var w = with_placement(tape.watch(own), ep, Placement::varying);
  // The reducer averages over both axes: an expert's gradient is a sum over one of them already.
  tape.backward(sum(square(tanh(matmul(arrived, w)))) * static_cast<double>(groups.world.size()), gradients);
  return {{"dense", "Partial(avg) Partial(avg)", gradients[dense]},
          {"expert", "Partial(avg) Shard(0)", gradients[own].reshape({1, in, in}), true}};
}
std::vector<NamedGradient> experts_alone(const verify::Mesh& mesh, int k) {
  const Parameter dense = dense_layer();
  const int experts = mesh.axes[other].size;
  Tape tape;
  std::vector<Var> weights, losses;
  for (int e = 0; e < experts; ++e) weights.push_back(tape.watch(expert(e)));
  for (int r = 0; r < mesh.ranks(); ++r) {
    const Counts counts = dispatch(mesh, mesh.coordinate(dp, r));
    const Rows& sent = counts[static_cast<size_t>(mesh.coordinate(other, r))];
    const Var y = tanh(matmul(tape.constant(routed(mesh, r, k)), tape.watch(dense)));
    for (int e = 0; e < experts; ++e) {
      const int64_t begin = rows_before(sent, e);
      losses.push_back(sum(
          square(tanh(matmul(slice(y, 0, begin, begin + rows_of_rank(sent, e)), weights[static_cast<size_t>(e)])))));
    }
  }
  weights.push_back(tape.watch(dense));
  std::vector<Var> gradients = tape.gradient(sum(stack(losses, 0)), weights);
  const Tensor of_dense = gradients.back().value();
  gradients.pop_back();
  return {{"dense", "", of_dense}, {"expert", "", stack(gradients, 0).value()}};
}

std::vector<MeshCase> all_cases() {
  std::vector<MeshCase> all = {
      {"columns and rows", {{{"dp", 3}, {"tp", 2}}}, pair_on_rank, pair_alone},
      {"columns and rows of five ranks", {{{"dp", 1}, {"tp", 5}}}, pair_on_rank, pair_alone},
      {"norm in a sequence region", of_sequences, norm_on_rank, norm_alone},
      {"vocabulary", {{{"dp", 3}, {"tp", 2}}}, vocabulary_on_rank, vocabulary_alone},
      {"vocabulary on three ranks", {{{"dp", 2}, {"tp", 3}}}, vocabulary_on_rank, vocabulary_alone},
      {"experts", of_experts, experts_on_rank, experts_alone},
  };
  for (MeshCase& each : attention_cases()) all.push_back(std::move(each));
  return all;
}

}  // namespace

double share_of_all(Groups& groups) { return static_cast<double>(groups[dp].size()); }

const std::vector<MeshCase>& mesh_cases() {
  static const std::vector<MeshCase> all = all_cases();
  return all;
}

const MeshCase& mesh_case(const std::string& name) {
  for (const MeshCase& each : mesh_cases())
    if (each.name == name) return each;
  throw Error("no case is called " + name);
}

}  // namespace weft::planted
