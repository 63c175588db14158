// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/durable_file.h"

// These replace the C library's calls for writing files. They record every call, and can fail one of them or shorten
// every write.
namespace {
struct Calls {
  std::vector<std::string> list = {};
  size_t failing = SIZE_MAX;  // the index of the failing call
  int code = EIO;
  bool stuck = true;  // whether every later call fails as well; EINTR is temporary
  size_t max_bytes = SIZE_MAX;

  bool fails(const std::string& name) {
    list.push_back(name);
    const size_t number = list.size() - 1;
    if (number != failing && !(stuck && number > failing)) return false;
    errno = code;
    return true;
  }
} calls;
}  // namespace

extern "C" {
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  if (calls.fails("write")) return -1;
  return syscall(SYS_pwrite64, file, bytes, std::min(count, calls.max_bytes), offset);
}
int fsync(int file) {
  struct stat state;
  fstat(file, &state);
  if (calls.fails(S_ISDIR(state.st_mode) ? "sync folder" : "sync")) return -1;
  return static_cast<int>(syscall(SYS_fsync, file));
}
int sync_file_range(int file, off_t offset, off_t count, unsigned how) {
  if (calls.fails("drain")) return -1;
  return static_cast<int>(syscall(SYS_sync_file_range, file, offset, count, how));
}
int rename(const char* from, const char* to) noexcept {
  if (calls.fails("rename")) return -1;
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
}

namespace weft {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

struct Fault {
  explicit Fault(Calls with) { calls = std::move(with); }
  ~Fault() { calls = {}; }
};

std::string save(const fs::path& folder, int64_t step) {
  return message_of([&] { save_checkpoint(folder, step, sample(static_cast<unsigned>(step)), {}); });
}

TEST_CASE("a checkpoint is synced to disk before it is renamed, and the folder before the save returns") {
  const ScratchFolder folder;
  const Fault watched(Calls{});
  REQUIRE(save(folder.path, 1) == "nothing");
  const auto& list = calls.list;
  REQUIRE(list.size() > 4);
  CHECK(std::count(list.begin(), list.end(), "write") == static_cast<int64_t>(list.size()) - 3);
  CHECK(std::vector(list.end() - 3, list.end()) == std::vector<std::string>{"sync", "rename", "sync folder"});
}

TEST_CASE("new folders of a checkpoint are synced to disk before the save returns") {
  const ScratchFolder folder;
  const Fault watched(Calls{});
  REQUIRE(save(folder / "a/b/", 1) == "nothing");
  CHECK(std::count(calls.list.begin(), calls.list.end(), "sync folder") == 3);
}

TEST_CASE("when any system call fails, the error names file and reason, and earlier checkpoints stay sound") {
  for (const int code : {ENOSPC, EIO}) {
    for (size_t call = 0;; ++call) {
      const ScratchFolder folder;
      for (const int64_t step : {1, 2}) REQUIRE(save(folder.path, step) == "nothing");
      std::string complaint;
      {
        const Fault fault(Calls{.failing = call, .code = code});
        complaint = save(folder.path, 3);
        if (calls.list.size() <= call) break;  // there were fewer calls
      }
      CHECK_THAT(complaint, Contains("step-000003.safetensors") && Contains(std::strerror(code)));
      const Latest latest = latest_checkpoint(folder.path);
      CHECK(latest.damaged.empty());
      CHECK(holds(*latest.file, sample(static_cast<unsigned>(latest.step))));
      CHECK_NOTHROW(open_checkpoint(folder / "step-000001.safetensors"));
      CHECK_NOTHROW(open_checkpoint(folder / "step-000002.safetensors"));
      CHECK(std::distance(fs::directory_iterator(folder.path), {}) == latest.step);  // no temporary file
      CHECK(save(folder.path, 3) == "nothing");
    }
  }
}

TEST_CASE("a large file is brought to the disk while it is written, where the system can do so") {
  const std::string mebibyte(1 << 20, 'x');
  for (const int code : {0, EIO, ENOSPC, ENOSYS, EINVAL}) {
    const ScratchFolder folder;
    const Fault fault(Calls{.failing = code ? 16 : SIZE_MAX, .code = code, .stuck = false});
    const std::string complaint = message_of([&] {
      DurableFile file(folder / "x");
      for (uint64_t i = 0; i < 40; ++i) file.write(i << 20, mebibyte.data(), mebibyte.size());
      file.commit();
    });
    if (code == EIO || code == ENOSPC) {
      CHECK_THAT(complaint, Contains("x: cannot be brought to the disk: ") && Contains(std::strerror(code)));
      CHECK(fs::is_empty(folder.path));
      continue;
    }
    CHECK(complaint == "nothing");
    CHECK(fs::file_size(folder / "x") == 40 << 20);
    REQUIRE(calls.list.size() == 45);
    CHECK(calls.list[16] == "drain");
    CHECK(calls.list[33] == "drain");
    CHECK(std::count(calls.list.begin(), calls.list.end(), "drain") == 2);
  }
}

TEST_CASE("writing continues after short writes and interruptions") {
  for (size_t call = 0;; ++call) {
    const ScratchFolder folder;
    const Fault fault(Calls{.failing = call, .code = EINTR, .stuck = false, .max_bytes = 100});
    const std::string complaint = save(folder.path, 1);
    if (calls.list.size() <= call) break;
    if (calls.list[call] == "rename") continue;  // never interrupted
    CHECK(complaint == "nothing");
    CHECK(holds(*latest_checkpoint(folder.path).file, sample(1)));
  }
}

TEST_CASE("exceeding the file size limit leaves earlier checkpoints intact") {
  const ScratchFolder folder;
  for (const int64_t step : {1, 2}) REQUIRE(save(folder.path, step) == "nothing");
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{300, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string complaint = save(folder.path, 3);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(complaint == (folder / "step-000003.safetensors").string() + ": cannot be written: File too large");
  CHECK(latest_checkpoint(folder.path).step == 2);
}

TEST_CASE("an error about a path that cannot be written names the path and the reason") {
  const ScratchFolder folder;
  put(folder / "file", "");
  CHECK_THAT(save(folder / "file", 1), Contains("file/step-000001.safetensors: cannot be created: Not a directory") ||
                                           Contains("file: cannot be created"));
  CHECK_THAT(save(folder / "file/below", 1), Contains("file: cannot be created"));
  CHECK_THAT(message_of([&] { write_safetensors(folder / "missing/x", {}, {}); }),
             Contains("missing/x: cannot be created: No such file or directory"));
  fs::create_directory(folder / "x");
  CHECK_THAT(message_of([&] { write_safetensors(folder / "x", {}, {}); }),
             Contains("x: cannot be put in its place: Is a directory"));
  CHECK_THROWS_AS(write_safetensors(folder / "x", {}, {}), OutputFailure);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);
}

TEST_CASE("two concurrent writers do not affect each other") {
  const ScratchFolder folder;
  DurableFile first(folder / "x"), second(folder / "x");
  first.write(0, "first", 5);
  second.write(0, "second", 6);
  DurableFile::sweep(folder.path);
  second.commit();
  CHECK(contents(folder / "x") == "second");
  first.commit();
  CHECK(contents(folder / "x") == "first");
}

}  // namespace
}  // namespace weft
