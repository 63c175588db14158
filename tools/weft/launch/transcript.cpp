// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/transcript.h"

#include "weft/data/files/durable_file.h"

namespace weft::launch {
namespace {

constexpr size_t most_kept = size_t{4} << 20;  // bytes for a terminal that takes nothing

uint64_t size_of(const std::filesystem::path& file) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(file, error);
  return error ? 0 : size;
}

}  // namespace

Transcript::Transcript(std::filesystem::path path) : path_(std::move(path)) {
  make_durable_folder(std::filesystem::absolute(path_).parent_path());
  log_.emplace(path_, size_of(path_));
}

void Transcript::say(const std::string& sentence) { errors("weft launch: " + sentence + "\n"); }

void Transcript::pass_on(Stream& stream, std::string_view bytes) {
  log(bytes);
  stream.kept = stream.to.send_kept();
  if (stream.kept + bytes.size() > most_kept) {
    stream.missing = true;
    return;
  }
  if (stream.missing && stream.kept == 0) {
    stream.missing = false;
    stream.to.write("\nweft launch: a part of the output is only in " + path_.string() + "\n");
  }
  if (!stream.missing) stream.to.write(std::string(bytes));
  stream.kept = stream.to.send_kept();
}

void Transcript::log(std::string_view bytes) {
  if (!log_) return;
  try {
    log_->append(bytes);
  } catch (const OutputFailure& failure) {
    log_.reset();
    say(std::string(failure.what()) + "; the log ends here, and the job goes on");
  }
}

void Transcript::wait_for(pollfd& output, pollfd& errors) {
  output = {output_.to.send_kept() > 0 ? STDOUT_FILENO : -1, POLLOUT, 0};
  errors = {errors_.to.send_kept() > 0 ? STDERR_FILENO : -1, POLLOUT, 0};
}

}  // namespace weft::launch
