// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "weft/data/files/durable_file.h"
#include "weft/data/files/input_file.h"  // MissingInput, MalformedInput
#include "weft/data/files/json_text.h"
#include "weft/engine/tensor/finite.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step-", suffix = ".safetensors";
constexpr size_t min_digits = 6;
constexpr const char* step_key = "step";

struct Generation {
  int64_t step;
  fs::path file;
};

std::string file_name(int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, min_digits - std::min(min_digits, digits.size()), '0');
  return std::string(prefix) + digits + std::string(suffix);
}

// The step in a file name, if the name is exactly file_name(step).
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return {};
  int64_t step = -1;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  return step >= 0 && name == file_name(step) ? std::optional(step) : std::nullopt;
}

// The checkpoints in a folder, the latest first.
std::vector<Generation> generations_in(const fs::path& folder) try {
  std::vector<Generation> found;
  if (!fs::exists(folder)) return found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (const auto step = step_of(entry.path().filename().string())) found.push_back({*step, entry.path()});
  std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.step > b.step; });
  return found;
} catch (const fs::filesystem_error& error) {
  throw MissingInput(folder.string() + ": cannot be listed: " + error.code().message());
}

SafetensorsFile open_generation(const Generation& generation) {
  SafetensorsFile file = open_checkpoint(generation.file);
  if (file.metadata(step_key) != std::to_string(generation.step))
    throw MalformedInput(generation.file.string() + ": holds step " + file.metadata(step_key));
  return file;
}

bool is_sound(const Generation& generation) {
  try {
    open_generation(generation);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Later checkpoints would be taken for the latest one. Refuses to replace a valid one, and renames damaged ones.
void rename_damaged_after(int64_t step, const fs::path& folder) {
  for (const Generation& later : generations_in(folder)) {
    if (later.step <= step) return;
    require(!is_sound(later), "save_checkpoint: step ", step, ", but ", folder.string(), " already holds step ",
            later.step, "; continue from that, or name another folder");
    std::error_code error;
    fs::rename(later.file, later.file.string() + ".damaged", error);
    if (error) throw OutputFailure(later.file.string() + ": cannot be renamed: " + error.message());
  }
}

void remove_all_but(size_t generations, const fs::path& folder) {
  const std::vector<Generation> all = generations_in(folder);
  std::error_code ignored;  // a file that cannot be removed only takes space
  for (size_t i = all.size(); i > generations; --i) fs::remove(all[i - 1].file, ignored);
}

// Every reason why the file does not fit, one per line.
std::string misfits(const SafetensorsFile& file, std::span<const TensorOutline> into, Surplus surplus) {
  std::string found;
  std::set<std::string_view> wanted;
  for (const auto& [name, dtype, shape] : into) {
    const auto* entry = file.find(name);
    require(wanted.insert(name).second, "load_checkpoint: two places are called ", name);
    if (!entry)
      found += "\n  " + name + ": is missing in the file";
    else if (entry->dtype != dtype || entry->shape != shape)
      found += "\n  " + name + ": is " + text(entry->dtype) + " " + text(entry->shape) + " in the file, not " +
               text(dtype) + " " + text(shape);
  }
  for (const auto& entry : file.tensors())
    if (surplus == Surplus::refused && !wanted.contains(entry.name))
      found += "\n  " + entry.name + ": is in the file, but not asked for";
  return found;
}

void must_fit(const SafetensorsFile& file, std::span<const TensorOutline> into, Surplus surplus) {
  const std::string found = misfits(file, into, surplus);
  if (!found.empty()) throw MalformedInput(file.path().string() + " is a checkpoint of another model:" + found);
}

}  // namespace

fs::path save_checkpoint(const fs::path& folder, int64_t step, std::span<const NamedTensor> tensors, Metadata metadata,
                         int generations) {
  const auto get = [&](size_t i) { return tensors[i].tensor; };
  return save_checkpoint(folder, step, outlines(tensors), get, std::move(metadata), generations);
}

fs::path save_checkpoint(const fs::path& folder, int64_t step, std::span<const TensorOutline> tensors,
                         const TensorSource& get, Metadata metadata, int generations) {
  require(step >= 0 && generations >= 1, "save_checkpoint: step ", step, ", ", generations, " generations");
  const std::string& stated = metadata.emplace(step_key, std::to_string(step)).first->second;
  require(stated == std::to_string(step), "save_checkpoint: step ", step, ", but the metadata say ", stated);
  make_durable_folder(folder);
  DurableFile::sweep(folder);
  rename_damaged_after(step, folder);
  const fs::path file = folder / file_name(step);
  const auto finite = [&](size_t i) {
    Tensor tensor = get(i).to(Device::cpu);
    const std::string what = what_is_not_finite(tensor);
    if (!what.empty())
      throw NotFinite("save_checkpoint: step " + std::to_string(step) + ": '" + tensors[i].name + "' " +
                      text(tensors[i].dtype) + " " + text(tensors[i].shape) + ": " + what + "; nothing was saved");
    return tensor;
  };
  write_safetensors(file, tensors, finite, metadata);
  remove_all_but(static_cast<size_t>(generations), folder);
  return file;
}

Latest latest_checkpoint(const fs::path& folder) {
  Latest latest;
  for (const Generation& generation : generations_in(folder)) {
    try {
      latest.file = open_generation(generation);
      latest.step = generation.step;
      break;
    } catch (const Error& error) {
      latest.damaged.push_back(error.what());
    }
  }
  return latest;
}

SafetensorsFile open_checkpoint(const fs::path& path) {
  SafetensorsFile file(path);
  if (!file.checked()) throw MalformedInput(path.string() + ": no checkpoint of Weft, since it has no checksums");
  file.verify(true);
  step_in(file);
  return file;
}

int64_t step_in(const SafetensorsFile& checkpoint) {
  const std::string& stated = checkpoint.metadata(step_key);
  int64_t step = -1;
  const auto [end, error] = std::from_chars(stated.data(), stated.data() + stated.size(), step);
  if (error != std::errc() || end != stated.data() + stated.size() || step < 0)
    throw MalformedInput(checkpoint.path().string() + ": its step is " + excerpt(stated) + ", which is no number");
  return step;
}

void load_checkpoint(const SafetensorsFile& file, std::span<const NamedTensor> into, Surplus surplus) {
  must_fit(file, outlines(into), surplus);
  for (const NamedTensor& place : into) {
    Tensor tensor = place.tensor;
    file.read(*file.find(place.name), tensor);
  }
}

void load_checkpoint(const SafetensorsFile& file, std::span<const TensorOutline> tensors, const TensorSink& put,
                     Surplus surplus) {
  must_fit(file, tensors, surplus);
  for (size_t i = 0; i < tensors.size(); ++i) put(i, file.read(tensors[i].name));
}

}  // namespace weft
