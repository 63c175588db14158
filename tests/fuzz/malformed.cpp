// SPDX-License-Identifier: Apache-2.0
// Runs one target on its malformed files. Each must be refused with the words in the table, and take no more memory
// than a reader may.
//
//   malformed_TARGET CORPUS TARGET      with the files CORPUS/TARGET/* and the table CORPUS/expected
#include <fstream>
#include <map>
#include <string>

#include "tests/fuzz/target.h"
#include "tests/support/peak_memory.h"
#include "tests/support/scratch_folder.h"

namespace weft {
namespace {

constexpr int64_t mebibyte = 1 << 20;

// From file names to words.
std::map<std::string, std::string> expected_of(const std::string& target, const std::filesystem::path& table) {
  std::map<std::string, std::string> words;
  std::ifstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find(": ");
    if (line.starts_with(target + "/") && end != std::string::npos)
      words[line.substr(target.size() + 1, end - target.size() - 1)] = line.substr(end + 2);
  }
  return words;
}

std::string refusal(const std::string& bytes) {
  try {
    fuzz::read(bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Empty if the refusal is as expected.
std::string mistake(const std::string& bytes, const std::string& words) {
  refusal(bytes);  // one-time allocations do not count
  const PeakMemory peak;
  const std::string said = refusal(bytes);
  const int64_t taken = peak.bytes(), most = mebibyte + 8 * static_cast<int64_t>(bytes.size());
  if (said.empty()) return "is accepted";
  if (said.find(words) == std::string::npos) return "is refused with: " + said;
  if (taken > most) return "takes " + std::to_string(taken) + " bytes of memory";
  return "";
}

int check(const std::filesystem::path& corpus, const std::string& target) {
  std::map<std::string, std::string> expected = expected_of(target, corpus / "expected");
  int files = 0, mistakes = 0;
  const auto complain = [&](const std::string& name, const std::string& what) {
    ++mistakes;
    std::printf("%s/%s %s\n", target.c_str(), name.c_str(), what.c_str());
  };
  for (const auto& entry : std::filesystem::directory_iterator(corpus / target)) {
    ++files;
    const std::string name = entry.path().filename().string();
    const auto row = expected.extract(name);
    const std::string what = row ? mistake(contents(entry.path()), row.mapped()) : "has no row in the table";
    if (!what.empty()) complain(name, what);
  }
  for (const auto& [name, words] : expected) complain(name, "is in the table, but there is no such file");
  std::printf("%d malformed files, %d mistakes\n", files, mistakes);
  return files > 0 && mistakes == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return argc == 3 ? weft::check(argv[1], argv[2]) : 64; }
