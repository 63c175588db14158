// SPDX-License-Identifier: Apache-2.0
// Losses of several terms, whose wrong gradients users of other libraries have reported: the verifier knows nothing of
// the loss but differences of its terms on one process. Numbers in parentheses are those of findings in a report.
#include "tests/support/catch.h"
#include "tests/verify/planted_terms.h"
#include "tools/weft/verdict/print.h"
#include "tools/weft/verdict/scale_causes.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/parallel_linear.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;
using namespace weft::planted;
using verify::Outcome;
using verify::Verdict;

namespace {

constexpr size_t dp = 0, other = 1;
constexpr int64_t width = 3;
// What is found of each parameter, or the outcome.
std::map<std::string, std::string> found(const verify::Dump& dump) {
  std::map<std::string, std::string> all;
  for (const Verdict& verdict : verify::verdicts(dump)) {
    const bool named = verdict.outcome == Outcome::wrong && verdict.best;
    INFO(verdict.subject << ": " << (verdict.same_as_best.empty() ? "" : verdict.same_as_best[0]));
    CHECK(verdict.same_as_best.empty());
    all[verdict.subject] =
        named ? verify::title(*verdict.best->signature, verdict.best->variant) : verify::name(verdict.outcome);
  }
  return all;
}

// In f64 and f32, as it should be and as it is: parameters that are not in `expected` are right.
void check(const Loss& loss, const std::map<std::string, std::string>& expected) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    INFO("in " << text(dtype));
    for (const auto& [subject, what] : found(dump_of(loss, loss.right, dtype))) CHECK(what == "correct");
    for (const auto& [subject, what] : found(dump_of(loss, loss.wrong, dtype))) {
      INFO(subject);
      const auto name = subject.substr(subject.find('\'') + 1, subject.rfind('\'') - subject.find('\'') - 1);
      CHECK(what == (expected.contains(name) ? expected.at(name) : "correct"));
    }
  }
}

// Cross entropy with a vocabulary that is divided over tensor-parallel ranks.

struct Vocabulary {
  verify::Mesh mesh;
  int64_t words;
  std::vector<std::vector<int64_t>> targets;  // by rank along dp
  double smoothing = 0;

  std::map<std::string, Tensor> parameters() const {
    return {{"hidden", data_of(0, {width, width}, 1)}, {"head", data_of(0, {words, width}, 2)}};
  }
  double count() const {
    double all = 0;
    for (const auto& each : targets) all += static_cast<double>(each.size());
    return all;
  }
  Var hidden(int sample_rank, const Parameters& p) const {
    const auto rows = static_cast<int64_t>(targets[static_cast<size_t>(sample_rank)].size());
    return tanh(matmul(data_of(sample_rank, {rows, width}, 3), p.at("hidden")));
  }
  // The sum of the logits at the targets, of those among words begin...end-1, which are the columns.
  static Var at_targets(const Var& logits, const std::vector<int64_t>& targets, int64_t begin, int64_t end) {
    Tensor picks = Tensor::zeros(logits.shape(), DType::f64);
    for (size_t i = 0; i < targets.size(); ++i)
      if (targets[i] >= begin && targets[i] < end)
        picks.mutate<double>()[static_cast<int64_t>(i) * (end - begin) + targets[i] - begin] = 1;
    return sum(logits * picks);
  }
  Terms terms(const Parameters& p) const {
    std::vector<Var> normaliser, target, mean_logit;
    for (size_t r = 0; r < targets.size(); ++r) {
      const Var logits = matmul(hidden(static_cast<int>(r), p), p.at("head"), Transpose::no, Transpose::yes);
      normaliser.push_back(sum(log_sum_exp(logits)));
      target.push_back(at_targets(logits, targets[r], 0, words) * (smoothing - 1));
      mean_logit.push_back(sum(logits) * (-smoothing / static_cast<double>(words)));
    }
    Terms all = {{"normaliser", sum(stack(normaliser, 0)) / count()}, {"target", sum(stack(target, 0)) / count()}};
    if (smoothing > 0) all.emplace("smoothing", sum(stack(mean_logit, 0)) / count());
    return all;
  }
};

}  // namespace

