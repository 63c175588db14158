// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/dump_reader.h"

#include <algorithm>

#include "tools/weft/dump/matrix_of.h"
#include "weft/data/files/safetensors.h"

namespace weft::verify {
namespace {

Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return {"bf16", 0x1p-8};
    case DType::f32: return {"f32", 0x1p-23};
    default: return {};
  }
}

void lower(Precision& of_all, const Precision& here) {
  if (here.epsilon > of_all.epsilon) of_all = here;
}
void lower(Precision& of_all, DType dtype) { lower(of_all, precision_of(dtype)); }

// A vector of features has one number for each sample.
Matrix rows_of(const Tensor& tensor) {
  return matrix_of(tensor.shape().rank() == 1 ? tensor.reshape({tensor.size(), 1}) : tensor);
}

}  // namespace

void DumpReader::read(const std::vector<std::filesystem::path>& files) {
  require(!files.empty(), "verify: there is no dump of any rank");
  dump.files = files;
  dump.ranks = static_cast<int>(files.size());
  check_counts();
  if (loss) prepare_seam();
  for (size_t rank = 0; rank < files.size(); ++rank) {
    const SafetensorsFile file(files[rank]);
    for (const SafetensorsFile::Entry& entry : file.tensors()) {
      const Role role = role_of(entry.name);
      if (role.kind != Role::Kind::none) place(role, file.read(entry.name), rank, entry.name);
    }
  }
  if (loss) check_seam();
  if (scale) dump.scale = scale->finish(dump.parameters);
  if (dump.norm)
    check_norm();
  else  // nothing to hold the reduced gradient against
    std::erase_if(dump.parameters, [](const ParameterEvidence& p) { return !p.has_local(); });
  for (const auto& [name, layout] : layouts)
    require(std::ranges::find(dump.parameters, name, &ParameterEvidence::name) != dump.parameters.end(),
            "verify: the manifest places the parameter '", name, "', of which there are no gradients");
  for (ParameterEvidence& p : dump.parameters) check_parameter(p);
  for (const auto& [name, values] : dump.counts)
    require(values.cols() == 1 || values.cols() == dump.micro_batches, "verify: the count '", name, "' is of ",
            values.cols(), " micro-batches, but there are ", dump.micro_batches);
  check_layers(dump);
}

void DumpReader::check_counts() const {
  require(mesh_of(dump).ranks() == dump.ranks, "verify: the mesh is ", mesh_of(dump).text(), ", which is ",
          mesh_of(dump).ranks(), " ranks, but there are files of ", dump.ranks);
  require(dump.rows.empty() || dump.rows.size() == dump.files.size(), "verify: there are rows of ", dump.rows.size(),
          " ranks, but files of ", dump.ranks);
  for (const auto& [name, values] : dump.counts)
    require(values.size() == 1 || values.rows() == dump.ranks, "verify: the count '", name, "' is of ", values.rows(),
            " ranks, but there are files of ", dump.ranks);
  for (const auto& [name, of_ranks] : hashes)
    require(of_ranks.size() == dump.files.size(), "verify: there are hashes of '", name, "' on ", of_ranks.size(),
            " ranks, but files of ", dump.ranks);
}

void DumpReader::prepare_seam() {
  SeamEvidence& seam = dump.seam.emplace();
  seam.loss = loss;
  seam.batch.features.assign(loss->towers.size(), std::vector<Matrix>(dump.files.size()));
  seam.gradients = seam.batch.features;
  seam.batch.options = loss->options;
  for (const auto& [name, value] : options) {
    require(loss->options.contains(name), "verify: ", loss->name, " has no option '", name, "'");
    require((name != "temperature" && name != "inverse_temperature") || value > 0,
            "verify: a temperature is positive, not ", value);
    require((name != "epsilon" && name != "clamp") || value >= 0, "verify: ", name, " is zero or more, not ", value);
    seam.batch.options[name] = value;
  }
}

