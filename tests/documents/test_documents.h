// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the documents say, as generate.py finds it, and what makes it again.
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
  bool whole;  // or words out of one
};
struct Picture {
  std::string place, name;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // of each rank
};
extern const std::vector<std::string> complaints;  // of blocks that do not say what they are
extern const std::vector<Snippet> snippets;
extern const std::vector<Message> messages;
extern const std::vector<Picture> pictures;

template <class Block> void run(Communicator& comm) { Block(comm).run(); }

// Error unless a value is what a snippet says of it.
inline void expect_stated(const std::string& place, const std::string& actual, const std::string& stated) {
  require(actual == stated, place, ": says ", stated, ", but it is ", actual);
}

// Everything that messages.cpp makes Weft say, each with its white space made single.
std::vector<std::string> said();

// What is wrong with a picture, or nothing.
std::string fault_of(const Picture& picture);

}  // namespace weft::documents
