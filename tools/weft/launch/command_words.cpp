// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/command_words.h"

#include <optional>
#include <sstream>

#include "apps/shared/launch/config_text.h"
#include "weft/engine/tensor/error.h"
#include "weft/engine/text/file_text.h"

namespace weft::launch {
namespace {

bool is(const std::string& word, const std::string& name) { return word == name || word.rfind(name + "=", 0) == 0; }

// The last value of an option that is given as NAME VALUE or NAME=VALUE.
std::optional<std::string> value_of(const Words& words, const std::string& name) {
  std::optional<std::string> value;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == name && i + 1 < words.size())
      value = words[i + 1];
    else if (words[i] != name && is(words[i], name))
      value = words[i].substr(name.size() + 1);
  return value;
}

}  // namespace

Launcher launcher_from(const std::string& text) {
  std::istringstream stream(text);
  Launcher launcher;
  for (std::string word; stream >> word;) launcher.words.push_back(word);
  require(!launcher.words.empty(), "--launcher: threads, srun or mpiexec, with its options");
  const std::string name = std::filesystem::path(launcher.words[0]).filename();
  if (name == "srun") launcher.kind = Kind::srun;
  if (text == "threads") launcher = {Kind::threads, {}};
  return launcher;
}

RunOptions run_options(const Words& program) {
  RunOptions options;
  options.out = "runs/" + std::filesystem::path(program.at(0)).filename().string();
  if (const auto file = value_of(program, "--config")) {
    for (const ConfigValue& each : read_config(file_text(*file, max_config_bytes))) {
      if (each.values.empty()) continue;
      if (each.name == "out") options.out = each.values[0];
      if (each.name == "resume") options.resume = each.values[0];
      if (each.name == "fresh") options.fresh_by_file = each.values[0] == "true";
    }
  }
  if (const auto out = value_of(program, "--out")) options.out = *out;
  if (const auto resume = value_of(program, "--resume")) options.resume = *resume;
  return options;
}

Words whole_command(const Launcher& launcher, int64_t ranks, const Words& program) {
  Words all = launcher.words;
  if (ranks > 0 && launcher.kind != Kind::threads) all.insert(all.end(), {"-n", std::to_string(ranks)});
  // A step that has lost a node keeps the cores of its other nodes for minutes, so the next one shares them.
  if (launcher.kind == Kind::srun) all.insert(all.end(), {"--kill-on-bad-exit=1", "--overlap"});
  all.insert(all.end(), program.begin(), program.end());
  if (ranks > 0 && launcher.kind == Kind::threads) all.insert(all.end(), {"--ranks", std::to_string(ranks)});
  return all;
}

Words resumed(const Words& program, const RunOptions& options, const std::string& resume) {
  Words words;
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i] == "--resume")
      ++i;  // and its value
    else if (!is(program[i], "--resume") && !is(program[i], "--fresh"))
      words.push_back(program[i]);
  }
  if (options.fresh_by_file) words.push_back("--fresh=false");
  words.insert(words.end(), {"--resume", resume});
  return words;
}

}  // namespace weft::launch
