// SPDX-License-Identifier: Apache-2.0
// Runs what the documents show: every snippet, every message, every picture.
#include "tests/documents/test_documents.h"

#include <filesystem>
#include <regex>

#include "tests/losses/loss_checks.h"
#include "tests/support/catch.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/scratch_folder.h"

using namespace weft;
using namespace weft::documents;

namespace {

// Removes times, process ids and lines in Weft's own files, which documents cannot know.
std::string without_what_varies(std::string text) {
  static const std::pair<std::regex, const char*> varies[] = {
      {std::regex(R"(\d+\.\d s)"), "N s"},
      {std::regex(R"(process \d+, \w+:)"), "process N:"},
      {std::regex(R"((collectives/[a-z/]+\.cpp):\d+)"), "$1:N"}};
  for (const auto& [what, replacement] : varies) text = std::regex_replace(text, what, replacement);
  return text;
}

// A document's message as a pattern, in which ... and <name> match anything.
bool is_same(const std::string& stated, const std::string& said) {
  static const std::regex special(R"([.^$|()\[\]{}*+?\\])"), anything(R"((\\\.){3}|<[a-z ]+>)");
  return std::regex_match(said,
                          std::regex(std::regex_replace(std::regex_replace(stated, special, "\\$&"), anything, ".*")));
}

// The rest of a document's messages from the first that Weft does not print.
std::string not_said(const std::string& stated, const std::vector<std::string>& said) {
  std::string left = stated;
  for (const std::string& message : said) {
    if (is_same(stated, message)) return "";
    if (!stated.starts_with(message + " ")) continue;
    const std::string behind = not_said(stated.substr(message.size() + 1), said);
    if (behind.size() < left.size()) left = behind;
  }
  return left;
}

// The message with the longest common beginning, to help with the correction.
std::string like(const std::string& stated, const std::vector<std::string>& said) {
  const auto alike = [&](const std::string& message) {
    return std::mismatch(message.begin(), message.end(), stated.begin(), stated.end()).first - message.begin();
  };
  return *std::max_element(said.begin(), said.end(), [&](auto& a, auto& b) { return alike(a) < alike(b); });
}

}  // namespace

TEST_CASE("every code block in the documents is tagged") {
  for (const std::string& complaint : complaints) FAIL_CHECK(complaint);
}

TEST_CASE("every snippet of the documents runs and gives the documented results") {
  CHECK(snippets.size() > 20);
  const ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  for (const Snippet& snippet : snippets)
    for (const int ranks : snippet.ranks) {
      INFO(snippet.place << " on " << ranks << " ranks");
      CHECK_NOTHROW(run_ranks(ranks, [&](Communicator& comm) { snippet.run(comm); }));
    }
  std::filesystem::current_path(before);
}

TEST_CASE("every message quoted in a document is one that Weft prints") {
  CHECK(messages.size() > 20);
  std::vector<std::string> all;
  for (const std::string& message : said()) all.push_back(without_what_varies(message));
  for (const auto& [place, text, whole] : messages) {
    const std::string stated = without_what_varies(text);
    const auto holds = [&](const std::string& message) { return message.find(stated) != std::string::npos; };
    const std::string left = whole ? not_said(stated, all) : std::any_of(all.begin(), all.end(), holds) ? "" : stated;
    INFO(place << " quotes what Weft does not say; it says " << like(left, all));
    CHECK(left == "");
  }
}

TEST_CASE("every picture in a document shows what the collective computes") {
  CHECK(pictures.size() > 15);
  for (const Picture& picture : pictures) CHECK(fault_of(picture) == "");
}

TEST_CASE("the example loss of CONTRIBUTING equals one process and matches finite differences") {
  const auto& all = LossCase::all();
  const auto added = std::find_if(all.begin(), all.end(), [](const LossCase* c) { return c->name == "view distance"; });
  REQUIRE(added != all.end());
  const LossComparison comparison(**added);
  for (const int ranks : {1, 2, 3, 5, 8})
    CHECK_NOTHROW(run_ranks(ranks, [&](Communicator& comm) {
      comparison.check(comm);
      check_gradients((*added)->distributed, comm);
    }));
}
