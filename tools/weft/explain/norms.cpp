// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/norms.h"

#include <algorithm>
#include <cmath>

#include "tools/weft/explain/lists.h"

namespace weft::verify {
namespace {

double plus(double a, double b) { return a + b; }
double same(double x) { return x; }

// Of the gradients of all ranks, each element once.
double norm_of_all(const Norm& norm, const Dump& dump) {
  double all = 0;
  for (const ParameterEvidence& each : dump.parameters) {
    double copies = 1, of_ranks = 0;
    const Layout layout = layout_of(each, dump);
    for (size_t axis = 0; axis < layout.reduced.size(); ++axis)
      if (layout.reduced[axis].kind == Placement::Kind::replicate) copies *= mesh_of(dump).axes[axis].size;
    for (const Matrix& gradient : each.reduced) of_ranks = norm.together(of_ranks, norm.power(gradient));
    all = norm.together(all, norm.together(1, 1) == 1 ? of_ranks : of_ranks / copies);
  }
  return norm.root(all);
}

}  // namespace

const std::vector<Norm>& norms() {
  static const std::vector<Norm> all = {
      {"", plus, [](const Matrix& x) { return x.squaredNorm(); }, [](double x) { return std::sqrt(x); }},
      {"the norm p = 1", plus, [](const Matrix& x) { return x.cwiseAbs().sum(); }, same},
      {"the norm p = 3", plus, [](const Matrix& x) { return x.cwiseAbs().array().cube().sum(); },
       [](double x) { return std::cbrt(x); }},
      {"the largest element", [](double a, double b) { return std::max(a, b); },
       [](const Matrix& x) { return x.size() == 0 ? 0 : x.cwiseAbs().maxCoeff(); }, same}};
  return all;
}

std::optional<Described> described(const NormEvidence& norm, const Dump& dump) {
  std::vector<std::string> found;
  double error = 0;
  const auto try_norm = [&](const char* name, double value) {
    double worst = 0;
    for (const double each : norm.by_rank)
      worst = std::max(worst, std::abs(each - value) / (norm.precision.epsilon * std::abs(value)));
    if (!(worst <= limit)) return;
    found.push_back(name);
    error = std::max(error, worst);
  };
  for (size_t i = 1; i < norms().size(); ++i) try_norm(norms()[i].name, norm_of_all(norms()[i], dump));
  try_norm("1, whatever the gradients are", 1);
  if (found.empty()) return std::nullopt;
  return Described{"the norm is " + listed(found, ", or "), error, "take the root of the sum of all squares"};
}

}  // namespace weft::verify