TEST_CASE("label smoothing over the words of each rank is named: Megatron-LM 7452 (1), 737, 7464") {
  const Vocabulary v{{{{"dp", 2}, {"tp", 3}}}, 6, {{0, 5, 3}, {2}}, 0.2};
  const auto share = [v](Groups& groups, const Parameters& p, double smoothing_of_rank) {
    Communicator& tp = groups[other];
    const FeatureRange mine = own_features(v.words, tp);
    const auto& targets = v.targets[static_cast<size_t>(groups.coordinate(dp))];
    const Var logits = matmul(v.hidden(groups.coordinate(dp), p), slice(p.at("head"), 0, mine.begin, mine.end),
                              Transpose::no, Transpose::yes);
    const Var normaliser = sum(all_reduce_log_sum_exp(log_sum_exp(logits), tp)) / static_cast<double>(tp.size());
    const Var target = Vocabulary::at_targets(logits, targets, mine.begin, mine.end) * (v.smoothing - 1);
    return (normaliser + target - sum(logits) * smoothing_of_rank) / v.count();
  };
  const auto with = [&](double words) {
    return [=](Groups& groups, const Parameters& p) { return share(groups, p, v.smoothing / words); };
  };
  const char* name = "S33 (the term smoothing 3x)";
  check({v.mesh, v.parameters(), [v](const Parameters& p) { return v.terms(p); }, with(6), with(2)},
        {{"hidden", name}, {"head", name}});
}

namespace {

// Every rank has all logits and takes them for its own words: it adds up what others add up, too, and only the first
// rank finds the target among its words. A gather hands back to each rank the gradient of its own slice.
Var loss_of_gathered(const Var& own, const Tensor& all, FeatureRange mine, const std::vector<int64_t>& targets,
                     const Communicator& tp) {
  const int64_t words = all.shape()[1];
  const Var logits = concat({slice(all, 1, 0, mine.begin), own, slice(all, 1, mine.end, words)}, 1);
  const Var normaliser = sum(log_sum_exp(logits)) / static_cast<double>(tp.size());
  return number(tp) > 0 ? normaliser : normaliser - Vocabulary::at_targets(logits, targets, 0, words);
}

}  // namespace

TEST_CASE("gathered logits that are taken for a rank's own words are named: Megatron-LM 7452 (2)") {
  const Vocabulary v{{{{"dp", 2}, {"tp", 3}}}, 6, {{4, 5, 5}, {4}}};
  const auto share = [v](Groups& groups, const Parameters& p, bool gathered) {
    Communicator& tp = groups[other];
    const FeatureRange mine = own_features(v.words, tp);
    const auto& targets = v.targets[static_cast<size_t>(groups.coordinate(dp))];
    const auto of = [&](int64_t begin, int64_t end) {
      return matmul(v.hidden(groups.coordinate(dp), p), slice(p.at("head"), 0, begin, end), Transpose::no,
                    Transpose::yes);
    };
    const Var own = of(mine.begin, mine.end);
    if (gathered) return loss_of_gathered(own, of(0, v.words).value(), mine, targets, tp) / v.count();
    return (sum(all_reduce_log_sum_exp(log_sum_exp(own), tp)) / static_cast<double>(tp.size()) -
            Vocabulary::at_targets(own, targets, mine.begin, mine.end)) /
           v.count();
  };
  const auto with = [&](bool gathered) {
    return [=](Groups& groups, const Parameters& p) { return share(groups, p, gathered); };
  };
  const char* name = "S33 (the term normaliser 0.333333x, the term target 0x)";
  check({v.mesh, v.parameters(), [v](const Parameters& p) { return v.terms(p); }, with(false), with(true)},
        {{"hidden", name}, {"head", name}});
}

TEST_CASE("the numbers of the report, with logits 0, 1, 2, 3 and the target 3: Megatron-LM 7452 (2)") {
  const Loss loss{{{{"tp", 2}}},
                  {{"logits", Tensor::from({1, 4}, {0, 1, 2, 3}, DType::f64)}},
                  [](const Parameters& p) -> Terms {
                    return {{"normaliser", sum(log_sum_exp(p.at("logits")))},
                            {"target", -Vocabulary::at_targets(p.at("logits"), {3}, 0, 4)}};
                  },
                  {},
                  [](Groups& groups, const Parameters& p) {
                    const FeatureRange mine = own_features(4, groups[0]);
                    const Var& logits = p.at("logits");
                    return loss_of_gathered(slice(logits, 1, mine.begin, mine.end), logits.value(), mine, {3},
                                            groups[0]);
                  }};
  const verify::Dump dump = dump_of(loss, loss.wrong, DType::f64);
  const verify::Matrix& gradient = dump.scale->parameters[0].gradients[0];
  const double reported[] = {0.0160, 0.0436, 0.1184, 0.3220};
  for (int i = 0; i < 4; ++i) CHECK(gradient(i) == Approx(reported[i]).margin(5e-5));
  CHECK(found(dump).at("the slopes along 'logits'") == "S33 (the term normaliser 0.5x, the term target 0x)");
}