Role DumpReader::role_of(const std::string& name) const {
  const auto found = roles.find(name);
  return found != roles.end() ? found->second : role_by_name(name, loss);
}

ParameterEvidence& DumpReader::parameter(const std::string& name) {
  for (ParameterEvidence& each : dump.parameters)
    if (each.name == name) return each;
  ParameterEvidence& added = dump.parameters.emplace_back();
  added.name = name;
  added.local.resize(dump.files.size());
  added.reduced.resize(dump.files.size());
  added.local_shapes.resize(dump.files.size());
  added.reduced_shapes.resize(dump.files.size());
  if (hashes.contains(name)) added.hashes = hashes.at(name);
  if (layouts.contains(name)) added.layout = layouts.at(name);
  return added;
}

void DumpReader::place(const Role& role, const Tensor& tensor, size_t rank, const std::string& name) {
  if (ScaleReader::reads(role.kind)) {
    require(scale.has_value(), where(rank), ": '", name, "' needs a section \"scale\" in manifest.json");
    return scale->place(role, tensor, rank);
  }
  if (is_of_layer(role.kind)) return place_in_layer(dump, role, rows_of(tensor), precision_of(tensor.dtype()), rank);
  switch (role.kind) {
    case Role::Kind::feature:
    case Role::Kind::seam_gradient: return place_features(role, tensor, rank, name);
    case Role::Kind::scalar:
    case Role::Kind::scalar_gradient: return place_scalar(role, tensor, rank, name);
    case Role::Kind::gradient_norm: return place_norm(tensor, rank, name);
    default: return place_parameter(role, tensor, rank);
  }
}

void DumpReader::place_features(const Role& role, const Tensor& tensor, size_t rank, const std::string& name) {
  require(loss && is_one_of(loss->towers, role.of), where(rank), ": '", name, "' belongs to features '", role.of,
          "', which ", loss ? loss->name + " does not have" : "need a loss");
  const auto tower =
      static_cast<size_t>(std::find(loss->towers.begin(), loss->towers.end(), role.of) - loss->towers.begin());
  const bool gradient = role.kind == Role::Kind::seam_gradient;
  (gradient ? dump.seam->gradients : dump.seam->batch.features)[tower][rank] = rows_of(tensor);
  if (gradient) lower(dump.seam->precision, tensor.dtype());
}

void DumpReader::place_scalar(const Role& role, const Tensor& tensor, size_t rank, const std::string& name) {
  require(loss && is_one_of(loss->scalars, role.of), where(rank), ": '", name, "' belongs to the scalar '", role.of,
          "', which ", loss ? loss->name + " does not have" : "needs a loss");
  require(tensor.size() == 1, where(rank), ": '", name, "' is one number, not ", tensor.shape());
  const double value = tensor.item();
  if (role.kind == Role::Kind::scalar_gradient) {
    auto& of_ranks = dump.seam->scalars[role.of];
    of_ranks.push_back(value);
    lower(dump.seam->precision, tensor.dtype());
    require(of_ranks.size() == rank + 1, where(rank), ": an earlier rank has no gradient of '", role.of, "'");
    return;
  }
  const double first = dump.seam->batch.scalars.emplace(role.of, value).first->second;
  require(first == value, where(rank), ": '", role.of, "' is ", value, ", on an earlier rank ", first,
          ": the replicas have diverged (S26)");
}

void DumpReader::place_norm(const Tensor& tensor, size_t rank, const std::string& name) {
  require(tensor.size() == 1, where(rank), ": '", name, "' is one number, not ", tensor.shape());
  if (!dump.norm) dump.norm.emplace();
  lower(dump.norm->precision, tensor.dtype());
  dump.norm->by_rank.push_back(tensor.item());
  require(dump.norm->by_rank.size() == rank + 1, where(rank), ": an earlier rank has no '", name, "'");
}

