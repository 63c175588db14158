// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "weft/data/files/durable_file.h"
#include "weft/data/files/input_file.h"  // MissingInput, MalformedInput
#include "weft/data/files/json_text.h"
#include "weft/engine/tensor/finite.h"
#include "weft/engine/text/words.h"

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

struct Score {
  double value;
  std::string of;
};

// From the header; none if there is no score, or if the file cannot be read.
std::optional<Score> score_of(const Generation& generation) try {
  const SafetensorsFile file(generation.file);
  const std::string& words = file.metadata(score_key);
  Score score{0, ""};
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), score.value);
  if (error != std::errc() || !std::isfinite(score.value)) return {};
  score.of.assign(end, words.data() + words.size());
  return score;
} catch (const Error&) {
  return {};
}

// Those with a score of the same kind as the latest that has one, the best first.
std::vector<Generation> by_score(const std::vector<Generation>& latest_first) {
  std::vector<std::pair<double, Generation>> scored;
  std::optional<std::string> of;
  for (const Generation& each : latest_first) {
    const std::optional<Score> score = score_of(each);
    if (score && !of) of = score->of;
    if (score && score->of == *of) scored.emplace_back(score->value, each);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Generation> best_first;
  for (const auto& [score, generation] : scored) best_first.push_back(generation);
  return best_first;
}

// The first that is sound.
Latest first_sound(const std::vector<Generation>& generations) {
  Latest found;
  for (const Generation& generation : generations) {
    try {
      found.file = open_generation(generation);
      found.step = generation.step;
      break;
    } catch (const Error& error) {
      found.damaged.push_back(error.what());
    }
  }
  return found;
}

void remove_all_but(size_t generations, const fs::path& folder) {
  const std::vector<Generation> all = generations_in(folder);
  if (all.size() <= generations) return;
  const std::vector<Generation> best_first = by_score(all);
  std::error_code ignored;  // a file that cannot be removed only takes space
  for (size_t i = all.size(); i > generations; --i)
    if (best_first.empty() || all[i - 1].step != best_first[0].step) fs::remove(all[i - 1].file, ignored);
}

constexpr const char *last_name = "last", *best_name = "best";

// Whether a path is FOLDER/last or FOLDER/best, and no file of that name is there.
bool names_one_of_folder(const fs::path& path) {
  const fs::path name = path.filename();
  return (name == last_name || name == best_name) && !fs::exists(path);
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

std::string score_words(double score, const std::string& of) { return exact_number(score) + " " + of; }

Latest latest_checkpoint(const fs::path& folder) { return first_sound(generations_in(folder)); }

bool may_be_checkpoint(const fs::path& path) {
  return fs::exists(names_one_of_folder(path) ? path.parent_path() : path);
}

Latest checkpoint_at(const fs::path& path) {
  const bool of_folder = names_one_of_folder(path);
  if (!of_folder && !fs::is_directory(path)) {
    Latest named{open_checkpoint(path), 0, {}};
    named.step = step_in(*named.file);
    return named;
  }
  const fs::path folder = of_folder ? path.parent_path() : path, within = folder / "checkpoints";
  const std::vector<Generation> all = generations_in(fs::exists(within) ? within : folder);
  const bool best = of_folder && path.filename() == best_name;
  Latest found = first_sound(best ? by_score(all) : all);
  if (found.file) return found;
  std::string damaged;
  for (const std::string& each : found.damaged) damaged += "; " + each;
  throw MissingInput((fs::exists(within) ? within : folder).string() + ": no sound checkpoint " +
                     (best ? "with a score " : "") + "is in it" + damaged);
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
