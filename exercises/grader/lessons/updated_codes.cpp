// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "exercises/grader/lessons.h"

namespace weft::grader {
namespace {

using CodesOf =
    std::function<Tensor(const Tensor& codes, const Tensor& tokens, const Tensor& chosen, Communicator& comm)>;

constexpr int64_t codes_of_all = 4, width = 2;

// Nobody chooses the last code; the first is chosen on all ranks that have tokens.
Measure of_codes(const CodesOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    const int me = comm.rank().value;
    const int64_t own = rows_of_rank(samples, me);
    std::vector<double> chosen;
    for (int64_t i = 0; i < own; ++i) chosen.push_back(static_cast<double>(i == 0 ? 0 : (i * i + me) % 3));
    return {answer(normal({codes_of_all, width}, 1, 0), normal({own, width}, 2, comm),
                   Tensor::from({own}, chosen, DType::i64), comm)};
  };
}

// Sums of tokens and their counts, of one rank or of all.
struct Sums {
  std::vector<double> tokens, counts;

  Sums over_ranks(Communicator& comm, ReduceOp op = ReduceOp::sum) const {
    const auto reduced = [&](const std::vector<double>& x) {
      return comm.all_reduce(Tensor::from({static_cast<int64_t>(x.size())}, x, DType::f64), op).values();
    };
    return {reduced(tokens), reduced(counts)};
  }
};
Sums own_sums(const Tensor& tokens, const Tensor& chosen) {
  Sums sums{std::vector<double>(codes_of_all * width), std::vector<double>(codes_of_all)};
  const std::vector<double> values = tokens.values(), codes = chosen.values();
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<size_t>(codes[i]);
    sums.counts[code] += 1;
    for (size_t d = 0; d < width; ++d) sums.tokens[code * width + d] += values[i * width + d];
  }
  return sums;
}

// New codes from a rank's sums and those of all ranks, code by code.
struct Code {
  double old, own, all, own_count, all_count, ranks;
};
CodesOf by_code(const std::function<double(const Code&)>& value) {
  return [=](const Tensor& codes, const Tensor& tokens, const Tensor& chosen, Communicator& comm) {
    const Sums own = own_sums(tokens, chosen), all = own.over_ranks(comm);
    std::vector<double> updated = codes.values();
    for (size_t i = 0; i < updated.size(); ++i)
      updated[i] = value({updated[i], own.tokens[i], all.tokens[i], own.counts[i / width], all.counts[i / width],
                          static_cast<double>(comm.size())});
    return Tensor::from(codes.shape(), updated, DType::f64);
  };
}
double or_old(const Code& c, double count, double updated) { return count > 0 ? updated : c.old; }

// The mean over ranks of the means of their own tokens: of all ranks, a rank without any keeping its code, or of those
// that have some.
CodesOf means_of_means(bool of_all_ranks) {
  return [=](const Tensor& codes, const Tensor& tokens, const Tensor& chosen, Communicator& comm) {
    Sums own = own_sums(tokens, chosen);
    const std::vector<double> old = codes.values();
    for (size_t i = 0; i < own.tokens.size(); ++i) {
      const double count = own.counts[i / width];
      own.tokens[i] = count > 0 ? own.tokens[i] / count : of_all_ranks ? old[i] : 0;
    }
    for (double& count : own.counts) count = of_all_ranks || count > 0 ? 1 : 0;
    const Sums all = own.over_ranks(comm);
    std::vector<double> updated = old;
    for (size_t i = 0; i < updated.size(); ++i)
      if (const double ranks = all.counts[i / width]; ranks > 0) updated[i] = all.tokens[i] / ranks;
    return Tensor::from(codes.shape(), updated, DType::f64);
  };
}

}  // namespace

Lesson updated_codes(const CodesOf& learner) {
  const auto mistake = [](const char* signature, const char* what, const CodesOf& wrong) {
    return Answer{signature, what, of_codes(wrong)};
  };
  const auto per_code = [&](const char* signature, const char* what, double (*value)(const Code&)) {
    return mistake(signature, what, by_code(value));
  };
  using C = const Code&;
  return {
      10,
      "a codebook of all ranks",
      {{"the codes"}},
      of_codes(learner),
      of_codes(by_code([](C c) { return or_old(c, c.all_count, c.all / c.all_count); })),
      {
          per_code("S26", "Each rank follows its own tokens, so the ranks' codebooks diverge.",
                   [](C c) { return or_old(c, c.own_count, c.own / c.own_count); }),
          mistake("S12", "This is the mean of the ranks' means: a token counts more on a rank that has few of a code.",
                  means_of_means(false)),
          mistake("S12",
                  "This is the mean of the ranks' means, and a rank without tokens of a code counts with the old code.",
                  means_of_means(true)),
          per_code("S9", "The mean is divided by the number of ranks once more.",
                   [](C c) { return or_old(c, c.all_count, c.all / c.all_count / c.ranks); }),
          per_code("S33", "Sums of all ranks are divided by a rank's own counts.",
                   [](C c) { return or_old(c, c.own_count, c.all / c.own_count); }),
          per_code("S11", "A rank's own sums are divided by the counts of all ranks.",
                   [](C c) { return or_old(c, c.all_count, c.own / c.all_count); }),
          per_code("S33", "The sums are not divided by the counts.", [](C c) { return or_old(c, c.all_count, c.all); }),
          per_code("S33", "The sums are divided by the number of ranks, not of tokens.",
                   [](C c) { return or_old(c, c.all_count, c.all / c.ranks); }),
          per_code("", "A code that no rank has chosen becomes zero. It should stay as it is.",
                   [](C c) { return c.all_count > 0 ? c.all / c.all_count : 0; }),
          per_code("", "A code that no rank has chosen becomes zero divided by zero. It should stay as it is.",
                   [](C c) { return c.all / c.all_count; }),
          per_code("", "A code also stays as it is if only other ranks have chosen it: ranks diverge.",
                   [](C c) { return or_old(c, c.own_count, c.all / c.all_count); }),
          per_code("", "The new mean is averaged with the old code.",
                   [](C c) { return or_old(c, c.all_count, (c.old + c.all / c.all_count) / 2); }),
          per_code("", "The old code is counted as one more token.",
                   [](C c) { return (c.old + c.all) / (1 + c.all_count); }),
      }};
}

}  // namespace weft::grader
