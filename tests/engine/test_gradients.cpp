// SPDX-License-Identifier: Apache-2.0
// Checks of all registered ops; an op that is not registered cannot be recorded.
#include <set>

#include "tests/support/catch.h"
#include "tests/support/distributed_checks.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/observer.h"
#include "weft/engine/tape/record.h"

using namespace weft;

namespace {

// The ops that are recorded while this object lives.
class SeenOps final : public Tape::Observer {
 public:
  explicit SeenOps(Tape& tape) : tape_(tape) { tape_.observe(*this); }
  ~SeenOps() override { tape_.forget(*this); }
  void computed(const Var&, const Op& op, std::span<const Var* const>) override { ops.insert(&op); }
  void watched(const Var&, const Parameter*) override {}
  void placement_changed(const Var&) override {}
  void walk_begins(bool) override {}
  void arrived(const Var&, const std::string&, int64_t, Placements) override {}
  void walk_ends(bool) override {}
  void collective_begins(const void*, const std::string&) override {}

  std::set<const Op*> ops;

 private:
  Tape& tape_;
};

// Ops that no test checks: without samples and in no distributed case.
std::vector<std::string> unchecked_ops() {
  std::set<const Op*> checked[2];  // by rank, because some ops run on one rank only, such as receive
  for (const DistributedCase* c : DistributedCase::all())
    run_ranks(2, [&](Communicator& comm) {
      Tape tape;
      SeenOps seen(tape);
      c->call(inputs_of(*c, comm, tape), comm);
      checked[comm.rank().value].merge(seen.ops);
    });
  std::vector<std::string> names;
  for (const Op* op : Op::all())
    if (op->samples.empty() && !checked[0].contains(op) && !checked[1].contains(op)) names.push_back(op->name);
  return names;
}

std::vector<std::string> repeated_names() {
  std::set<std::string> names;
  std::vector<std::string> repeated;
  for (const Op* op : Op::all())
    if (!names.insert(op->name).second) repeated.push_back(op->name);
  return repeated;
}

}  // namespace

TEST_CASE("every op's first and second derivatives match finite differences on every device") {
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (!available(device)) continue;
    for (const Op* op : Op::all())
      for (const Sample& sample : op->samples) {
        INFO(op->name << " " << sample.label << " on " << text(device));
        const GradientCheck check(sample.call, sample.shapes, sample.low, sample.high, device);
        const Mismatch first = check.first_order(), second = check.second_order();
        CAPTURE(first.numeric, first.analytic, second.numeric, second.analytic);
        CHECK(first.ok());
        CHECK(second.ok());
      }
  }
}

TEST_CASE("every op has samples or occurs in a distributed case") {
  using Names = std::vector<std::string>;
  CHECK(Op::all().size() > 50);
  CHECK(unchecked_ops() == Names{});
  const Op planted_op{"reduce_scat", {}};  // the beginning of another op's name
  CHECK(unchecked_ops() == Names{"reduce_scat"});
}

TEST_CASE("op names are unique") {
  using Names = std::vector<std::string>;
  CHECK(repeated_names() == Names{});
  const Op planted_op{"all_gather", {}};
  CHECK(repeated_names() == Names{"all_gather"});
}

namespace {
std::vector<Var> typed(const Sample& sample, DType dtype, Tape& tape) {
  std::vector<Var> x;
  uint64_t stream = 0;
  for (const Shape& shape : sample.shapes) {
    // Every type holds these values exactly, so the types differ only by their arithmetic.
    const Tensor exact = Tensor::uniform(shape, {5, stream++}, sample.low, sample.high, DType::bf16);
    x.push_back(tape.watch(exact.to(dtype)));
  }
  return x;
}

// The largest error of values and gradients against f64, relative to each tensor's largest element.
double error_of(const Sample& sample, DType dtype) {
  double worst = 0;
  std::vector<std::vector<double>> results[2];
  for (const DType type : {DType::f64, dtype}) {
    Tape tape;
    const std::vector<Var> x = typed(sample, type, tape);
    const Var y = sample.call(x);
    auto& result = results[type == dtype];
    result.push_back(y.value().values());
    const Tensor seed = Tensor::uniform(y.shape(), {6}, -1, 1, DType::bf16).to(y.dtype());
    for (const Var& g : tape.gradient(y, Var(seed), x)) result.push_back(g.value().values());
  }
  for (size_t t = 0; t < results[0].size(); ++t) {
    double scale = 1e-3, difference = 0;
    for (size_t i = 0; i < results[0][t].size(); ++i) {
      scale = std::max(scale, std::abs(results[0][t][i]));
      difference = std::max(difference, std::abs(results[0][t][i] - results[1][t][i]));
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}
}  // namespace

TEST_CASE("values and gradients in f32 and bf16 agree with f64 to their own precision") {
  for (const Op* op : Op::all())
    for (const Sample& sample : op->samples) {
      if (op->name == "cast") continue;  // its sample names a type
      INFO(op->name << " " << sample.label);
      CHECK(error_of(sample, DType::f32) <= 20 * 0x1p-24);
      CHECK(error_of(sample, DType::bf16) <= 20 * 0x1p-9);
    }
}

TEST_CASE("the gradient check detects a wrong pullback") {
  const Op wrong_op{"wrong", {}};
  const auto doubled = [&](auto x) {
    return record(wrong_op, affine(detach(x[0]), 2, 0).value(), from(x[0], [](const Var& g) { return g * 2.001; }));
  };
  const GradientCheck check(doubled, {{2, 3}}, -1, 1, Device::cpu);
  CHECK_FALSE(check.first_order().ok());
  const auto right = [&](auto x) {
    return record(wrong_op, square(detach(x[0])).value(),
                  from(x[0], [x = x[0]](const Var& g) { return g * detach(x) * 2; }));
  };
  const GradientCheck second(right, {{2, 3}}, -1, 1, Device::cpu);
  CHECK(second.first_order().ok());
  CHECK_FALSE(second.second_order().ok());
}

TEST_CASE("keep_in stores a gradient in given memory until forget, and leaves its terms unchanged") {
  const Parameter w("w", Tensor::zeros({2}, DType::f64));
  const Tensor place = Tensor::full({2}, 9, DType::f64), term = Tensor::from({2}, {1, 2}, DType::f64);
  Gradients gradients;
  gradients.keep_in([&](const Parameter&) { return place; });
  gradients.add(w, term);
  gradients.add(w, term);
  CHECK(gradients[w].data() == place.data());
  CHECK(place.values() == std::vector<double>{2, 4});
  CHECK(term.values() == std::vector<double>{1, 2});
  gradients.forget(w);
  CHECK_FALSE(gradients.has(w));
  gradients.add(w, term);
  CHECK(place.values() == std::vector<double>{1, 2});
}
