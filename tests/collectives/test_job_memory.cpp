// SPDX-License-Identifier: Apache-2.0
// Memory that ranks share: its files belong to one job and go with it, and groups return what they took.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/collectives/transport_checks.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/session.h"
#include "weft/collectives/transports/shared/shared_memory.h"

using namespace weft;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

constexpr size_t mebibyte = size_t{1} << 20;

// Runs a body in a process of its own; returns its exit code.
int of_a_process(const std::function<int()>& work) {
  const pid_t process = fork();
  if (process == 0) {
    int code = 99;
    try {
      code = work();
    } catch (const std::exception& exception) {
      fprintf(stderr, "%s\n", exception.what());
    }
    _exit(code);
  }
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum class Death { sudden, reported, crash };

// The path of the file that a process left when it died.
std::string left_by_a_dead_process(Death death) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  of_a_process([&] {
    const auto job = Job::create(Memory::new_file(64 * mebibyte), 2, default_deadline());
    job->allocate(8 * mebibyte);
    if (death == Death::reported) job->keep_logs();
    const std::string path = job->memory().path();
    const bool told = write(pipe[1], path.data(), path.size()) > 0;
    if (death != Death::crash) return told ? 0 : 1;
    job->join(0);
    job->begin(0, Call{}, 0, 2);
    const LastWords last_words(*job, LastWords::Ranks::processes);
    close(STDERR_FILENO), close(STDOUT_FILENO);  // LastWords and Catch would report the crash there
    return std::raise(SIGSEGV);
  });
  char path[4096];
  const ssize_t length = read(pipe[0], path, sizeof path);
  close(pipe[0]), close(pipe[1]);
  return std::string(path, static_cast<size_t>(length));
}

size_t bytes_on_disk(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 ? static_cast<size_t>(status.st_blocks) * 512 : 0;
}

void forget_launchers() {
  for (const char* sign : {"PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"})
    unsetenv(sign);
}

struct Removed {
  std::string path;
  ~Removed() { unlink(path.c_str()); }
};

}  // namespace

TEST_CASE("a new job leaves files alone whose names only look like a job's") {
  const Removed results{"/dev/shm/weft-results.bin"}, old{"/dev/shm/weft-of-yesterday"}, pipe{"/dev/shm/weft-pipe"};
  const std::string content(10 * mebibyte, 'x');
  std::ofstream(results.path) << content;
  std::ofstream(old.path) << content;
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(48);
  fs::last_write_time(old.path, before);
  mkfifo(pipe.path.c_str(), 0600);
  const Removed job{Memory::new_file(mebibyte).path()};
  CHECK(fs::file_size(results.path) == content.size());
  CHECK((fs::exists(old.path) && fs::file_size(old.path) == content.size()));
  CHECK(fs::exists(pipe.path));
}

TEST_CASE("a new job leaves another user's files alone") {
  const Removed file{left_by_a_dead_process(Death::sudden)};
  REQUIRE(fs::exists(file.path));
  if (chown(file.path.c_str(), 12345, 12345) != 0) return;  // only root can
  const Removed job{Memory::new_file(mebibyte).path()};
  CHECK(fs::exists(file.path));
  REQUIRE(chown(file.path.c_str(), geteuid(), getegid()) == 0);
  const Removed next{Memory::new_file(mebibyte).path()};
  CHECK(!fs::exists(file.path));
}

