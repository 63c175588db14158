// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/dump_reader.h"

#include <algorithm>

#include "tools/weft/dump/loading.h"
#include "tools/weft/dump/matrix_of.h"
#include "weft/data/files/safetensors.h"

namespace weft::verify {
namespace {

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
  const auto of_step = [](Role::Kind kind) {
    return kind == Role::Kind::local_gradient || kind == Role::Kind::reduced_gradient;
  };
  const auto of_dump = [](Role::Kind kind) { return !is_of_truth(kind); };
  for (size_t rank = 0; rank < files.size(); ++rank)
    dump.step ? read_file(files[rank], rank, of_step) : read_file(files[rank], rank, of_dump);
  if (dump.step) {
    for (const auto& path : dump.step->files)
      read_file(path, 0, [](Role::Kind kind) { return is_of_truth(kind) && kind != Role::Kind::mended_gradient; });
    for (size_t rank = 0; rank < dump.step->mended_files.size(); ++rank)
      read_file(dump.step->mended_files[rank], rank,
                [](Role::Kind kind) { return kind == Role::Kind::mended_gradient; });
    check_step(parameters_, dump);
    check_micro_batches();
    dump.step->parameters = std::move(parameters_);
    return;
  }
  if (loss) check_seam();
  if (scale) dump.scale = scale->finish(moved_parameters());
  for (const StoredParameter& p : parameters_)
    require(p.update.empty() || p.has_local(), "verify: '", p.name, "' has an update, but no local gradients");
  if (dump.norm)
    check_norm();
  else  // nothing to hold the reduced gradient against
    std::erase_if(parameters_, [](const StoredParameter& p) { return !p.has_local(); });
  for (const auto& [name, layout] : layouts)
    require(std::ranges::find(parameters_, name, &StoredParameter::name) != parameters_.end(),
            "verify: the manifest places the parameter '", name, "', of which there are no gradients");
  for (const StoredParameter& p : parameters_) check_parameter(p);
  check_micro_batches();
  load_parameters();
  check_layers(dump);
}

void DumpReader::read_file(const std::filesystem::path& path, size_t rank, bool (*holds)(Role::Kind)) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  for (const SafetensorsFile::Entry& entry : file->tensors()) {
    const Role role = role_of(entry.name);
    if (role.kind == Role::Kind::none) continue;
    require(
        holds(role.kind), path.string(), ": '", entry.name,
        "' has no place here: of a step with a truth there are local and reduced gradients of ranks, and in the files "
        "of \"truth\" true, inexact and mended ones");
    const StoredTensor tensor(file, entry);
    if (is_of_parameter(role.kind) || is_of_truth(role.kind))
      parameter(role.of).place(role, tensor, rank, path.string());
    else
      place(role, tensor.read(), tensor.precision(), rank, entry.name);
  }
  files_.push_back(file);
}

void DumpReader::check_counts() const {
  require(mesh_of(dump).ranks() == dump.ranks, "verify: the mesh is ", mesh_of(dump).text(), ", which is ",
          mesh_of(dump).ranks(), " ranks, but there are files of ", dump.ranks);
  require(dump.rows.empty() || dump.rows.size() == dump.files.size() ||
              (dump.step && dump.rows.size() < dump.files.size()),  // ranks share samples
          "verify: there are rows of ", dump.rows.size(), " ranks, but files of ", dump.ranks);
  for (const auto& [name, values] : dump.counts)
    require(values.size() == 1 || values.rows() == dump.ranks, "verify: the count '", name, "' is of ", values.rows(),
            " ranks, but there are files of ", dump.ranks);
  for (const auto& [name, of_ranks] : hashes)
    require(of_ranks.size() == dump.files.size(), "verify: there are hashes of '", name, "' on ", of_ranks.size(),
            " ranks, but files of ", dump.ranks);
}

