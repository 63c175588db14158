// SPDX-License-Identifier: Apache-2.0
// Reads a dump, by what its manifest says of it (docs/manifest.md) or its caller.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/weft/dump/dump_reader.h"
#include "tools/weft/dump/layouts.h"
#include "weft/data/idx.h"

namespace weft::verify {
namespace {

using Json = nlohmann::json;

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

std::vector<std::filesystem::path> files_in(const Json& manifest, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (manifest.contains("files")) {
    for (const Json& each : manifest.at("files")) files.push_back(folder / each.get<std::string>());
    return files;
  }
  const auto of_rank = [&](size_t r) { return folder / ("rank" + std::to_string(r) + ".safetensors"); };
  while (std::filesystem::exists(of_rank(files.size()))) files.push_back(of_rank(files.size()));
  return files;
}

ScaleReader scale_reader(const Json& section, const std::string& where,
                         const std::vector<std::filesystem::path>& files) {
  const auto step = section.at("step").get<double>();
  require(step >= 1e-12 && step <= 1e12, where, ": \"scale\": the step is between 1e-12 and 1e12, not ", step);
  return {step, {files.begin(), files.end()}};
}

void read_layouts(const Json& manifest, DumpReader& reader, const std::string& where) {
  try {
    if (manifest.contains("mesh")) reader.dump.mesh = mesh_in(manifest);
    if (manifest.contains("parameters"))
      reader.layouts = layouts_in(manifest, mesh_of(reader.dump), reader.dump.reducer);
  } catch (const Error& error) {
    throw MalformedInput(where + ": " + error.what());
  }
}

}  // namespace

Dump read_dump(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "manifest.json";
  const std::string where = file.string();
  const Json manifest = parsed(file);
  DumpReader reader;
  try {
    require(manifest.value("weft_manifest", 0) == 1, where,
            ": \"weft_manifest\" is 1 in manifests that this version reads");
    reader.dump.reducer = reducer_named(manifest.value("reducer", "mean"), where);
    reader.dump.micro_batches = manifest.value("micro_batches", 1);
    require(reader.dump.micro_batches > 0, where, ": there are ", reader.dump.micro_batches, " micro-batches");
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
      require(kinds_by_name().contains(kind), where, ": tensor '", name, "' has the role '", kind, "', which is none");
      reader.roles[name] = {kinds_by_name().at(kind), tensor.value("of", name), tensor.value("micro_batch", size_t{0}),
                            tensor.value("use", "")};
    }
    read_layouts(manifest, reader, where);
    if (manifest.contains("hashes")) reader.hashes = manifest.at("hashes").get<decltype(reader.hashes)>();
    const std::vector<std::filesystem::path> files = files_in(manifest, folder);
    if (manifest.contains("scale")) reader.scale = scale_reader(manifest.at("scale"), where, files);
    reader.read(files);
  } catch (const Json::exception& error) {
    throw MalformedInput(where + ": " + error.what());
  }
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
