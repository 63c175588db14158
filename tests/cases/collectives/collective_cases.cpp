// SPDX-License-Identifier: Apache-2.0
// The executable specification of every collective, on the values of all ranks at once, and the inputs of its tests.
#include <algorithm>
#include <cmath>

#include "tests/cases/collectives/case_rows.h"
#include "tests/cases/collectives/collective_case.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

using Values = DistributedCase::Values;
using Shapes = std::vector<Shape>;
using Inputs = std::span<const Var>;

using namespace case_rows;

Shapes uneven_matrix(int rank, int) { return {{uneven(rank), 3}}; }
Shapes uneven_blocks(int, int ranks) { return {{total_rows(uneven_of(ranks)), 3}}; }
GroupRank last(const Communicator& comm) { return {comm.size() - 1}; }

using Fold = double (*)(double, double);
double plus(double a, double b) { return a + b; }
double times(double a, double b) { return a * b; }
double larger(double a, double b) { return std::max(a, b); }
double smaller(double a, double b) { return std::min(a, b); }

std::vector<double> folded(const Values& in, Fold f, size_t first, size_t last) {
  std::vector<double> result = in[first];
  for (size_t r = first + 1; r < last; ++r)
    for (size_t i = 0; i < result.size(); ++i) result[i] = f(result[i], in[r][i]);
  return result;
}
std::vector<double> folded(const Values& in, Fold f) { return folded(in, f, 0, in.size()); }
std::vector<double> joined(const Values& in) {
  std::vector<double> all;
  for (const auto& x : in) all.insert(all.end(), x.begin(), x.end());
  return all;
}
// Cuts `all` into one piece per rank, with rows of three values.
Values cut(const std::vector<double>& all, const Rows& rows) {
  Values pieces;
  auto at = all.begin();
  for (const int64_t r : rows) {
    pieces.emplace_back(at, at + r * 3);
    at += r * 3;
  }
  return pieces;
}
template <Fold f> Values everywhere(const Values& in) { return Values(in.size(), folded(in, f)); }
template <ReduceOp op> Var reduced(Inputs x, Communicator& comm) { return all_reduce(x[0], comm, op); }

Values averaged(const Values& in) {
  Values out = everywhere<plus>(in);
  for (auto& rank : out)
    for (double& v : rank) v /= static_cast<double>(in.size());
  return out;
}

const DistributedCase all_reduce_cases[] = {
    {"all_reduce sum", matrix, reduced<ReduceOp::sum>, everywhere<plus>},
    {"all_reduce mean", matrix, reduced<ReduceOp::mean>, averaged},
    {"all_reduce extreme maximum", matrix, reduced<ReduceOp::maximum>, everywhere<larger>},
    {"all_reduce extreme minimum", matrix, reduced<ReduceOp::minimum>, everywhere<smaller>},
    {"all_reduce product", matrix, reduced<ReduceOp::product>, everywhere<times>},
    {"all_reduce of a scalar", [](int, int) { return Shapes{{}}; }, reduced<ReduceOp::sum>, everywhere<plus>},
    {"all_reduce of nothing",
     [](int, int) {
       return Shapes{{0, 3}};
     },
     reduced<ReduceOp::sum>, everywhere<plus>},
};

const DistributedCase reduce_scatter_cases[] = {
    {"reduce_scatter", blocks, [](Inputs x, Communicator& comm) { return reduce_scatter(x[0], comm); },
     [](const Values& in) { return cut(folded(in, plus), Rows(in.size(), 2)); }},
    {"reduce_scatter mean", blocks,
     [](Inputs x, Communicator& comm) { return reduce_scatter(x[0], comm, ReduceOp::mean); },
     [](const Values& in) { return cut(averaged(in)[0], Rows(in.size(), 2)); }},
    {"reduce_scatter uneven", uneven_blocks,
     [](Inputs x, Communicator& comm) { return reduce_scatter_v(x[0], uneven_of(comm.size()), comm); },
     [](const Values& in) { return cut(folded(in, plus), uneven_of(static_cast<int>(in.size()))); }},
};

