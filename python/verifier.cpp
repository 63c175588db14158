// SPDX-License-Identifier: Apache-2.0
// The verifier for Python. Verdicts cross as JSON, which the program weft prints, too, so both say the same.
#include "python/verifier.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <Eigen/Core>

#include "tools/weft/verdict/certificate.h"
#include "tools/weft/verdict/compare.h"
#include "tools/weft/verdict/print.h"
#include "tools/weft/verdict/step_verdict.h"
#include "weft/data/files/checksum.h"
#include "weft/data/idx.h"
#include "weft/engine/tensor/error.h"

namespace nb = nanobind;
using namespace weft::verify;

namespace {

// For programs and for people, and what the dump could not tell.
using Told = std::vector<std::string>;

Told told(const std::vector<Verdict>& all, const Dump& dump) {
  return {json_of(all, dump), text_of(all, dump), power_of(all, dump)};
}

Told told_verdicts(const std::string& folder) {
  const Dump dump = read_dump(std::filesystem::path(folder));
  return told(verdicts(dump), dump);
}

Told told_differences(const std::string& ours, const std::string& theirs, double limit) {
  const Difference difference = compare(ours, theirs, limit);
  return {json_of(difference), text_of(difference)};
}

Told told_certificate(const std::string& folder) {
  const Certificate certificate = certificate_of(folder);
  return {certificate.json, certificate.page};
}

std::vector<std::map<std::string, std::string>> all_signatures() {
  std::vector<std::map<std::string, std::string>> all;
  for (const Signature& each : signatures())
    all.push_back({{"id", each.id}, {"name", each.name}, {"effect", each.effect}, {"repair", each.repair}});
  return all;
}

std::map<std::string, std::string> all_losses() {
  std::map<std::string, std::string> all;
  for (const Loss& loss : losses()) all[loss.name] = loss.formula;
  return all;
}

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// act(T{}) for the type of an array's numbers.
auto with_type_of(const Array& array, auto act) {
  if (array.dtype() == nb::dtype<float>()) return act(float());
  if (array.dtype() == nb::dtype<double>()) return act(double());
  const nb::dlpack::dtype bfloat16{static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
  if (array.dtype() == bfloat16) return act(Eigen::bfloat16());
  const nb::dlpack::dtype float16{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
  if (array.dtype() == float16) return act(Eigen::half());
  throw weft::Error("gradients are compared in f32, f64, bf16 and f16");
}
template <class T> const T* numbers(const Array& array) { return static_cast<const T*>(array.data()); }

int64_t rows_of(const Array& array) {
  return array.ndim() > 1 ? std::max<int64_t>(1, static_cast<int64_t>(array.shape(0))) : 1;
}

// As a Distance has them.
using ToldDistance = std::tuple<double, double, double, double, double, int64_t, double, double>;

ToldDistance told_distance(const Array& found, const Array& truth, const std::vector<Array>& inexact,
                           const std::optional<Array>& squares, int terms) {
  return with_type_of(truth, [&]<class T>(T) {
    std::vector<const T*> moved;
    for (const Array& each : inexact) moved.push_back(numbers<T>(each));
    const auto elements = static_cast<int64_t>(truth.size());
    const Distance all = distance<T>(
        numbers<T>(found), {numbers<T>(truth), moved, squares ? numbers<double>(*squares) : nullptr, terms, elements,
                            rows_of(truth), static_cast<double>(std::numeric_limits<T>::epsilon())});
    return ToldDistance{all.error, all.cosine,        all.ratio, all.length,
                        all.shown, all.worst_element, all.found, all.truth};
  });
}

// Parameter, rank, elements, distance.
using GivenRow = std::tuple<std::string, int, int64_t, ToldDistance>;
std::vector<StepRow> rows_of(const std::vector<GivenRow>& given) {
  std::vector<StepRow> all;
  for (const auto& [parameter, rank, elements, told] : given) {
    const auto& [error, cosine, ratio, length, shown, worst, found, truth] = told;
    all.push_back({parameter, rank, elements, {error, cosine, ratio, length, shown, worst, found, truth}});
  }
  return all;
}

Matrix matrix_of(const Array& array) {
  return with_type_of(array, [&]<class T>(T) -> Matrix {
    using Numbers = Eigen::Matrix<T, 1, Eigen::Dynamic>;
    return Eigen::Map<const Numbers>(numbers<T>(array), static_cast<Eigen::Index>(array.size()))
        .template cast<double>();
  });
}
std::vector<Matrix> matrices_of(const std::vector<Array>& arrays) {
  std::vector<Matrix> all;
  for (const Array& each : arrays) all.push_back(matrix_of(each));
  return all;
}
// Name, local gradients by rank and pass, reduced ones, the truth and inexact ones.
using GivenParameter =
    std::tuple<std::string, std::vector<std::vector<Array>>, std::vector<Array>, Array, std::vector<Array>>;
using Table = std::vector<std::vector<double>>;
using Counts = std::map<std::string, Table>;  // by name, rank and micro-batch
Matrix table_of(const Table& rows) {
  Matrix all(rows.size(), rows.at(0).size());
  for (size_t r = 0; r < rows.size(); ++r)
    all.row(static_cast<Eigen::Index>(r)) = Eigen::Map<const Eigen::RowVectorXd>(rows[r].data(), all.cols());
  return all;
}
Precision precision_of(const Array& array) {
  return with_type_of(array, []<class T>(T) {
    return Precision{"", static_cast<double>(std::numeric_limits<T>::epsilon())};
  });
}

std::vector<std::string> told_sought_in(const std::vector<GivenRow>& rows) { return sought_in(rows_of(rows)); }

// By rank and backward pass.
using LocalArrays = std::vector<std::vector<Array>>;
std::vector<std::string> told_blindness(const std::map<std::string, int64_t>& sizes,
                                        const std::function<LocalArrays(std::string)>& local_of, int ranks,
                                        const std::vector<int64_t>& rows) {
  const auto evidence = [&](const std::string& name) {
    ParameterEvidence parameter;
    parameter.name = name;
    for (const std::vector<Array>& of_rank : local_of(name)) {
      parameter.precision.lower_to(precision_of(of_rank.at(0)));
      parameter.local.push_back(matrices_of(of_rank));
    }
    return parameter;
  };
  return blindness(sizes, evidence, ranks, rows);
}

// `parameters` are those in which the cause is sought, `samples` those of each part of the batch; `mended` collectives
// with which the step is right.
Told told_step(int ranks, const std::vector<GivenRow>& rows, const std::vector<GivenParameter>& parameters,
               const std::vector<int64_t>& samples, const Counts& counts, const std::vector<std::string>& blind_to,
               const std::vector<std::string>& lost, const std::vector<std::string>& mended, double mended_error) {
  FoundInStep found{rows_of(rows), std::nullopt, blind_to, lost};
  Step step;
  step.ranks = ranks;
  step.rows = samples;
  for (const auto& [name, table] : counts) step.counts.push_back({name, table_of(table)});
  step.others_right = others_right(found.rows);
  for (const auto& [name, local, reduced, truth, inexact] : parameters) {
    StepParameter& each = step.parameters.emplace_back();
    each.name = name;
    for (const std::vector<Array>& of_rank : local) each.local.push_back(matrices_of(of_rank));
    each.reduced = matrices_of(reduced);
    each.truth = matrix_of(truth);
    each.inexact = matrices_of(inexact);
    each.rows = rows_of(truth);
    each.precision = precision_of(truth);
  }
  if (!parameters.empty()) found.cause = cause_of(step);
  if (!mended.empty() && !(found.cause && found.cause->signature)) found.cause = lost_gradients(mended, mended_error);
  Dump dump;
  dump.ranks = ranks;
  dump.step.emplace();
  return told({verdict(found)}, dump);
}

uint64_t fingerprint(const Array& array) { return weft::checksum(array.data(), array.nbytes()); }

}  // namespace

namespace weft::python {

void add_verifier(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> aside;
  module.def("verify", &told_verdicts, aside);
  module.def("compare", &told_differences, aside);
  module.def("certify", &told_certificate, aside);
  module.def("signatures", &all_signatures);
  module.def("known_losses", &all_losses);
  module.def("distance", &told_distance, aside);
  module.def("sought_in", &told_sought_in);
  module.def("blindness", &told_blindness);
  module.def("step_verdict", &told_step);
  module.def("fingerprint", &fingerprint, aside);
}

}  // namespace weft::python