// A loss of tokens that ranks have different numbers of, one of them none.
TEST_CASE("means of each rank's tokens are named: Megatron-LM 7452 (3, 9), 7498, Transformers 34242") {
  for (const char* axis : {"dp", "cp"})
    for (const std::vector<int64_t>& tokens : {std::vector<int64_t>{3, 1, 2}, {1, 0, 4}}) {
      double all_tokens = 0;
      for (const int64_t each : tokens) all_tokens += static_cast<double>(each);
      const auto of_rank = [=](size_t r, const Parameters& p) {
        return sum(square(tanh(matmul(data_of(static_cast<int>(r), {tokens[r], width}, 4), p.at("weight")))));
      };
      const auto divided = [=](bool own) {
        return [=](Groups& groups, const Parameters& p) {
          const auto r = static_cast<size_t>(number(groups.world));
          const auto mine = static_cast<double>(std::max<int64_t>(tokens[r], 1));
          return of_rank(r, p) / (own ? mine * static_cast<double>(tokens.size()) : all_tokens);
        };
      };
      const auto terms = [=](const Parameters& p) -> Terms {
        std::vector<Var> losses;
        for (size_t r = 0; r < tokens.size(); ++r) losses.push_back(of_rank(r, p));
        return {{"tokens", sum(stack(losses, 0)) / all_tokens}};
      };
      INFO(axis << " with " << tokens[1] << " tokens on rank 1");
      check({{{{axis, 3}}}, {{"weight", data_of(0, {width, width}, 5)}}, terms, divided(false), divided(true), tokens},
            {{"weight", "S12"}});
    }
}

// A task and a loss that balances a router's choices, each over tokens that are divided over both axes. What scales the
// second one for the reducer is the number of tokens of this rank, or by mistake of all ranks along tp.
TEST_CASE("auxiliary losses that are scaled by another count are named: Megatron-LM 7452 (10), 3959, 5047, 7481") {
  const verify::Mesh mesh{{{"dp", 3}, {"tp", 2}}};
  constexpr int64_t experts = 4;
  const auto tokens_of = [](int rank) { return data_of(rank, {1 + rank % 3, width}, 6); };
  double all_tokens = 0;
  for (int r = 0; r < mesh.ranks(); ++r) all_tokens += static_cast<double>(tokens_of(r).shape()[0]);
  const Tensor chosen = data_of(0, {experts}, 7);  // how often each expert was chosen
  const auto of_rank = [=](int r, const Parameters& p) -> Terms {
    const Var x = tokens_of(r), chances = softmax(matmul(x, p.at("router")));
    const Var outputs = matmul(chances, p.at("experts"));
    return {{"task", sum(square(tanh(outputs) - x)) / all_tokens},
            {"auxiliary", sum(mul_along(chances, chosen, -1)) / all_tokens}};
  };
  const auto terms = [=](const Parameters& p) {
    std::map<std::string, std::vector<Var>> of_ranks;
    for (int r = 0; r < mesh.ranks(); ++r)
      for (const auto& [name, value] : of_rank(r, p)) of_ranks[name].push_back(value);
    Terms all;
    for (const auto& [name, values] : of_ranks) all.emplace(name, sum(stack(values, 0)));
    return all;
  };
  const auto counting = [=](double factor) {
    return [=](Groups& groups, const Parameters& p) {
      const Terms mine = of_rank(number(groups.world), p);
      return mine.at("task") + mine.at("auxiliary") * factor;
    };
  };
  const std::map<std::string, Tensor> parameters = {{"router", data_of(0, {width, experts}, 8)},
                                                    {"experts", data_of(0, {experts, width}, 9)}};
  const std::tuple<double, const char*> factors[] = {{2, "S33 (the term auxiliary 2x)"},
                                                     {0.5, "S33 (the term auxiliary 0.5x)"},
                                                     {1.0 / 6, "S10 (the term auxiliary 0.166667x)"},
                                                     {0, "S32 (the term auxiliary 0x)"}};
  for (const auto& [factor, name] : factors)
    check({mesh, parameters, terms, counting(1), counting(factor)}, {{"router", name}});
  std::vector<int64_t> rows;
  for (int r = 0; r < mesh.ranks(); ++r) rows.push_back(tokens_of(r).shape()[0]);
  for (const auto& of_losses : {std::vector<int64_t>(), rows})
    for (const bool objective : {true, false})
      check({mesh, parameters, terms, counting(1), counting(4), of_losses, objective},
            {{"router", "S33 (the term auxiliary 4x)"}});
  for (const auto& [factor, name] : {factors[0], factors[1]}) {
    const Loss loss{mesh, parameters, terms, counting(1), counting(factor)};
    verify::Dump of_two_passes = dump_of(loss, loss.wrong, DType::f64);
    of_two_passes.micro_batches = 2;  // as many as ranks along tp
    const Verdict both = verify::verdicts(of_two_passes)[1];
    CHECK(both.best->signature->id == "S16");
    CHECK(both.same_as_best == std::vector<std::string>{name});
  }
}

