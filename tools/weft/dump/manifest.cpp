// SPDX-License-Identifier: Apache-2.0
// Reads a dump, by what its manifest says of it (docs/manifest.md) or its caller.
#include <nlohmann/json.hpp>
#include <set>

#include "tools/weft/dump/dump_reader.h"
#include "tools/weft/dump/known_entries.h"
#include "tools/weft/dump/layouts.h"
#include "tools/weft/dump/optimizer.h"
#include "tools/weft/dump/whole_number.h"
#include "weft/data/idx.h"

namespace weft::verify {
namespace {

using Json = nlohmann::json;

Json parsed(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file))
    throw MissingInput(file.string() + ": there is no such file; docs/manifest.md says what it holds");
  const InputFile in(file);
  std::string text(in.bytes(), '\0');
  in.read(0, text.data(), text.size());
  std::vector<std::set<std::string>> names;  // in the objects around
  const auto once = [&](int, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
      throw MalformedInput(file.string() + ": \"" + value.get<std::string>() + "\" comes twice in an object");
    return true;
  };
  try {
    return Json::parse(text, once);
  } catch (const Json::exception& error) {
    throw MalformedInput(file.string() + ": " + error.what());
  }
}

Reducer reducer_named(const std::string& name) {
  require(name == "mean" || name == "sum", "the reducer is mean or sum, not '", name, "'");
  return name == "mean" ? Reducer::mean : Reducer::sum;
}

// What a name leads to, also by a link, is in the folder: a certificate is of a folder.
std::filesystem::path inside(const std::filesystem::path& folder, const std::string& name) {
  require(name.find('\0') == std::string::npos, "a name in \"files\" has a zero byte");
  std::error_code nowhere;
  const auto from_folder = weakly_canonical(folder / name, nowhere).lexically_relative(canonical(folder, nowhere));
  require(!nowhere && !from_folder.empty() && *from_folder.begin() != "..", name, " is not in the manifest's folder");
  return folder / name;
}

std::vector<std::filesystem::path> files_in(const Json& manifest, const std::filesystem::path& folder) {
  std::vector<std::string> names;
  const auto of_rank = [](size_t r) { return "rank" + std::to_string(r) + ".safetensors"; };
  if (manifest.contains("files"))
    names = manifest.at("files").get<std::vector<std::string>>();
  else
    while (std::filesystem::exists(folder / of_rank(names.size()))) names.push_back(of_rank(names.size()));
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names) files.push_back(inside(folder, name));
  return files;
}

ScaleReader scale_reader(const Json& section, const std::vector<std::filesystem::path>& files) {
  check_entries(section, "\"scale\"", {"step", "detached", "held"});
  const auto step = section.at("step").get<double>();
  require(step >= 1e-12 && step <= 1e12, "\"scale\": the step is between 1e-12 and 1e12, not ", step);
  Detached detached{section.value("detached", std::vector<std::string>()), section.value("held", false)};
  return {step, {files.begin(), files.end()}, std::move(detached)};
}

double count_in(const Json& value, const std::string& name) {
  constexpr double most = 1e15;
  require(value.is_number() && value.get<double>() >= 0 && value.get<double>() <= most, "the count '", name,
          "' is of numbers from 0 to 1e15, not ", value.dump());
  return value.get<double>();
}

// A number, one for each rank, or for each rank those of its micro-batches.
Count named_count(const Json& value, const std::string& name) {
  const Json of_ranks = value.is_array() ? value : Json::array({value});
  const auto passes = [&](const Json& of_rank) { return of_rank.is_array() ? of_rank.size() : 1; };
  require(!of_ranks.empty() && passes(of_ranks[0]) > 0, "the count '", name, "' has no numbers");
  Count count{name, Matrix(of_ranks.size(), passes(of_ranks[0]))};
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    require(passes(of_ranks[r]) == passes(of_ranks[0]), "the count '", name, "' has ", passes(of_ranks[r]),
            " micro-batches of rank ", r, ", of rank 0 ", passes(of_ranks[0]));
    for (size_t k = 0; k < passes(of_ranks[r]); ++k)
      count.values(static_cast<Eigen::Index>(r), static_cast<Eigen::Index>(k)) =
          count_in(of_ranks[r].is_array() ? of_ranks[r][k] : of_ranks[r], name);
  }
  return count;
}

void read_counts(const Json& manifest, Dump& dump) {
  if (manifest.contains("micro_batches"))
    dump.micro_batches = static_cast<int>(
        whole_number(manifest.at("micro_batches"), 1, max_micro_batches, "the number of micro-batches"));
  constexpr int64_t most_rows = int64_t{1} << 40;  // whose sum over ranks is an int64_t
  if (manifest.contains("rows"))
    for (const Json& each : manifest.at("rows"))
      dump.rows.push_back(whole_number(each, 0, most_rows, "the number of rows of a rank"));
  if (manifest.contains("counts"))
    for (const auto& [name, value] : manifest.at("counts").items()) dump.counts.push_back(named_count(value, name));
}

