// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a job prints: passed on unchanged, and kept in a log. Neither a terminal that is stopped nor a full disk holds
// the job up: the terminal then misses a part, or the log ends, and a message says so.
#include <poll.h>

#include <filesystem>
#include <optional>

#include "apps/shared/run/appended_file.h"
#include "apps/shared/run/output.h"

namespace weft::launch {

class Transcript {
 public:
  explicit Transcript(std::filesystem::path log);  // appends, and throws OutputFailure if that is impossible

  void output(std::string_view bytes) { pass_on(output_, bytes); }
  void errors(std::string_view bytes) { pass_on(errors_, bytes); }
  void say(const std::string& sentence);  // of the supervisor: to the standard error and the log

  // What has to be waited for, so that output which is kept can go on. Unused entries have the file -1.
  void wait_for(pollfd& output, pollfd& errors);

 private:
  struct Stream {
    Output to;
    size_t kept = 0;
    bool missing = false;  // a part was left out
  };
  void pass_on(Stream& stream, std::string_view bytes);
  void log(std::string_view bytes);

  const std::filesystem::path path_;
  std::optional<AppendedFile> log_;
  Stream output_{Output(STDOUT_FILENO)}, errors_{Output(STDERR_FILENO)};
};

}  // namespace weft::launch