TEST_CASE("a new job removes a dead job's files, but keeps up to 1 MiB that a failure report names for a day") {
  const Death death = GENERATE(Death::reported, Death::crash);
  const Removed killed{left_by_a_dead_process(Death::sudden)}, reported{left_by_a_dead_process(death)};
  const Memory living = Memory::new_file(mebibyte);
  const Removed removed{living.path()};
  CHECK(!fs::exists(killed.path));
  CHECK(fs::exists(reported.path));
  CHECK(bytes_on_disk(reported.path) <= mebibyte);
  CHECK(fs::file_size(reported.path) > 10'000);
  const Removed next{Memory::new_file(mebibyte).path()};
  CHECK(fs::exists(living.path()));  // its job is alive
  fs::last_write_time(reported.path, fs::file_time_type::clock::now() - std::chrono::hours(25));
  const Removed tomorrow{Memory::new_file(mebibyte).path()};
  CHECK(!fs::exists(reported.path));
}

TEST_CASE("jobs that start at the same time do not take each other's files for a dead one's") {
  const auto start_many = [] {
    for (int i = 0; i < 1500; ++i) {
      const Memory memory = Memory::new_file(64 * mebibyte);
      const bool sound = fs::exists(memory.path()) && fs::file_size(memory.path()) == memory.size();
      memory.remove_file();
      if (!sound) return 1;
    }
    return 0;
  };
  std::vector<pid_t> others;
  for (int i = 0; i < 3; ++i)
    if (others.push_back(fork()); others.back() == 0) _exit(start_many());
  CHECK(start_many() == 0);
  for (const pid_t other : others) {
    int status = 0;
    waitpid(other, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("a thousand groups of threads leave memory as it was") {
  const int n = GENERATE(2, 3, 5, 8);
  size_t before = 0, after = 0;
  run_ranks(n, [&](std::unique_ptr<Transport> world) {
    checks::groups_come_and_go(*world, 100);
    if (world->rank() == 0) before = checks::resident_bytes();
    checks::groups_come_and_go(*world, 1000);
    if (world->rank() == 0) after = checks::resident_bytes();
  });
  CHECK(after < before + checks::kept_by_allocator());
}

TEST_CASE("memory that is still held outlives its group on every rank") {
  run_ranks(3, [](std::unique_ptr<Transport> world) {
    std::unique_ptr<Transport> group = world->split(0, 0, Site::here());
    StorageHandle common = group->allocate_common(100'000, Site::here());
    if (world->rank() == 0) std::memset(common->data, 7, 100'000);
    checks::barrier(*group);
    group = nullptr;
    if (world->rank() == 1) common = {};
    checks::groups_come_and_go(*world, 20);
    const auto* bytes = common ? static_cast<const char*>(common->data) : nullptr;
    require(!common || std::all_of(bytes, bytes + 100'000, [](char byte) { return byte == 7; }), "it is used again");
  });
}

TEST_CASE("blocks of shared memory are zero-initialised and never handed out twice, on any thread") {
  const auto job = Job::create(Memory::of_this_process(size_t{1} << 30), 1, default_deadline());
  const Offset first = job->allocate(100'000);
  job->give(first);
  CHECK(job->allocate(100'000) == first);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 1; t <= 4; ++t)
    threads.emplace_back([&, t] {
      uint64_t state = static_cast<uint64_t>(t) * 88172645463325252u;
      std::vector<std::pair<Offset, size_t>> mine;
      for (int i = 0; i < 5000; ++i) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        const size_t bytes = 1 + state % (state % 16 ? 500 : 20'000);
        const Offset block = job->allocate(bytes);
        char* place = job->at<char>(block);
        wrong += !std::all_of(place, place + bytes, [](char byte) { return byte == 0; });
        std::memset(place, t, bytes);
        mine.emplace_back(block, bytes);
        if (mine.size() < 8) continue;
        const auto [given, size] = mine[state % 8];
        place = job->at<char>(given);
        wrong += !std::all_of(place, place + size, [t](char byte) { return byte == t; });
        job->give(given);
        mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(state % 8));
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

// The limit is above what the process has mapped already, which is much on the emulated card. Returns the mapped bytes.
size_t limit_address_space(size_t more) {
  std::ifstream sizes("/proc/self/statm");
  size_t pages = 0;
  sizes >> pages;
  const size_t most = pages * 4096 + more;
  const struct rlimit limit { most, most };
  require(setrlimit(RLIMIT_AS, &limit) == 0, "no limit");
  return most;
}

TEST_CASE("ranks as threads work within a small address space") {
  if (checks::sanitized()) return;  // a sanitizer takes terabytes of addresses
  CHECK(of_a_process([] {
          limit_address_space(200 * mebibyte);
          const Memory of_the_session = Memory::of_this_process(size_t{64} << 30);
          run_ranks(2, [](std::unique_ptr<Transport> world) {
            checks::all_sum(*world, 1'000'000, false);
            checks::messages_arrive_in_order(*world, 3, 1000);
          });
          return 0;
        }) == 0);
}

TEST_CASE("an error about insufficient memory states the size that was requested") {
  CHECK(of_a_process([] {
          const size_t more = limit_address_space(1024 * mebibyte) / 4;  // than the eighth that a job takes
          const auto job = Job::create(Memory::of_this_process(size_t{64} << 30), 1, default_deadline());
          try {
            job->allocate(more);
          } catch (const Fault& fault) {
            const std::string what = std::to_string(more / 1024) + " KiB do not fit into the ";
            return std::string(fault.what()).find(what) != std::string::npos ? fault.exit_code : 1;
          }
          return 2;
        }) == exit_codes::out_of_memory);
}

TEST_CASE("an error about a small /dev/shm states the size it needs and how to get it") {
  constexpr int cannot_be_tried = 77;
  const int code = of_a_process([] {
    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, "size=4m") != 0)
      return cannot_be_tried;
    const auto job = Job::create(Memory::new_file(size_t{64} << 30), 8, default_deadline());
    SharedMemory::lay_out(*job, SharedMemory::AddressSpace::job_memory);
    try {
      job->allocate(8 * mebibyte);
    } catch (const Fault& fault) {
      const std::string said = fault.what();
      for (const char* part : {"8192 KiB more in /dev/shm/weft-", "No space left", "of the 4096 KiB", "--shm-size="})
        if (said.find(part) == std::string::npos) return 1;
      return fault.exit_code;
    }
    return 2;
  });
  if (code != cannot_be_tried) CHECK(code == exit_codes::out_of_memory);
}

TEST_CASE("a program started without a launcher runs without MPI") {
  forget_launchers();
  const auto sockets = [] {
    std::vector<std::string> found;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
      if (const std::string target = fs::read_symlink(entry, gone); target.starts_with("socket:"))
        found.push_back(target);
    return found;
  };
  CHECK(of_a_process([&] {
          const auto before = sockets();
          int argc = 0;
          char* none[] = {nullptr};
          char** argv = none;
          Session session(argc, argv);
          return session.processes() == nullptr && session.size() == 1 && sockets() == before ? 0 : 1;
        }) == 0);
}

TEST_CASE("output printed before a fault is not lost") {
  forget_launchers();
  const ScratchFolder folder;
  const fs::path printed = folder / "printed";
  const int code = of_a_process([&] {
    if (!std::freopen(printed.c_str(), "w", stdout)) return 1;
    int argc = 0;
    char* none[] = {nullptr};
    char** argv = none;
    Session session(argc, argv);
    std::printf("step 1\n");
    session.end(exit_codes::exception, "this is a test");
  });
  CHECK(code == exit_codes::exception);
  std::ifstream file(printed);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "step 1\n");
}
