// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/evidence.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "weft/data/files/safetensors.h"
#include "weft/data/idx.h"

namespace weft::verify {
namespace {

using Json = nlohmann::json;

// What a tensor of a dump is. By its name, unless a manifest says otherwise:
//   images  images.grad  scale  scale.grad          features of a loss, its scalars, and their gradients
//   local/NAME  local/NAME/K  reduced/NAME  previous/NAME   a parameter's gradient (of micro-batch K)
struct Role {
  enum class Kind {
    none,
    feature,
    seam_gradient,
    scalar,
    scalar_gradient,
    local_gradient,
    reduced_gradient,
    previous_gradient
  };
  Kind kind = Kind::none;
  std::string of;
  size_t micro_batch = 0;
};

const std::map<std::string, Role::Kind> kinds = {{"feature", Role::Kind::feature},
                                                 {"seam_gradient", Role::Kind::seam_gradient},
                                                 {"scalar", Role::Kind::scalar},
                                                 {"scalar_gradient", Role::Kind::scalar_gradient},
                                                 {"local_gradient", Role::Kind::local_gradient},
                                                 {"reduced_gradient", Role::Kind::reduced_gradient},
                                                 {"previous_gradient", Role::Kind::previous_gradient}};

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Role role_by_name(const std::string& name, const Loss* loss) {
  const auto behind = [&](std::string_view prefix) { return name.substr(prefix.size()); };
  if (name.starts_with("local/")) {
    const std::string rest = behind("local/");
    const size_t slash = rest.rfind('/');
    const bool numbered = slash != std::string::npos && slash + 1 < rest.size() && rest.size() - slash <= 7 &&
                          rest.find_first_not_of("0123456789", slash + 1) == std::string::npos;
    if (!numbered) return {Role::Kind::local_gradient, rest, 0};
    return {Role::Kind::local_gradient, rest.substr(0, slash), std::stoul(rest.substr(slash + 1))};
  }
  if (name.starts_with("reduced/")) return {Role::Kind::reduced_gradient, behind("reduced/"), 0};
  if (name.starts_with("previous/")) return {Role::Kind::previous_gradient, behind("previous/"), 0};
  if (!loss) return {};
  const bool gradient = name.ends_with(".grad");
  const std::string of = gradient ? name.substr(0, name.size() - 5) : name;
  if (is_one_of(loss->towers, of)) return {gradient ? Role::Kind::seam_gradient : Role::Kind::feature, of, 0};
  if (is_one_of(loss->scalars, of)) return {gradient ? Role::Kind::scalar_gradient : Role::Kind::scalar, of, 0};
  return {};
}

Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return {"bf16", 0x1p-8};
    case DType::f32: return {"f32", 0x1p-23};
    default: return {};
  }
}

// Rows of the last axis; a vector is one row.
Matrix matrix_of(const Tensor& tensor, bool flattened) {
  const std::vector<double> values = tensor.to(DType::f64).values();
  const auto size = static_cast<Eigen::Index>(values.size());
  const int rank = tensor.shape().rank();
  const Eigen::Index columns = flattened || rank == 0 ? std::max<Eigen::Index>(size, 0) : tensor.shape()[rank - 1];
  const Eigen::Index rows = flattened ? 1 : columns == 0 ? 0 : size / std::max<Eigen::Index>(columns, 1);
  Matrix result(rows, columns);
  std::copy(values.begin(), values.end(), result.data());
  return result;
}

struct Reader {
  Dump dump;
  const Loss* loss = nullptr;
  Options options;
  std::map<std::string, Role> roles;  // of the manifest
  std::map<std::string, std::vector<std::string>> hashes;
  std::map<std::string, std::string> groups;

  void read(const std::vector<std::filesystem::path>& files) {
    require(!files.empty(), "verify: there is no dump of any rank");
    dump.files = files;
    dump.ranks = static_cast<int>(files.size());
    if (loss) {
      dump.seam.emplace();
      dump.seam->loss = loss;
      dump.seam->batch.features.resize(loss->towers.size());
      dump.seam->gradients.resize(loss->towers.size());
      dump.seam->batch.options = loss->options;
      for (const auto& [name, value] : options) {
        require(loss->options.contains(name), "verify: ", loss->name, " has no option ", name);
        dump.seam->batch.options[name] = value;
      }
      for (auto& of_ranks : dump.seam->batch.features) of_ranks.resize(files.size());
      for (auto& of_ranks : dump.seam->gradients) of_ranks.resize(files.size());
    }
    for (size_t rank = 0; rank < files.size(); ++rank) read_rank(files[rank], rank);
    check();
  }

