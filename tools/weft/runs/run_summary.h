// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is known of a run, from the files in its folder (apps/shared/run/run_folder.h). Runs of earlier versions have no
// results.json, and of them less is known.
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace weft::runs {

struct RunSummary {
  std::filesystem::path folder;
  std::string begun, program, data, method, encoder, state;  // empty if not known
  std::optional<int64_t> ranks, step, steps;
  nlohmann::ordered_json figures, words;       // objects: figures as numbers, and as people read them
  std::map<std::string, std::string> options;  // of config.toml
  std::vector<std::string> problems;           // what cannot be read

  std::string result() const;  // the figures that matter most, in words
};

bool is_run(const std::filesystem::path& folder);
// Reads what it can, and never throws because of what is in the files.
RunSummary summary_of(const std::filesystem::path& folder);

// The run in a folder, or the runs in its folders, the latest last. MissingInput if there are none.
std::vector<RunSummary> runs_in(const std::filesystem::path& folder);

}  // namespace weft::runs
