// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/codebook.h"

#include <algorithm>
#include <cmath>

#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/quantizers/codebook/chosen_rows.h"
#include "weft/losses/quantizers/codebook/k_means.h"

namespace weft {
namespace {

Tensor first_codes(const std::string& name, const CodebookOptions& options, const Init& init) {
  require(options.codes > 0 && options.dim > 0, "Codebook: '", name, "' has ", options.codes, " codes of ", options.dim,
          " features");
  require(options.decay >= 0 && options.decay <= 1, "Codebook: '", name, "' has a decay of ", options.decay,
          ", which is not in 0..1");
  require(init.dtype != DType::bf16, "Codebook: '", name,
          "' is bf16, in which moving averages would stand still; make its module f32");
  const Tensor codes = init.normal(name, {options.codes, options.dim}, 1 / std::sqrt(static_cast<double>(options.dim)));
  return options.unit ? l2_normalize(codes).value() : codes;
}

Tensor times_rows(const Tensor& rows, const Tensor& factors) { return mul_along(rows, factors, 0).value(); }

}  // namespace

Codebook::Codebook(const std::string& name, const CodebookOptions& options, const Init& init)
    : codes(name + ".codes", first_codes(name + ".codes", options, init)),
      sizes(name + ".sizes", init.full({options.codes}, 1)),
      sums(name + ".sums", codes.value.clone()),
      started(name + ".started", Tensor::full({}, options.k_means_iterations > 0 ? 0 : 1)),
      options_(options) {
  if (options.learnable)
    register_parameter(codes);
  else
    register_buffer(codes);
  register_buffer(sizes);
  register_buffer(sums);
  register_buffer(started);
}

void Codebook::start(const Tensor& tokens, Communicator& comm, const Random& key, Site caller) {
  const auto [centers, counts] = k_means(tokens, options_.codes, std::max<int64_t>(options_.k_means_iterations, 1),
                                         options_.unit, comm, key, caller.named("k-means"));
  if (!centers.defined()) return;
  sizes.value = maximum(counts, Tensor::full(counts.shape(), 1, counts.dtype(), counts.device())).value();
  sums.value = times_rows(centers, sizes.value);
  write_codes(centers);
  started.value = Tensor::full({}, 1);
}

void Codebook::observe(const Tensor& tokens, const Tensor& indices) {
  if (options_.learnable && options_.dead_below <= 0) return;
  if (!step_) step_.emplace(options_.codes, options_.dim, tokens.device());
  step_->add(tokens, indices);
  if (options_.dead_below > 0) tokens_.push_back(tokens.clone());
}

void Codebook::update(Communicator& comm, const Random& key, Site caller) {
  replaced_ = 0;
  if (options_.learnable && options_.dead_below <= 0) return;
  if (!step_) step_.emplace(options_.codes, options_.dim, codes.value.device());
  const CodeSums::Total step = step_->over(comm, codes.value.dtype(), caller.named("codebook statistics"));
  step_.reset();
  if (step.tokens > 0) {
    average(step);
    if (options_.dead_below > 0) replace_dead(step.tokens, comm, key, caller);
  }
  tokens_.clear();
}

// Assigns new tensors instead of writing in place, because a tape may still hold the old ones.
void Codebook::average(const CodeSums::Total& step) {
  const auto moved = [&](const Parameter& from, const Tensor& to) {
    return (Var(from.value) * options_.decay + Var(to) * (1 - options_.decay)).value();
  };
  sizes.value = moved(sizes, step.counts);
  sums.value = moved(sums, step.sums);
  if (options_.learnable) return;
  const Var all = repeat(sum(Var(sizes.value)), 0, options_.codes);
  const Var share = (sizes.value + options_.epsilon) / (all + options_.epsilon * static_cast<double>(options_.codes));
  const Var means = div_along(sums.value, share * all, 0);
  write_codes((options_.unit ? l2_normalize(means) : means).value());
}

void Codebook::replace_dead(int64_t tokens, Communicator& comm, const Random& key, Site caller) {
  const std::vector<double> size = sizes.value.values();
  std::vector<double> from(size.size()), reset = size;  // row k becomes row from[k] of the codes and the chosen tokens
  for (size_t k = 0; k < size.size(); ++k) {
    const bool dead = size[k] < options_.dead_below;
    from[k] = static_cast<double>(dead ? options_.codes + replaced_++ : static_cast<int64_t>(k));
    if (dead) reset[k] = options_.dead_below;
  }
  if (replaced_ == 0) return;
  const Tensor& table = codes.value;
  const Shape none = {0, options_.dim};
  Vars parts = {Tensor(none, table.dtype(), table.device())};
  parts.insert(parts.end(), tokens_.begin(), tokens_.end());
  const Tensor chosen = rows_by_number(concat(parts, 0).value(), chosen_numbers(replaced_, tokens, key), comm,
                                       caller.named("tokens for dead codes"));
  const Tensor rows = Tensor::from({options_.codes}, from, DType::i64, table.device());
  sizes.value = Tensor::from({options_.codes}, reset, table.dtype(), table.device());
  const auto replaced = [&](const Tensor& old, const Tensor& by) {
    return gather_rows(concat({Var(old), Var(by)}, 0), rows).value();
  };
  sums.value = replaced(sums.value, (Var(chosen) * options_.dead_below).value());
  write_codes(replaced(table, chosen));
}

// A parameter is written in place, because optimizers hold its memory.
void Codebook::write_codes(const Tensor& values) {
  if (options_.learnable)
    codes.value.copy_from(values);
  else
    codes.value = values;
}

double Codebook::perplexity() const {
  const std::vector<double> size = sizes.value.values();
  double all = 0, entropy = 0;
  for (const double s : size) all += s;
  for (const double s : size)
    if (s > 0) entropy -= s / all * maths::log(s / all);
  return maths::exp(entropy);
}

int64_t Codebook::smaller_than(double size) const {
  const std::vector<double> all = sizes.value.values();
  return std::count_if(all.begin(), all.end(), [=](double s) { return s < size; });
}

}  // namespace weft