 private:
  Role role_of(const std::string& name) const {
    const auto found = roles.find(name);
    return found != roles.end() ? found->second : role_by_name(name, loss);
  }

  ParameterEvidence& parameter(const std::string& name) {
    for (ParameterEvidence& each : dump.parameters)
      if (each.name == name) return each;
    ParameterEvidence& added = dump.parameters.emplace_back();
    added.name = name;
    added.local.resize(static_cast<size_t>(dump.ranks));
    added.reduced.resize(static_cast<size_t>(dump.ranks));
    if (groups.contains(name)) added.group = groups.at(name);
    if (hashes.contains(name)) added.hashes = hashes.at(name);
    return added;
  }

  static void worse(Precision& of_all, DType dtype) {
    const Precision here = precision_of(dtype);
    if (here.epsilon > of_all.epsilon) of_all = here;
  }

  void read_rank(const std::filesystem::path& path, size_t rank) {
    const SafetensorsFile file(path);
    for (const SafetensorsFile::Entry& entry : file.tensors()) {
      const Role role = role_of(entry.name);
      if (role.kind == Role::Kind::none) continue;
      const auto place = [&](const std::vector<std::string>& names) {
        return static_cast<size_t>(std::find(names.begin(), names.end(), role.of) - names.begin());
      };
      const Tensor tensor = file.read(entry.name);
      switch (role.kind) {
        case Role::Kind::feature:
          require(is_one_of(loss->towers, role.of), path.string(), ": ", loss->name, " has no features '", role.of,
                  "'");
          dump.seam->batch.features[place(loss->towers)][rank] = matrix_of(tensor, false);
          break;
        case Role::Kind::seam_gradient:
          require(is_one_of(loss->towers, role.of), path.string(), ": ", loss->name, " has no features '", role.of,
                  "'");
          dump.seam->gradients[place(loss->towers)][rank] = matrix_of(tensor, false);
          worse(dump.seam->precision, entry.dtype);
          break;
        case Role::Kind::scalar:
          require(tensor.size() == 1, path.string(), ": '", entry.name, "' is a scalar of the loss, not ",
                  tensor.shape());
          dump.seam->batch.scalars[role.of] = tensor.to(DType::f64).values()[0];
          break;
        case Role::Kind::scalar_gradient:
          require(tensor.size() == 1, path.string(), ": '", entry.name, "' is a scalar's gradient, not ",
                  tensor.shape());
          dump.seam->scalars[role.of].resize(static_cast<size_t>(dump.ranks));
          dump.seam->scalars[role.of][rank] = tensor.to(DType::f64).values()[0];
          break;
        case Role::Kind::local_gradient: {
          ParameterEvidence& p = parameter(role.of);
          if (p.local[rank].size() <= role.micro_batch) p.local[rank].resize(role.micro_batch + 1);
          p.local[rank][role.micro_batch] = matrix_of(tensor, true);
          worse(p.precision, entry.dtype);
          break;
        }
        case Role::Kind::reduced_gradient:
          parameter(role.of).reduced[rank] = matrix_of(tensor, true);
          worse(parameter(role.of).precision, entry.dtype);
          break;
        case Role::Kind::previous_gradient: {
          ParameterEvidence& p = parameter(role.of);
          p.previous.resize(static_cast<size_t>(dump.ranks));
          p.previous[rank] = matrix_of(tensor, true);
          break;
        }
        case Role::Kind::none: break;
      }
    }
  }