void DumpReader::place_parameter(const Role& role, const Tensor& tensor, size_t rank) {
  ParameterEvidence& p = parameter(role.of);
  const Matrix values = matrix_of(tensor.reshape({1, tensor.size()}));
  const auto place_in = [&](std::vector<Matrix>& by_rank) {
    by_rank.resize(dump.files.size());
    by_rank[rank] = values;
  };
  if (role.kind == Role::Kind::previous_gradient) return place_in(p.previous);
  if (role.kind == Role::Kind::repeated_gradient) return place_in(p.again);
  lower(p.precision, tensor.dtype());
  if (role.kind == Role::Kind::reduced_gradient) {
    p.reduced_shapes[rank] = tensor.shape();
    return place_in(p.reduced);
  }
  place_local(p, role, values, tensor.shape(), rank);
}

void DumpReader::place_local(ParameterEvidence& p, const Role& role, const Matrix& values, const Shape& shape,
                             size_t rank) {
  require(role.micro_batch < max_micro_batches, where(rank), ": '", role.of, "' has a micro-batch ", role.micro_batch,
          ", but there are at most ", max_micro_batches);
  const auto place_in = [&](std::vector<Matrix>& by_micro_batch) -> Matrix& {
    if (by_micro_batch.size() <= role.micro_batch) by_micro_batch.resize(role.micro_batch + 1);
    return by_micro_batch[role.micro_batch];
  };
  Matrix& sum = place_in(p.local[rank]);
  const bool first = sum.rows() == 0;
  require(first || (!role.use.empty() && !p.uses.empty() && p.local_shapes[rank] == shape), where(rank),
          ": there are two local gradients of '", role.of, "', which are not those of two uses of one shape");
  p.local_shapes[rank] = shape;
  sum = first ? values : Matrix(sum + values);
  if (role.use.empty()) return;
  auto& use = p.uses[role.use];
  use.resize(dump.files.size());
  place_in(use[rank]) = values;
}

void DumpReader::check_seam() {
  SeamEvidence& seam = *dump.seam;
  for (size_t tower = 0; tower < loss->towers.size(); ++tower)
    for (size_t r = 0; r < dump.files.size(); ++r) check_features(loss->towers[tower], tower, r);
  require(seam.batch.all_rows() >= loss->min_rows, "verify: the batch of all ranks has ", seam.batch.all_rows(),
          " rows; ", loss->name, " needs at least ", loss->min_rows);
  for (const std::string& name : loss->scalars)
    require(seam.batch.scalars.contains(name), where(0), ": ", loss->name, " needs its scalar '", name, "'");
  for (const auto& [name, of_ranks] : seam.scalars)
    require(of_ranks.size() == dump.files.size(), where(dump.files.size() - 1), ": there is no gradient of '", name,
            "'");
  const bool told = !dump.rows.empty();
  for (int r = 0; r < dump.ranks; ++r) {
    const int64_t rows = seam.batch.rows(r);
    if (!told) dump.rows.push_back(rows);
    require(dump.rows[static_cast<size_t>(r)] == rows, where(static_cast<size_t>(r)), ": the features have ", rows,
            " rows, but by the manifest rank ", r, " has ", dump.rows[static_cast<size_t>(r)]);
  }
}

void DumpReader::check_features(const std::string& name, size_t tower, size_t r) const {
  const SeamEvidence& seam = *dump.seam;
  const Matrix &x = seam.batch.features[tower][r], &g = seam.gradients[tower][r];
  require(x.cols() > 0, where(r), ": there are no features '", name, "' of ", loss->name);
  require(x.rows() == seam.batch.features[0][r].rows() && x.cols() == seam.batch.features[0][0].cols(), where(r), ": '",
          name, "' is ", x.rows(), " x ", x.cols(), ", unlike other features of this loss");
  require(x.allFinite(), where(r), ": '", name, "' has numbers that are not finite");
  if (is_one_of(loss->targets, name) && g.cols() == 0 && !seam.has_gradient(tower)) return;
  require(g.cols() > 0, where(r), ": there is no gradient '", name, ".grad'");
  require(x.rows() == g.rows() && x.cols() == g.cols(), where(r), ": '", name, "' has ", x.rows(), " x ", x.cols(),
          " elements, its gradient ", g.rows(), " x ", g.cols());
}

