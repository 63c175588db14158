// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/vector_quantize.h"

#include <algorithm>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/nearest.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/codebook/chosen_rows.h"
#include "weft/losses/quantizers/codebook/codebook_losses.h"

namespace weft {
namespace {

enum RandomStream : uint64_t { k_means_seeds, orthogonal_subset };

}  // namespace

VectorQuantize::VectorQuantize(const std::string& name, const VectorQuantizeOptions& options, const Init& init)
    : Quantizer("VectorQuantize"), codebook(name, options.codebook, init), options_(options) {
  require(options.orthogonal_weight == 0 || options.codebook.learnable, "VectorQuantize: '", name,
          "' has an orthogonal weight, but codes that are moving averages have no gradient");
  register_module(codebook);
}

Var VectorQuantize::codes(const Var& beside) const {
  if (!options_.codebook.learnable) return replicated_constant(codebook.codes.value);
  const Var all = bind(beside, codebook.codes);
  return options_.codebook.unit ? l2_normalize(all) : all;
}

VectorQuantize::Found VectorQuantize::find(const Var& rows) const {
  const Var all = codes(rows);
  const Tensor indices = nearest_rows(rows.value(), all.value());
  return {rows, gather_rows(all, constant_like(indices, rows)), all, indices};
}

Var VectorQuantize::rows_of(const Tokens& tokens) const {
  const Var& rows = tokens.rows();
  const DType dtype = codebook.codes.value.dtype();
  require(rows.dtype() == dtype, "tokens are ", rows.dtype(), ", '", codebook.codes.name, "' is ", dtype,
          "; make this module ", rows.dtype());
  return options_.codebook.unit ? l2_normalize(rows) : rows;
}

void VectorQuantize::start(const Var& x, Communicator& comm, const Random& key, const Var& mask, Site caller) try {
  const Tokens tokens(x, options_.codebook.dim, mask);
  codebook.start(detach(rows_of(tokens)).value(), comm, key, caller);
} catch (Error& error) {
  fail_in("VectorQuantize", caller, error);
}

Quantized VectorQuantize::apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) {
  const Site site = call_from(caller)
                        .number("commitment weight", options_.commitment_weight)
                        .number("codebook weight", options_.codebook_weight)
                        .number("orthogonal weight", options_.orthogonal_weight)
                        .number("diversity weight", options_.diversity_weight)
                        .number("diversity sharpness", options_.diversity_sharpness)
                        .key(pass.key);
  const Tokens tokens(x, options_.codebook.dim, mask);
  const Var rows = rows_of(tokens);
  if (pass.training && !codebook.has_started())
    codebook.start(detach(rows).value(), comm, pass.key.fork(k_means_seeds), caller);
  const Found found = find(rows);
  Var added;
  if (pass.training) {
    if (!x.tape() || !x.tape()->recomputing()) codebook.observe(detach(rows).value(), found.indices);
    if (const int64_t total = tokens.total(comm, site); total > 0) added = loss(found, total, pass, comm, site);
  }
  if (!added.defined()) added = no_loss(x, comm);
  return tokens.back(passed_through(rows, found.nearest, options_.through), found.indices, added);
}

Var VectorQuantize::decoded(const Var& indices) { return gather_rows(codes(indices), indices); }

Var VectorQuantize::loss(const Found& found, int64_t total, const Pass& pass, Communicator& comm, Site site) const {
  const auto& [tokens, nearest, all, indices] = found;
  Var own = sum(square(tokens - detach(nearest))) * options_.commitment_weight;
  if (options_.codebook.learnable) own = own + sum(square(nearest - detach(tokens))) * options_.codebook_weight;
  Var loss = share(own, total * options_.codebook.dim, comm);
  const auto add = [&](const Var& whole, double weight) { loss = loss + keep_on(whole * weight, {0}, comm); };
  if (options_.orthogonal_weight != 0)
    add(orthogonality(codes_to_separate(found, pass, comm, site)), options_.orthogonal_weight);
  if (options_.diversity_weight != 0)
    add(unevenness(tokens, all, options_.diversity_sharpness, total, comm, site), options_.diversity_weight);
  return loss;
}

// The codes that orthogonality compares, the same on every rank.
Var VectorQuantize::codes_to_separate(const Found& found, const Pass& pass, Communicator& comm, Site site) const {
  const int64_t count = options_.codebook.codes, most = options_.orthogonal_codes;
  const Device device = found.indices.device();
  std::vector<double> active, chosen;
  Tensor uses = Tensor::full({count}, 1, DType::f64);
  if (options_.orthogonal_active_only) {
    const Tensor ones = Tensor::full(found.indices.shape(), 1, DType::f64, device);
    uses = comm.all_reduce(scatter_add_rows(ones, found.indices, count).value(), ReduceOp::sum, site);
  }
  const std::vector<double> used = uses.values();
  for (size_t k = 0; k < used.size(); ++k)
    if (used[k] > 0) active.push_back(static_cast<double>(k));
  const auto all = static_cast<int64_t>(active.size());
  for (const int64_t i : chosen_numbers(most > 0 ? std::min(most, all) : all, all, pass.key.fork(orthogonal_subset)))
    chosen.push_back(active[static_cast<size_t>(i)]);
  const Shape shape = {static_cast<int64_t>(chosen.size())};
  return gather_rows(found.codes, replicated_constant(Tensor::from(shape, chosen, DType::i64, device)));
}

}  // namespace weft