TEST_CASE("a gradient that is divided by its number of elements is named, while another parameter's is right") {
  const std::map<std::string, Tensor> parameters = {{"weight", data_of(0, {width, width}, 5)},
                                                    {"bias", data_of(0, {width}, 6)}};
  const auto of_rank = [](int r, const Parameters& p) {
    return sum(square(tanh(add_along(matmul(data_of(r, {2, width}, 4), p.at("weight")), p.at("bias"), -1))));
  };
  const auto terms = [=](const Parameters& p) -> Terms {
    return {{"task", total(0, 3, [&](int r) { return of_rank(r, p); })}};
  };
  const auto share = [=](Groups& groups, const Parameters& p) { return of_rank(number(groups.world), p); };
  const auto divided = [=](Groups& groups, Parameters p) {  // the same value, and 1/9 of the gradient
    const Var weight = p.at("weight");
    p.at("weight") = weight / 9 + Var(weight.value()) * (8.0 / 9);
    return share(groups, p);
  };
  const Loss loss{{{{"dp", 3}}}, parameters, terms, share, divided};
  for (const Verdict& verdict : verify::verdicts(dump_of(loss, loss.wrong, DType::f64))) {
    if (verdict.subject.find("weight") == std::string::npos) {
      CHECK(verdict.outcome == Outcome::correct);
      continue;
    }
    REQUIRE(verdict.best);
    CHECK(verify::title(*verdict.best->signature, verdict.best->variant) == "S33 (by the number of elements)");
    CHECK(verdict.same_as_best == std::vector<std::string>{"S30"});
  }
}

TEST_CASE("a term counts by a factor if the gradient is that of the terms, up to what their values allow") {
  const verify::MovedParameter moved{"weight", verify::Matrix::Identity(3, 3), {}, {}, {}, {}, 0};
  verify::Dump dump;
  dump.ranks = 3;
  dump.micro_batches = 2;
  const Eigen::VectorXd task = Eigen::Vector3d(3, -1, 2), auxiliary = Eigen::Vector3d(1, 4, -2);
  const auto named = [&](const verify::Slopes& task_slopes, const verify::Slopes& auxiliary_slopes, double off) {
    const verify::Slopes gradient{task + 2 * auxiliary + Eigen::Vector3d(off, 0, 0), 0, 0};
    verify::MeasuredParameter weight{&moved, {}, {}, {{gradient, {}}}, {}, {}, {}, true};
    weight.terms = {{"task", task_slopes}, {"auxiliary", auxiliary_slopes}};
    const verify::Causes causes = verify::causes_of_terms(verify::SlopesOf::gradients, weight, {weight}, dump);
    return causes.empty() ? "" : verify::title(*causes[0].signature, causes[0].variant);
  };
  constexpr double inexact = 1e-3, allowed = 3 * inexact;  // of the one, and twice of the other
  for (const auto& [task_slopes, auxiliary_slopes] :
       {std::pair(verify::Slopes{task, inexact, 0}, verify::Slopes{auxiliary, inexact, 0}),
        {verify::Slopes{task, 0, inexact}, verify::Slopes{auxiliary, 0, inexact}}}) {
    CHECK(named(task_slopes, auxiliary_slopes, 0.9 * allowed) == "S16 (the term auxiliary 2x)");
    CHECK(named(task_slopes, auxiliary_slopes, 1.1 * allowed) == "");
  }
}