void DumpReader::check_norm() {
  require(dump.norm->by_rank.size() == dump.files.size(), where(dump.files.size() - 1),
          ": there is no gradient norm, which an earlier rank has");
  for (const ParameterEvidence& p : dump.parameters) lower(dump.norm->precision, p.precision);
}

void DumpReader::check_parameter(ParameterEvidence& p) {
  for (size_t r = 0; r < dump.files.size(); ++r)
    require(p.reduced[r].rows() > 0, where(r), ": there is no 'reduced/", p.name, "'");
  if (!p.has_local()) return;
  const size_t passes = p.local[0].size();
  dump.micro_batches = std::max(dump.micro_batches, static_cast<int>(passes));
  for (size_t r = 0; r < dump.files.size(); ++r) {
    require(passes > 0 && p.local[r].size() == passes, where(r), ": '", p.name, "' has local gradients of ",
            p.local[r].size(), " micro-batches, on rank 0 of ", passes);
    check_dimensions(p, r);
    const auto check_size = [&](const char* what, const Matrix& m, const Shape& shape) {
      require(m.rows() > 0 && m.size() == shape.size(), where(r), ": the ", what, " gradient of '", p.name, "' has ",
              m.size(), " elements, not ", shape.size());
    };
    for (const Matrix& m : p.local[r]) check_size("local", m, p.local_shapes[r]);
    if (!p.previous.empty()) check_size("previous", p.previous[r], p.reduced_shapes[r]);
    if (!p.again.empty()) check_size("repeated", p.again[r], p.reduced_shapes[r]);
  }
  fill_uses(p, passes);
  check_reduction(p);
}

void DumpReader::check_dimensions(const ParameterEvidence& p, size_t r) const {
  const Layout layout = layout_of(p, dump);
  const bool flat = std::ranges::any_of(layout.reduced, &Placement::flat);
  const auto check = [&](const char* what, const Placement& placement, const Shape& shape) {
    require(placement.dimension < shape.rank(), where(r), ": the ", what, " gradient of '", p.name, "' is ", shape,
            ", which has no dimension ", placement.dimension, " for its placement ", text(placement));
    require(!placement.flat || shape.rank() == 1, where(r), ": the ", what, " gradient of '", p.name, "' is ", shape,
            ", but is flattened by its placement ", text(placement));
  };
  for (size_t axis = 0; axis < layout.local.size(); ++axis) {
    check("local", layout.local[axis], p.local_shapes[r]);
    if (!flat || layout.reduced[axis].flat) check("reduced", layout.reduced[axis], p.reduced_shapes[r]);
  }
}

// A rank without some use, such as a stage of a pipeline, adds nothing to it.
void DumpReader::fill_uses(ParameterEvidence& p, size_t passes) {
  for (auto& [name, by_rank] : p.uses)
    for (size_t r = 0; r < by_rank.size(); ++r) {
      by_rank[r].resize(passes);
      for (size_t k = 0; k < passes; ++k)
        if (by_rank[r][k].rows() == 0) by_rank[r][k] = Matrix::Zero(1, p.local[r][k].size());
    }
}

void DumpReader::check_reduction(const ParameterEvidence& p) const {
  std::vector<Block> blocks;
  for (size_t r = 0; r < dump.files.size(); ++r) blocks.push_back(p.local_block(r, p.local[r][0]));
  try {
    Reduction(mesh_of(dump), layout_of(p, dump), p.shapes_of_reduced())(std::move(blocks));
  } catch (const Error& error) {
    throw Error("verify: the gradient of '" + p.name + "' " + error.what());
  }
}

}  // namespace weft::verify
