// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the documents state, as found by generate.py, and the functions that reproduce it.
#include <functional>
#include <string>
#include <vector>

#include "weft/collectives/communicator.h"

namespace weft::documents {

struct Snippet {
  std::string place;  // "README.md:52"
  std::vector<int> ranks;
  std::function<void(Communicator&)> run;
};
struct Message {
  std::string place, text;
  bool whole;  // else words from a message
};
struct Picture {
  std::string place, name;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // for each rank
};
extern const std::vector<std::string> complaints;  // about untagged blocks
extern const std::vector<Snippet> snippets;
extern const std::vector<Message> messages;
extern const std::vector<Picture> pictures;

template <class Block> void run(Communicator& comm) { Block(comm).run(); }

// Throws an Error unless a value is what a snippet states.
inline void expect_stated(const std::string& place, const std::string& actual, const std::string& stated) {
  require(actual == stated, place, ": says ", stated, ", but it is ", actual);
}

// All messages that messages.cpp provokes, with white space normalised.
std::vector<std::string> said();

// The mistake in a picture, or nothing.
std::string fault_of(const Picture& picture);

}  // namespace weft::documents
