// SPDX-License-Identifier: Apache-2.0
// The words of a command line, one per line; after an empty line follows the file for --config. Accepted options can be
// written as a configuration and read again.
#include <sstream>

#include "apps/shared/launch/options.h"
#include "tests/fuzz/memory_file.h"

namespace weft::fuzz {
namespace {

struct Values {
  Options common;
  std::vector<int64_t> hidden = {128};
  std::string loss = "nt_xent";
};

// Constructed once, because that takes longer than parsing a command line.
struct Program {
  Values values;
  CommandLine line{"train", "Trains.", values.common};
  Values defaults;

  Program() {
    line.add("--hidden", values.hidden, "widths", {1, 4096});
    line.add("--loss", values.loss, "which", {"nt_xent", "clip", "siglip"});
    defaults = values;
  }

  void parse(const std::vector<std::string>& words) {
    values = defaults;
    std::vector<const char*> arguments = {"train"};
    for (const std::string& word : words) arguments.push_back(word.c_str());
    const auto ending = line.parse(static_cast<int>(arguments.size()), arguments.data());
    if (ending) throw WrongOption(ending->text);
  }
};

}  // namespace

void read(std::string_view bytes) {
  static const MemoryFile config, written;
  static Program program, again;
  const std::string separator = "\n\n";
  const size_t end = bytes.find(separator);
  std::vector<std::string> words;
  std::istringstream lines{std::string(bytes.substr(0, end))};
  for (std::string word; std::getline(lines, word);) {
    if (word.starts_with("--config")) throw WrongOption("this reads no files but its own");
    words.push_back(word);
  }
  if (end != std::string_view::npos) {
    config.hold(bytes.substr(end + separator.size()));
    words.insert(words.end(), {"--config", config.path()});
  }
  program.parse(words);

  written.hold(program.line.config());
  must_be_accepted([] { again.parse({"--config", written.path()}); });
  must(again.line.config() == program.line.config(), "a configuration is read as written");
}

}  // namespace weft::fuzz
