// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/sim_vq.h"

#include <cmath>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/nearest.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {

SimVq::SimVq(const std::string& name, const SimVqOptions& options, const Init& init)
    : Quantizer("SimVq"),
      table(name + ".table", init.normal(name + ".table", {options.codes, options.dim},
                                         1 / std::sqrt(static_cast<double>(options.dim)))),
      map(name + ".map", kaiming_uniform(init, name + ".map", {options.dim, options.dim})),
      options_(options) {
  require(options.codes > 0 && options.dim > 0, "SimVq: '", name, "' has ", options.codes, " codes of ", options.dim,
          " features");
  register_buffer(table);
  register_parameter(map);
}

Var SimVq::codes(const Var& beside) const { return matmul(replicated_constant(table.value), bind(beside, map)); }

Quantized SimVq::apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) {
  const Site site = call_from(caller).number("commitment weight", options_.commitment_weight);
  const Tokens tokens(x, options_.dim, mask);
  const Var &rows = tokens.rows(), all = codes(rows);
  require(rows.dtype() == all.dtype(), "tokens are ", rows.dtype(), ", '", table.name, "' is ", all.dtype(),
          "; make this module ", rows.dtype());
  const Tensor indices = nearest_rows(rows.value(), all.value());
  const Var nearest = gather_rows(all, constant_like(indices, rows));
  Var loss = no_loss(x, comm);
  if (pass.training) {
    const Var of_map = sum(square(nearest - detach(rows))), of_tokens = sum(square(rows - detach(nearest)));
    loss = share(of_map + of_tokens * options_.commitment_weight, tokens.total(comm, site) * options_.dim, comm);
  }
  return tokens.back(passed_through(rows, nearest, options_.through), indices, loss);
}

Var SimVq::decoded(const Var& indices) { return gather_rows(codes(indices), indices); }

}  // namespace weft
