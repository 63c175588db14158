// SPDX-License-Identifier: Apache-2.0
#pragma once
// The standard output of a program that does not wait for it. A terminal that Ctrl-S has stopped takes nothing, nor
// does a pipe that nobody reads. The lines are kept, and written by a later call or at the end.
#include <mutex>
#include <string>

#include "weft/data/files/descriptor.h"

namespace weft {

class Output {
 public:
  explicit Output(int file);
  Output(const Output&) = delete;
  ~Output();  // waits until everything is taken

  void write(const std::string& text);
  void show(const std::string& line);  // left out while others are kept, since a later one would replace it
  size_t send_kept();                  // as much as is taken; returns how many bytes are kept after it
  int file() const { return file_; }
  int error() const { return error_; }  // of the system, if it has refused anything

 private:
  bool send();  // whether everything is taken

  std::mutex mutex_;  // ranks may be threads
  const int file_;
  const Descriptor own_;  // the same terminal or pipe, opened so that a write never waits
  std::string kept_;
  int error_ = 0;
};

}  // namespace weft
