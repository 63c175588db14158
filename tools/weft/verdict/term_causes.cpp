// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/scale_causes.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "tools/weft/explain/fraction.h"

namespace weft::verify {
namespace {

using TermFactors = std::map<std::string, double>;  // of terms that do not count as they should

// Those that mistakes give to a term: the sizes of all groups of ranks, and the number of micro-batches.
std::set<double> factors_of_terms(const Dump& dump) {
  std::set<double> factors = {0};
  const auto add = [&](double count) { factors.insert({count, 1 / count}); };
  add(dump.ranks);
  add(dump.micro_batches);
  for (const Axis& axis : mesh_of(dump).axes) add(axis.size);
  factors.erase(1);
  return factors;
}

// The slopes of the objective if its terms count by these factors.
Slopes slopes_of_terms(const MeasuredParameter& p, const TermFactors& factors) {
  Slopes sum{Eigen::VectorXd::Zero(p.parameter->directions.rows()), 0, 0};
  for (const auto& [term, slopes] : p.terms) {
    const auto found = factors.find(term);
    const double factor = found == factors.end() ? 1 : found->second;
    sum.along += factor * slopes.along;
    sum.rounding += factor * slopes.rounding;
    sum.truncation += factor * slopes.truncation;
  }
  return sum;
}

const Slopes& slopes(SlopesOf ours, const MeasuredParameter& p) {
  return ours == SlopesOf::losses ? p.loss->ours : p.gradients[0].ours;
}

Factor by_terms(SlopesOf ours, const MeasuredParameter& p, const TermFactors& factors) {
  return {slopes(ours, p), slopes_of_terms(p, factors)};
}

// By what factors the terms count, if the slopes of all parameters tell that of each.
TermFactors fitted(SlopesOf ours, const std::vector<MeasuredParameter>& all) {
  const auto& terms = all[0].terms;
  Eigen::Index equations = 0;
  for (const MeasuredParameter& p : all) equations += p.parameter->directions.rows();
  if (equations < 2 * std::ssize(terms)) return {};  // a few would fit anything
  Eigen::MatrixXd of_terms(equations, std::ssize(terms));
  Eigen::VectorXd sum(equations);
  Eigen::Index row = 0;
  for (const MeasuredParameter& p : all) {
    const Eigen::Index rows = p.parameter->directions.rows();
    const double weight = 1 / by_terms(ours, p, {}).tolerance(1);
    sum.segment(row, rows) = weight * slopes(ours, p).along;
    Eigen::Index column = 0;
    for (const auto& each : p.terms) of_terms.col(column++).segment(row, rows) = weight * each.second.along;
    row += rows;
  }
  const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(of_terms);
  if (!sum.allFinite() || qr.rank() < std::ssize(terms)) return {};
  const Eigen::VectorXd found = qr.solve(sum);
  TermFactors factors;
  constexpr double nearly = 1e-3;
  Eigen::Index column = 0;
  for (const auto& each : terms) {
    const double factor = as_fraction(found[column], nearly * std::abs(found[column]));
    if (factor != 1) factors[each.first] = factor;
    ++column;
  }
  return factors;
}

// Several, if the number of micro-batches is also one of ranks.
std::vector<const char*> names_of(const TermFactors& factors, const Dump& dump) {
  const double ranks = dump.ranks, passes = dump.micro_batches;
  const auto every = [&](auto test) {
    return std::ranges::all_of(factors, [&](const auto& each) { return test(each.second); });
  };
  if (every([](double factor) { return factor == 0; })) return {"S32"};
  std::vector<const char*> names;
  if (every([&](double factor) { return factor == 1 / ranks; })) names.push_back("S10");
  if (every([&](double factor) { return factor == passes || factor == 1 / passes; })) names.push_back("S16");
  const auto of_group = [&](double factor) {
    return factor == ranks || std::ranges::any_of(mesh_of(dump).axes, [&](const Axis& axis) {
             return factor == axis.size || factor == 1.0 / axis.size;
           });
  };
  if (names.empty() || (names[0] != std::string("S10") && every(of_group))) names.push_back("S33");
  return names;
}

// "the term auxiliary 2x"
std::string text(const TermFactors& factors) {
  std::ostringstream all;
  for (const auto& [term, factor] : factors)
    all << (all.tellp() > 0 ? ", " : "") << "the term " << term << " " << factor << "x";
  return all.str();
}

}  // namespace

Causes causes_of_terms(SlopesOf ours, const MeasuredParameter& of, const std::vector<MeasuredParameter>& all,
                       const Dump& dump) {
  Causes causes;
  const auto try_factors = [&](const TermFactors& factors) {
    const auto explains = [&](const MeasuredParameter& p) {
      return (ours == SlopesOf::losses || p.agree) && by_terms(ours, p, factors).is(1);
    };
    if (!std::ranges::all_of(all, explains)) return;
    const Factor here = by_terms(ours, of, factors);
    for (const char* name : names_of(factors, dump))
      causes.push_back({&signature(name), text(factors), limit * here.distance(1) / here.tolerance(1)});
  };
  const std::set<double> factors = factors_of_terms(dump);
  for (const auto& [term, slopes] : of.terms)
    for (const double factor : factors) try_factors({{term, factor}});
  if (!causes.empty()) return causes;
  for (auto first = of.terms.begin(); first != of.terms.end(); ++first)
    for (auto second = std::next(first); second != of.terms.end(); ++second)
      for (const double of_first : factors)
        for (const double of_second : factors) try_factors({{first->first, of_first}, {second->first, of_second}});
  if (!causes.empty() || of.terms.empty()) return causes;
  if (const TermFactors any = fitted(ours, all); !any.empty()) try_factors(any);
  return causes;
}

}  // namespace weft::verify
