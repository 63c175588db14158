// SPDX-License-Identifier: Apache-2.0
// What a job's file says after a fault.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/record/record.h"
#include "weft/collectives/transports/job/job.h"
#include "weft/data/files/input_file.h"

using namespace weft;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

Call call(const char* name, uint64_t sequence) {
  Call made = describe(Verb::all_reduce, Tensor::zeros({4}), {"model.cpp", 7, name});
  made.sequence = sequence;
  return made;
}

// The file of a node with these ranks, of which each has finished all but the last of so many calls of a group.
void write_file(const fs::path& file, const std::vector<std::pair<int, uint64_t>>& ranks, const char* last = "bias",
                int group_size = 4, std::optional<int> end_of_first = {}) {
  const auto job =
      Job::create(Memory::new_file(size_t{1} << 20), static_cast<int>(ranks.size()), std::chrono::seconds(1));
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int here = static_cast<int>(r);
    job->join(here, ranks[r].first);
    for (uint64_t i = 1; i <= ranks[r].second; ++i) {
      if (i > 1) job->end(here);
      job->begin(here, call(i == ranks[r].second ? last : i % 2 ? "weights" : "bias", i), 0, group_size);
    }
  }
  if (end_of_first) job->record_end(0, *end_of_first);
  job->keep_logs();
  fs::copy_file(job->memory().path(), file, fs::copy_options::overwrite_existing);
  fs::resize_file(file, size_t{64} << 10);  // as a next job cuts it
  job->memory().remove_file();
}

}  // namespace

TEST_CASE("the record of a job names who waited for whom, over all its nodes") {
  const ScratchFolder scratch;
  write_file(scratch / "elm", {{0, 70}, {2, 70}});
  write_file(scratch / "oak", {{1, 70}, {3, 69}});
  const std::string told = printed_record(node_records({scratch.path}), 2);
  char name[64]{};
  gethostname(name, sizeof name);
  const std::string on_host = std::string(" on ") + name;
  CHECK_THAT(told,
             Contains("rank 0" + on_host + ", process " + std::to_string(getpid()) +
                      "\n  finished call 69 of group 0 (4 ranks): all_reduce sum f32 (4) 'weights' at model.cpp:7\n"
                      "  is in call 70 of group 0 (4 ranks): all_reduce sum f32 (4) 'bias' at model.cpp:7\nrank 1" +
                      on_host + ","));
  CHECK_THAT(told, Contains("ranks 0, 1 and 2 wait in call 70 of group 0, to which rank 3 has not come\n"));
  write_file(scratch / "ash", {{3, 70}}, "gains");
  write_file(scratch / "fir", {{1, 70}});
  CHECK_THAT(printed_record(node_records({scratch / "ash", scratch / "elm", scratch / "fir"}), 2),
             Contains("rank 3: another call than on ranks 0, 1 and 2, in call 70 of group 0\n"));
  fs::remove(scratch / "ash"), fs::remove(scratch / "fir");
  CHECK(told == printed_record(node_records({scratch / "oak", scratch / "elm"}), 2));
  CHECK_THAT(printed_record(node_records({scratch / "oak"}), 64),
             Contains("rank 1 waits in call 70 of group 0, to which rank 3"));
  CHECK_THROWS_WITH(printed_record(node_records({scratch / "oak", scratch / "oak"}), 1),
                    Contains("two files have a rank 1"));
}

TEST_CASE("the record of a job names the rank that ended first, and groups of single nodes") {
  const ScratchFolder scratch;
  write_file(scratch / "elm", {{0, 9}, {1, 9}}, "bias", 2);
  write_file(scratch / "oak", {{2, 6}, {3, 7}}, "bias", 2, SIGKILL);
  const std::string told = printed_record(node_records({scratch.path}), 1);
  CHECK_THAT(told, Contains("rank 3 waits in call 7 of group 0 on ") &&
                       Contains(", to which rank 2 has not come\nrank 2 on ") && !Contains("rank 0 waits") &&
                       !Contains("rank 1 waits"));
  CHECK_THAT(told, Contains(" ended by signal 9 (Killed)\n") && !Contains("rank 3 on elm ended"));
  write_file(scratch / "oak", {{2, 6}, {3, 9}}, "bias", 2, 7 << 8);
  CHECK_THAT(printed_record(node_records({scratch.path}), 1), Contains(" ended with exit code 7\n"));
}

TEST_CASE("what is no file of a job has no record") {
  const ScratchFolder scratch;
  CHECK_THROWS_WITH(printed_record(node_records({scratch.path}), 1), Contains("there is no file in"));
  CHECK_THROWS_AS(printed_record(node_records({scratch / "none"}), 1), MissingInput);
  std::ofstream(scratch / "letter") << "dear";
  CHECK_THROWS_WITH(printed_record(node_records({scratch / "letter"}), 1), Contains("no file of a job"));
  write_file(scratch / "elm", {{0, 3}});
  fs::resize_file(scratch / "elm", 9000);
  CHECK_THROWS_WITH(printed_record(node_records({scratch / "elm"}), 1), Contains("it is cut"));
}

TEST_CASE("a damaged record is an error, whatever the damage") {
  const ScratchFolder scratch;
  write_file(scratch / "elm", {{0, 3}, {1, 2}});
  std::ifstream whole(scratch / "elm", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(whole)), {});
  for (size_t at = 64; at < bytes.size(); at += 101) {
    std::string other = bytes;
    other[at] = static_cast<char>(other[at] ^ 0xa5);
    std::ofstream(scratch / "elm", std::ios::binary) << other;
    try {
      printed_record(node_records({scratch / "elm"}), 64);
    } catch (const Error&) {
    }
  }
}