const DistributedCase gather_cases[] = {
    {"all_gather", matrix, [](Inputs x, Communicator& comm) { return all_gather(x[0], comm); },
     [](const Values& in) { return Values(in.size(), joined(in)); }},
    {"all_gather uneven", uneven_matrix,
     [](Inputs x, Communicator& comm) { return all_gather_v(x[0], uneven_of(comm.size()), comm); },
     [](const Values& in) { return Values(in.size(), joined(in)); }},
    {"gather", matrix, [](Inputs x, Communicator& comm) { return gather(x[0], last(comm), comm); },
     [](const Values& in) {
       Values out(in.size());
       out.back() = joined(in);
       return out;
     }},
    {"gather uneven", uneven_matrix,
     [](Inputs x, Communicator& comm) { return gather_v(x[0], uneven_of(comm.size()), {0}, comm); },
     [](const Values& in) {
       Values out(in.size());
       out.front() = joined(in);
       return out;
     }},
    {"scatter", blocks, [](Inputs x, Communicator& comm) { return scatter(x[0], last(comm), comm); },
     [](const Values& in) { return cut(in.back(), Rows(in.size(), 2)); }},
    {"scatter uneven", uneven_blocks,
     [](Inputs x, Communicator& comm) { return scatter_v(x[0], uneven_of(comm.size()), {0}, comm); },
     [](const Values& in) { return cut(in.front(), uneven_of(static_cast<int>(in.size()))); }},
};

const DistributedCase root_cases[] = {
    {"broadcast", matrix, [](Inputs x, Communicator& comm) { return broadcast(x[0], last(comm), comm); },
     [](const Values& in) { return Values(in.size(), in.back()); }},
    {"reduce", matrix, [](Inputs x, Communicator& comm) { return reduce(x[0], last(comm), comm); },
     [](const Values& in) {
       Values out(in.size(), std::vector<double>(in[0].size(), 0.0));
       out.back() = folded(in, plus);
       return out;
     }},
    {"reduce mean", matrix, [](Inputs x, Communicator& comm) { return reduce(x[0], {0}, comm, ReduceOp::mean); },
     [](const Values& in) {
       Values out(in.size(), std::vector<double>(in[0].size(), 0.0));
       out.front() = averaged(in)[0];
       return out;
     }},
};

Values transposed(const Values& in, const Counts& counts) {
  std::vector<Values> pieces;
  for (size_t r = 0; r < in.size(); ++r) pieces.push_back(cut(in[r], counts[r]));
  Values out(in.size());
  for (size_t s = 0; s < in.size(); ++s)
    for (size_t r = 0; r < in.size(); ++r) out[s].insert(out[s].end(), pieces[r][s].begin(), pieces[r][s].end());
  return out;
}

const DistributedCase exchange_cases[] = {
    {"all_to_all", blocks, [](Inputs x, Communicator& comm) { return all_to_all(x[0], comm); },
     [](const Values& in) { return transposed(in, Counts(in.size(), Rows(in.size(), 2))); }},
    {"all_to_all uneven",
     [](int rank, int ranks) {
       return Shapes{{total_rows(uneven_counts(ranks)[static_cast<size_t>(rank)]), 3}};
     },
     [](Inputs x, Communicator& comm) { return all_to_all_v(x[0], uneven_counts(comm.size()), comm); },
     [](const Values& in) { return transposed(in, uneven_counts(static_cast<int>(in.size()))); }},
    {"permute to a tree", matrix, [](Inputs x, Communicator& comm) { return permute(x[0], tree(comm.size()), comm); },
     [](const Values& in) {
       Values out(in.size(), std::vector<double>(in[0].size(), 0.0));
       for (size_t r = 1; r < in.size(); ++r) out[r] = in[(r - 1) / 2];
       return out;
     }},
    {"permute around the ring", matrix, [](Inputs x, Communicator& comm) { return shift(x[0], 1, comm); },
     [](const Values& in) {
       Values out = in;
       for (size_t r = 0; r < in.size(); ++r) out[(r + 1) % in.size()] = in[r];
       return out;
     }},
    {"send and receive along a line", matrix,
     [](Inputs x, Communicator& comm) {
       Var got = x[0];
       if (comm.rank().value + 1 < comm.size()) send(x[0], {comm.rank().value + 1}, comm);
       if (comm.rank().value > 0)
         got = receive(*x[0].tape(), x[0].shape(), x[0].dtype(), x[0].device(), {comm.rank().value - 1}, comm);
       return got;
     },
     [](const Values& in) {
       Values out = in;
       for (size_t r = 1; r < in.size(); ++r) out[r] = in[r - 1];
       return out;
     }},
};

