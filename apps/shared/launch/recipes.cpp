// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/launch/recipes.h"

#include <algorithm>
#include <filesystem>

#include "apps/shared/launch/options.h"
#include "apps/shared/launch/usual_names.h"
#include "weft/data/files/json_text.h"
#include "weft/engine/text/file_text.h"

namespace weft {
namespace {

// Beside the folder of the programs: in apps/recipes of a build, in share/weft/recipes of an installation.
std::filesystem::path folder_of_recipes() {
  std::error_code none;
  const std::filesystem::path top = std::filesystem::read_symlink("/proc/self/exe", none).parent_path().parent_path();
  const std::filesystem::path built = top / "apps/recipes";
  return std::filesystem::is_directory(built, none) ? built : top / "share/weft/recipes";
}

}  // namespace

std::vector<std::string> names_of_recipes() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(folder_of_recipes(), none))
    if (file.path().extension() == ".toml") names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string recipe_named(const std::string& name) {
  const std::vector<std::string> names = names_of_recipes();
  if (std::find(names.begin(), names.end(), name) != names.end())
    return file_text((folder_of_recipes() / (name + ".toml")).string());
  std::string all;
  for (const std::string& each : names) all += (all.empty() ? "" : ", ") + each;
  throw WrongOption("there is no recipe " + excerpt(name) + " among " + all + what_was_meant(name, names));
}

}  // namespace weft