void read_loss(const Json& loss, DumpReader& reader) {
  check_entries(loss, "\"loss\"", {"name", "options"});
  const auto name = loss.at("name").get<std::string>();
  reader.loss = find_loss(name);
  require(reader.loss, "no loss is called '", name, "'; `weft cases` lists them");
  if (loss.contains("options")) reader.options = loss.at("options").get<Options>();
}

Role role_in(const Json& tensor, const std::string& name) {
  check_entries(tensor, "tensor '" + name + "'", {"role", "of", "use", "micro_batch"});
  const auto kind = tensor.at("role").get<std::string>();
  require(kinds_by_name().contains(kind), "tensor '", name, "' has the role '", kind, "', which is none");
  Role role{kinds_by_name().at(kind), tensor.value("of", name), 0, tensor.value("use", "")};
  if (tensor.contains("micro_batch"))
    role.micro_batch = static_cast<size_t>(
        whole_number(tensor.at("micro_batch"), 0, max_micro_batches - 1, "the micro-batch of tensor '" + name + "'"));
  return role;
}

StepEvidence step_in(const Json& manifest, const std::filesystem::path& folder, size_t ranks) {
  check_entries(manifest, "a manifest with a truth", {"weft_manifest", "files", "rows", "counts", "tensors", "truth"});
  const Json& truth = manifest.at("truth");
  check_entries(truth, "\"truth\"", {"files", "without_gradient", "mended"});
  using Names = std::vector<std::string>;
  const auto files_of = [&](const Json& section) {
    std::vector<std::filesystem::path> files;
    for (const std::string& name : section.at("files").get<Names>()) files.push_back(inside(folder, name));
    return files;
  };
  StepEvidence step;
  step.files = files_of(truth);
  if (truth.contains("without_gradient")) step.lost = truth.at("without_gradient").get<Names>();
  if (!truth.contains("mended")) return step;
  const Json& mended = truth.at("mended");
  check_entries(mended, "\"mended\"", {"files", "collectives"});
  step.mended = mended.at("collectives").get<Names>();
  require(!step.mended.empty(), "\"mended\" names no collectives");
  step.mended_files = files_of(mended);
  require(step.mended_files.size() == ranks, "\"mended\" has ", step.mended_files.size(), " files, but there are ",
          ranks, " ranks");
  return step;
}

// "case", "seed" and "dtype" are what `weft case` wrote.
const std::vector<std::string> entries = {"weft_manifest", "reducer", "loss",  "files", "rows",       "counts",
                                          "micro_batches", "tensors", "scale", "mesh",  "parameters", "hashes",
                                          "truth",         "case",    "seed",  "dtype", "optimizer"};

void read_entries(const Json& manifest, DumpReader& reader) {
  check_entries(manifest, "the manifest", entries);
  reader.dump.reducer = reducer_named(manifest.value("reducer", "mean"));
  read_counts(manifest, reader.dump);
  if (manifest.contains("loss")) read_loss(manifest.at("loss"), reader);
  if (manifest.contains("tensors"))
    for (const auto& [name, tensor] : manifest.at("tensors").items()) reader.roles[name] = role_in(tensor, name);
  if (manifest.contains("optimizer")) reader.dump.optimizer = optimizer_in(manifest.at("optimizer"));
  if (manifest.contains("mesh")) reader.dump.mesh = mesh_in(manifest);
  if (manifest.contains("parameters")) reader.layouts = layouts_in(manifest, mesh_of(reader.dump), reader.dump.reducer);
  if (manifest.contains("hashes")) reader.hashes = manifest.at("hashes").get<decltype(reader.hashes)>();
}

}  // namespace

Dump read_dump(const std::filesystem::path& folder, double held_numbers) {
  const std::filesystem::path file = folder / "manifest.json";
  const std::string where = file.string();
  const Json manifest = parsed(file);
  DumpReader reader;
  reader.held_numbers = held_numbers;
  std::vector<std::filesystem::path> files;
  try {
    require(manifest.contains("weft_manifest") && manifest.at("weft_manifest") == 1,
            "\"weft_manifest\" is 1 in manifests that this version reads");
    read_entries(manifest, reader);
    files = files_in(manifest, folder);
    if (manifest.contains("truth")) reader.dump.step = step_in(manifest, folder, files.size());
    if (manifest.contains("scale")) reader.scale = scale_reader(manifest.at("scale"), files);
  } catch (const Json::exception& error) {
    throw MalformedInput(where + ": " + error.what());
  } catch (const Error& error) {
    throw MalformedInput(where + ": " + error.what());
  }
  reader.read(files);
  return std::move(reader.dump);
}

Dump read_dump(const NamedDump& named) {
  DumpReader reader;
  reader.loss = find_loss(named.loss);
  require(reader.loss, "verify: no loss is called '", named.loss, "'; `weft cases` lists them");
  reader.options = named.options;
  reader.dump.reducer = named.reducer;
  reader.read(named.files);
  return std::move(reader.dump);
}

}  // namespace weft::verify