template <Fold f> Values prefixes(const Values& in) {
  Values out;
  for (size_t r = 0; r < in.size(); ++r) out.push_back(folded(in, f, 0, r + 1));
  return out;
}
template <ReduceOp op> Var scanned(Inputs x, Communicator& comm) { return scan(x[0], comm, op); }

const DistributedCase scan_cases[] = {
    {"scan sum", matrix, scanned<ReduceOp::sum>, prefixes<plus>},
    {"scan product", matrix, scanned<ReduceOp::product>, prefixes<times>},
    {"scan maximum", matrix, scanned<ReduceOp::maximum>, prefixes<larger>},
    {"scan minimum", matrix, scanned<ReduceOp::minimum>, prefixes<smaller>},
    {"exscan", matrix, [](Inputs x, Communicator& comm) { return exscan(x[0], comm); },
     [](const Values& in) {
       Values out(1, std::vector<double>(in[0].size(), 0.0));
       for (size_t r = 1; r < in.size(); ++r) out.push_back(folded(in, plus, 0, r));
       return out;
     }},
};

const DistributedCase composed_cases[] = {
    {"weighted_mean",
     [](int, int) {
       return Shapes{{2, 3}, {}};
     },
     [](Inputs x, Communicator& comm) { return weighted_mean(x[0], x[1], comm); }, nullptr, 0.5, 2},
    {"all_reduce_norm", matrix, [](Inputs x, Communicator& comm) { return all_reduce_norm(x[0], comm); },
     [](const Values& in) {
       std::vector<double> squares(in[0].size(), 0.0);
       for (const auto& x : in)
         for (size_t i = 0; i < x.size(); ++i) squares[i] += x[i] * x[i];
       for (double& v : squares) v = std::sqrt(v);
       return Values(in.size(), squares);
     },
     0.2, 1},
    {"all_reduce_log_sum_exp", matrix, [](Inputs x, Communicator& comm) { return all_reduce_log_sum_exp(x[0], comm); },
     [](const Values& in) {
       std::vector<double> sums(in[0].size(), 0.0);
       for (const auto& x : in)
         for (size_t i = 0; i < x.size(); ++i) sums[i] += maths::exp(x[i]);
       for (double& v : sums) v = maths::log(v);
       return Values(in.size(), sums);
     }},
    {"checkpoint of a collective, several results", matrix,
     [](Inputs x, Communicator& comm) {
       const auto piece = [&comm](Inputs v) {
         const Var sums = all_reduce(exp(v[0]), comm), others = shift(v[0], 1, comm);
         return Vars{sums * v[0], square(others), sums};
       };
       const Vars y = checkpoint(piece, {x[0]});
       return y[0] * y[1];
     }},
    {"checkpoint of a collective, a result for each rank", matrix,
     [](Inputs x, Communicator& comm) {  // all ranks replay both collectives, although each uses only one result
       const auto piece = [&comm](Inputs v) {
         return Vars{all_reduce(exp(v[0]), comm) * v[0], square(shift(v[0], 1, comm)) * v[0]};
       };
       return checkpoint(piece, {x[0]})[static_cast<size_t>(comm.rank().value % 2)];
     }},
};

}  // namespace
}  // namespace weft
