// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/codebook.h"

#include <algorithm>
#include <cmath>

#include "weft/engine/kernels/scalar_ops.h"
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
  if (!follows_tokens()) return;
  require(!step_, "Codebook: '", codes.name,
          "' gets tokens between add_up and update; add up after all passes of a step");
  if (!own_) own_.emplace(options_.codes, options_.dim, tokens.device());
  own_->add(tokens, indices);
  if (options_.dead_below > 0) tokens_.push_back(tokens.clone());
}

void Codebook::add_up(Communicator& comm, Site caller) {
  if (step_ || !follows_tokens()) return;
  if (!own_) own_.emplace(options_.codes, options_.dim, codes.value.device());
  step_ = {own_->over(comm, codes.value.dtype(), caller.named("codebook statistics")), {}, {}};
  own_.reset();
  step_->sizes = moved(sizes, step_->total.counts);
  if (options_.dead_below > 0) step_->sizes_to_see = std::make_shared<HostCopy>(step_->sizes);
}

void Codebook::update(Communicator& comm, const Random& key, Site caller) {
  replaced_ = 0;
  if (!follows_tokens()) return;
  add_up(comm, caller);
  const Step step = *std::exchange(step_, {});
  step.total.must_be_exact();
  if (step.total.tokens > 0) {
    average(step);
    if (options_.dead_below > 0) replace_dead(step, comm, key, caller);
  }
  tokens_.clear();
}

Tensor Codebook::moved(const Parameter& average, const Tensor& to) const {
  Tensor result = Tensor::like(to);
  backend(to.device()).unary(Unary::Affine, {options_.decay, 0}, average.value, result);
  backend(to.device()).accumulate(1 - options_.decay, to, result);
  return result;
}

// Assigns new tensors instead of writing in place, because a tape may still hold the old ones.
void Codebook::average(const Step& step) {
  sizes.value = step.sizes;
  sums.value = moved(sums, step.total.sums);
  if (options_.learnable) return;
  const Var all = reshape(sum(Var(sizes.value)), {1}),
            row = reshape(sizes.value + options_.epsilon, {1, options_.codes});
  const Var share = div_along(row, all + options_.epsilon * static_cast<double>(options_.codes), 0);
  const Var means = div_along(sums.value, flatten(mul_along(share, all, 0), 0), 0);
  write_codes((options_.unit ? l2_normalize(means) : means).value());
}

void Codebook::replace_dead(const Step& step, Communicator& comm, const Random& key, Site caller) {
  const std::vector<double> size = step.sizes_to_see->values().values();
  std::vector<double> from(size.size()), reset = size;  // a dead code k becomes the chosen token from[k]
  Tensor dead(codes.value.shape(), DType::u8);
  for (size_t k = 0; k < size.size(); ++k) {
    const bool is_dead = size[k] < options_.dead_below;
    std::fill_n(dead.mutate<uint8_t>() + static_cast<int64_t>(k) * options_.dim, options_.dim, is_dead);
    if (!is_dead) continue;
    from[k] = static_cast<double>(replaced_++);
    reset[k] = options_.dead_below;
  }
  if (replaced_ == 0) return;
  const Tensor& table = codes.value;
  if (tokens_.empty()) tokens_.emplace_back(Shape{0, options_.dim}, table.dtype(), table.device());
  const Tensor chosen =
      rows_by_number(concat(Vars(tokens_.begin(), tokens_.end()), 0).value(),
                     chosen_numbers(replaced_, step.total.tokens, key), comm, caller.named("tokens for dead codes"));
  const Var fresh = gather_rows(chosen, Tensor::from({options_.codes}, from, DType::i64, table.device()));
  sizes.value = Tensor::from({options_.codes}, reset, table.dtype(), table.device());
  dead = dead.to(table.device());
  sums.value = where(dead, fresh * options_.dead_below, sums.value).value();
  write_codes(where(dead, fresh, table).value());
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