  // That nothing is missing, and that all shapes fit.
  void check() {
    if (dump.seam) {
      SeamEvidence& seam = *dump.seam;
      for (size_t tower = 0; tower < loss->towers.size(); ++tower)
        for (size_t r = 0; r < dump.files.size(); ++r) {
          const Matrix& x = seam.batch.features[tower][r];
          const Matrix& g = seam.gradients[tower][r];
          const std::string& name = loss->towers[tower];
          const std::string file = dump.files[r].string();
          require(x.cols() > 0, file, ": there are no features '", name, "' of ", loss->name);
          require(g.cols() > 0, file, ": there is no gradient '", name, ".grad'");
          require(x.rows() == g.rows() && x.cols() == g.cols(), file, ": '", name, "' has ", x.rows(), " x ", x.cols(),
                  " elements, its gradient ", g.rows(), " x ", g.cols());
          require(x.rows() == seam.batch.features[0][r].rows() && x.cols() == seam.batch.features[0][0].cols(), file,
                  ": '", name, "' is ", x.rows(), " x ", x.cols(), ", unlike '", loss->towers[0], "'");
        }
      for (const std::string& name : loss->scalars)
        require(seam.batch.scalars.contains(name), dump.files[0].string(), ": ", loss->name, " needs its scalar '",
                name, "'");
      if (dump.rows.empty())
        for (int r = 0; r < dump.ranks; ++r) dump.rows.push_back(seam.batch.rows(r));
    }
    for (ParameterEvidence& p : dump.parameters) {
      const size_t passes = p.local[0].size();
      dump.micro_batches = std::max(dump.micro_batches, static_cast<int>(passes));
      for (size_t r = 0; r < dump.files.size(); ++r) {
        const std::string file = dump.files[r].string();
        require(p.reduced[r].size() > 0 || p.reduced[0].size() == 0, file, ": there is no 'reduced/", p.name, "'");
        require(p.local[r].size() == passes && passes > 0, file, ": '", p.name, "' has local gradients of ",
                p.local[r].size(), " micro-batches, on rank 0 of ", passes);
        for (const Matrix& m : p.local[r])
          require(m.size() == p.reduced[r].size(), file, ": a local gradient of '", p.name, "' has ", m.size(),
                  " elements, the reduced one ", p.reduced[r].size());
        if (!p.previous.empty())
          require(p.previous[r].size() == p.reduced[r].size(), file, ": 'previous/", p.name, "' has another size");
      }
    }
  }
};

Json parsed(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw MissingInput(file.string() + ": there is no such file; docs/manifest.md says what it holds");
  try {
    return Json::parse(in);
  } catch (const Json::exception& error) {
    throw MalformedInput(file.string() + ": " + error.what());
  }
}

Reducer reducer_named(const std::string& name, const std::string& where) {
  require(name == "mean" || name == "sum", where, ": the reducer is mean or sum, not '", name, "'");
  return name == "mean" ? Reducer::mean : Reducer::sum;
}

}  // namespace

Dump read_dump(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "manifest.json";
  const std::string where = file.string();
  const Json manifest = parsed(file);
  Reader reader;
  try {
    require(manifest.value("weft_manifest", 0) == 1, where,
            ": \"weft_manifest\" is 1 in manifests that this version reads");
    reader.dump.reducer = reducer_named(manifest.value("reducer", "mean"), where);
    if (manifest.contains("rows")) reader.dump.rows = manifest.at("rows").get<std::vector<int64_t>>();
    if (manifest.contains("loss")) {
      const Json& loss = manifest.at("loss");
      const auto name = loss.at("name").get<std::string>();
      reader.loss = find_loss(name);
      require(reader.loss, where, ": no loss is called '", name, "'; `weft cases` lists them");
      if (loss.contains("options")) reader.options = loss.at("options").get<Options>();
    }
    const Json none = Json::object();
    for (const auto& [name, tensor] : (manifest.contains("tensors") ? manifest.at("tensors") : none).items()) {
      const auto kind = tensor.at("role").template get<std::string>();
      require(kinds.contains(kind), where, ": tensor '", name, "' has the role '", kind, "', which is none");
      reader.roles[name] = {kinds.at(kind), tensor.value("of", name), tensor.value("micro_batch", size_t{0})};
    }
    if (manifest.contains("hashes")) reader.hashes = manifest.at("hashes").get<decltype(reader.hashes)>();
    if (manifest.contains("groups")) reader.groups = manifest.at("groups").get<decltype(reader.groups)>();
    std::vector<std::filesystem::path> files;
    if (manifest.contains("files"))
      for (const Json& each : manifest.at("files")) files.push_back(folder / each.get<std::string>());
    else
      for (int r = 0; std::filesystem::exists(folder / ("rank" + std::to_string(r) + ".safetensors")); ++r)
        files.push_back(folder / ("rank" + std::to_string(r) + ".safetensors"));
    reader.read(files);
  } catch (const Json::exception& error) {
    throw MalformedInput(where + ": " + error.what());
  }
  return std::move(reader.dump);
}

Dump read_dump(const NamedDump& named) {
  Reader reader;
  reader.loss = find_loss(named.loss);
  require(reader.loss, "verify: no loss is called '", named.loss, "'; `weft cases` lists them");
  reader.options = named.options;
  reader.dump.reducer = named.reducer;
  reader.read(named.files);
  return std::move(reader.dump);
}

}  // namespace weft::verify
