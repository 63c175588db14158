#include "losses/quantizers/sim_vq.h"

#include <cmath>

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/matmul.h"
#include "engine/ops/nearest.h"
#include "engine/ops/reduce.h"
#include "losses/quantizers/tokens.h"

namespace weft {

SimVq::SimVq(const std::string& name, const SimVqOptions& options, const Init& init)
    : Quantizer("SimVq"),
      table(name + ".table", init.normal(name + ".table", {options.codes, options.dim},
                                         1 / std::sqrt(static_cast<double>(options.dim)))),
      map(name + ".map", kaiming_uniform(init, name + ".map", {options.dim, options.dim})),
      options_(options) {
  require(options.codes > 0 && options.dim > 0, "SimVq: '", name, "' has ", options.codes, " codes of ", options.dim,
          " features");
  has_buffer(table);
  has(map);
}

Var SimVq::codes(const Var& beside) const { return matmul(same_everywhere(table.value), use(beside, map)); }

Quantized SimVq::apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) {
  const Site site = call_from(caller).number("commitment weight", options_.commitment_weight);
  const Tokens tokens(x, options_.dim, mask);
  const Var &rows = tokens.rows(), all = codes(rows);
  require(rows.dtype() == all.dtype(), "tokens are ", rows.dtype(), ", '", table.name, "' is ", all.dtype(),
          "; make this module ", rows.dtype());
  const Tensor indices = nearest_rows(rows.value(), all.value());
  const Var nearest = gather_rows(all, derived(indices, rows));
  Var loss = no_loss(x, comm);
  if (pass.training) {
    const Var of_map = sum(square(nearest - detach(rows))), of_tokens = sum(square(rows - detach(nearest)));
    loss = share(of_map + of_tokens * options_.commitment_weight, tokens.total(comm, site) * options_.dim, comm);
  }
  return tokens.back(passed_through(rows, nearest, options_.through), indices, loss);
}

Var SimVq::decoded(const Var& indices) { return gather_rows(codes(indices), indices); }

}  // namespace weft