void DumpReader::check_micro_batches() const {
  for (const auto& [name, values] : dump.counts)
    require(values.cols() == 1 || values.cols() == dump.micro_batches, "verify: the count '", name, "' is of ",
            values.cols(), " micro-batches, but there are ", dump.micro_batches);
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

StoredParameter& DumpReader::parameter(const std::string& name) {
  const auto [place, is_new] = places_.emplace(name, parameters_.size());
  if (!is_new) return parameters_[place->second];
  StoredParameter& added = parameters_.emplace_back(name, dump.files.size());
  if (hashes.contains(name)) added.hashes = hashes.at(name);
  if (layouts.contains(name)) added.layout = layouts.at(name);
  return added;
}

void DumpReader::place(const Role& role, const Tensor& tensor, const Precision& precision, size_t rank,
                       const std::string& name) {
  if (ScaleReader::reads(role.kind)) {
    require(scale.has_value(), where(rank), ": '", name, "' needs a section \"scale\" in manifest.json");
    return scale->place(role, tensor, rank);
  }
  if (is_of_layer(role.kind)) return place_in_layer(dump, role, rows_of(tensor), precision, rank);
  switch (role.kind) {
    case Role::Kind::feature:
    case Role::Kind::seam_gradient: return place_features(role, tensor, precision, rank, name);
    case Role::Kind::scalar:
    case Role::Kind::scalar_gradient: return place_scalar(role, tensor, precision, rank, name);
    default: return place_norm(tensor, precision, rank, name);
  }
}

void DumpReader::place_features(const Role& role, const Tensor& tensor, const Precision& precision, size_t rank,
                                const std::string& name) {
  require(loss && is_one_of(loss->towers, role.of), where(rank), ": '", name, "' belongs to features '", role.of,
          "', which ", loss ? loss->name + " does not have" : "need a loss");
  const auto tower =
      static_cast<size_t>(std::find(loss->towers.begin(), loss->towers.end(), role.of) - loss->towers.begin());
  const bool gradient = role.kind == Role::Kind::seam_gradient;
  (gradient ? dump.seam->gradients : dump.seam->batch.features)[tower][rank] = rows_of(tensor);
  if (gradient) dump.seam->precision.lower_to(precision);
}

void DumpReader::place_scalar(const Role& role, const Tensor& tensor, const Precision& precision, size_t rank,
                              const std::string& name) {
  require(loss && is_one_of(loss->scalars, role.of), where(rank), ": '", name, "' belongs to the scalar '", role.of,
          "', which ", loss ? loss->name + " does not have" : "needs a loss");
  require(tensor.size() == 1, where(rank), ": '", name, "' is one number, not ", tensor.shape());
  const double value = tensor.item();
  if (role.kind == Role::Kind::scalar_gradient) {
    auto& of_ranks = dump.seam->scalars[role.of];
    of_ranks.push_back(value);
    dump.seam->precision.lower_to(precision);
    require(of_ranks.size() == rank + 1, where(rank), ": an earlier rank has no gradient of '", role.of, "'");
    return;
  }
  const double first = dump.seam->batch.scalars.emplace(role.of, value).first->second;
  require(first == value, where(rank), ": '", role.of, "' is ", value, ", on an earlier rank ", first,
          ": the replicas have diverged (S26)");
}

void DumpReader::place_norm(const Tensor& tensor, const Precision& precision, size_t rank, const std::string& name) {
  require(tensor.size() == 1, where(rank), ": '", name, "' is one number, not ", tensor.shape());
  if (!dump.norm) dump.norm.emplace();
  dump.norm->precision.lower_to(precision);
  dump.norm->by_rank.push_back(tensor.item());
  require(dump.norm->by_rank.size() == rank + 1, where(rank), ": an earlier rank has no '", name, "'");
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
  for (const StoredParameter& p : parameters_) dump.norm->precision.lower_to(p.precision);
}

void DumpReader::check_parameter(const StoredParameter& p) {
  for (size_t r = 0; r < dump.files.size(); ++r)
    require(p.reduced[r].has_value(), where(r), ": there is no 'reduced/", p.name, "'");
  if (!p.has_local()) return;
  const std::vector<Shape> locals = p.local_shapes(), reduced = p.reduced_shapes();
  const size_t passes = p.passes(0);
  dump.micro_batches = std::max(dump.micro_batches, static_cast<int>(passes));
  for (size_t r = 0; r < dump.files.size(); ++r) {
    require(passes > 0 && p.passes(r) == passes, where(r), ": '", p.name, "' has local gradients of ", p.passes(r),
            " micro-batches, on rank 0 of ", passes);
    check_dimensions(p, r);
    const auto check_size = [&](const char* what, const StoredTensor* tensor, const Shape& shape) {
      const int64_t size = tensor ? tensor->shape().size() : 0;
      require(tensor && size == shape.size(), where(r), ": the ", what, " gradient of '", p.name, "' has ", size,
              " elements, not ", shape.size());
    };
    for (size_t k = 0; k < passes; ++k) {
      const auto term = std::ranges::find(p.local[r], k, &StoredParameter::Term::micro_batch);
      check_size("local", term == p.local[r].end() ? nullptr : &term->tensor, locals[r]);
    }
    if (!p.previous.empty()) check_size("previous", p.previous[r] ? &*p.previous[r] : nullptr, reduced[r]);
    if (!p.again.empty()) check_size("repeated", p.again[r] ? &*p.again[r] : nullptr, reduced[r]);
  }
  check_update(p);
  try {
    expected(p, mesh_of(dump), layout_of(p.layout, dump));
  } catch (const Error& error) {
    throw Error("verify: the gradient of '" + p.name + "' " + error.what());
  }
}

void DumpReader::check_dimensions(const StoredParameter& p, size_t r) const {
  const Layout layout = layout_of(p.layout, dump);
  const bool flat = std::ranges::any_of(layout.reduced, &Placement::flat);
  const auto check = [&](const char* what, const Placement& placement, const Shape& shape) {
    require(placement.dimension < shape.rank(), where(r), ": the ", what, " gradient of '", p.name, "' is ", shape,
            ", which has no dimension ", placement.dimension, " for its placement ", text(placement));
    require(!placement.flat || shape.rank() == 1, where(r), ": the ", what, " gradient of '", p.name, "' is ", shape,
            ", but is flattened by its placement ", text(placement));
  };
  for (size_t axis = 0; axis < layout.local.size(); ++axis) {
    check("local", layout.local[axis], p.local_shapes()[r]);
    if (!flat || layout.reduced[axis].flat) check("reduced", layout.reduced[axis], p.reduced_shapes()[r]);
  }
}

// With the reduced gradients alone.
std::vector<ParameterEvidence> DumpReader::moved_parameters() const {
  std::vector<ParameterEvidence> moved;
  for (const StoredParameter& p : parameters_) {
    if (!scale->moves(p.name)) continue;
    StoredParameter after = p;
    after.local.assign(p.local.size(), {});
    moved.push_back(loaded(after));
  }
  return moved;
}

// Large ones stay in their files, whose checksums are then looked at here.
void DumpReader::load_parameters() {
  int64_t elements = 0;
  for (const StoredParameter& p : parameters_) elements += p.elements();
  const bool held = static_cast<double>(elements) * predictions_of_element(dump.ranks) <= held_numbers;
  if (!held) {
    dump.stored_elements = elements;
    for (const auto& file : files_)
      if (file->checked()) file->verify();
  }
  for (StoredParameter& p : parameters_) {
    if (held) {
      dump.parameters.push_back(loaded(p));
      continue;
    }
    ParameterEvidence& added = dump.parameters.emplace_back();
    added.name = p.name;
    added.precision = p.precision;
    added.layout = p.layout;
    added.hashes = p.hashes;
    if (dump.norm) added.powers = powers_of(p.reduced);
    added.stored = std::make_shared<const StoredParameter>(std::move(p));
  }
}

}  // namespace weft::verify
