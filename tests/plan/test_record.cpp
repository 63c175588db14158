// SPDX-License-Identifier: Apache-2.0
// What a job's file says after a fault.
#include <filesystem>
#include <fstream>

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

// The file of a node with these ranks, of which each has finished all but the last of so many calls.
void write_file(const fs::path& file, const std::vector<std::pair<int, uint64_t>>& ranks, const char* last = "bias") {
  const auto job =
      Job::create(Memory::new_file(size_t{1} << 20), static_cast<int>(ranks.size()), std::chrono::seconds(1));
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int here = static_cast<int>(r);
    job->join(here, ranks[r].first);
    for (uint64_t i = 1; i <= ranks[r].second; ++i) {
      if (i > 1) job->end(here);
      job->begin(here, call(i == ranks[r].second ? last : i % 2 ? "weights" : "bias", i), 0, 4);
    }
  }
  job->keep_logs();
  fs::copy_file(job->memory().path(), file);
  fs::resize_file(file, size_t{64} << 10);  // as a next job cuts it
  job->memory().remove_file();
}

}  // namespace

TEST_CASE("the record of a job names who waited for whom, over all its nodes") {
  const ScratchFolder scratch;
  write_file(scratch / "elm", {{0, 70}, {2, 70}});
  write_file(scratch / "oak", {{1, 70}, {3, 69}});
  const std::string told = printed_record({scratch.path}, 2);
  CHECK_THAT(
      told,
      Contains("rank 0\n  finished call 69 of group 0 (4 ranks): all_reduce sum f32 (4) 'weights' at model.cpp:7\n"
               "  is in call 70 of group 0 (4 ranks): all_reduce sum f32 (4) 'bias' at model.cpp:7\nrank 1\n"));
  CHECK_THAT(told, Contains("ranks 0, 1 and 2 wait in call 70 of group 0, to which rank 3 has not come\n"));
  write_file(scratch / "ash", {{4, 70}}, "gains");
  CHECK_THAT(printed_record({scratch.path}, 2), Contains("rank 4: another call than on ranks 0, 1 and 2, in call 70"));
  fs::remove(scratch / "ash");
  CHECK(told == printed_record({scratch / "oak", scratch / "elm"}, 2));
  CHECK_THAT(printed_record({scratch / "oak"}, 64), Contains("rank 1 waits in call 70 of group 0, to which rank 3"));
  CHECK_THROWS_WITH(printed_record({scratch / "oak", scratch / "oak"}, 1), Contains("two files have a rank 1"));
}

TEST_CASE("what is no file of a job has no record") {
  const ScratchFolder scratch;
  CHECK_THROWS_WITH(printed_record({scratch.path}, 1), Contains("there is no file in"));
  CHECK_THROWS_AS(printed_record({scratch / "none"}, 1), MissingInput);
  std::ofstream(scratch / "letter") << "dear";
  CHECK_THROWS_WITH(printed_record({scratch / "letter"}, 1), Contains("no file of a job"));
  write_file(scratch / "elm", {{0, 3}});
  fs::resize_file(scratch / "elm", 9000);
  CHECK_THROWS_WITH(printed_record({scratch / "elm"}, 1), Contains("it is cut"));
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
      printed_record({scratch / "elm"}, 64);
    } catch (const Error&) {
    }
  }
}
