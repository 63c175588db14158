// SPDX-License-Identifier: Apache-2.0
// What `weft launch` makes of exit codes, of command lines and of the files of a run.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>

#include "tests/support/catch.h"
#include "tools/weft/launch/command_words.h"
#include "tools/weft/launch/ends.h"
#include "tools/weft/launch/run_files.h"
#include "tools/weft/launch/signals.h"
#include "weft/collectives/fault.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/folder_lock.h"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

Remedy remedy(int code) { return end_of(code).remedy; }

struct Folder {
  fs::path path = fs::temp_directory_path() / ("weft_supervisor_" + std::to_string(getpid()));
  Folder() { fs::create_directories(path / "checkpoints"); }
  ~Folder() { fs::remove_all(path); }
  void write(const char* name, const std::string& text) const { std::ofstream(path / name) << text; }
  void save(int64_t step) const {
    save_checkpoint(path / "checkpoints", step, NamedTensors{{"w", Tensor::full({2}, 1)}}, {});
  }
};

}  // namespace

TEST_CASE("mistakes and failures that would come again are not repeated") {
  using namespace exit_codes;
  for (const int code : {usage, malformed_input, missing_input, exception, unwinding, configuration_differs, mismatch,
                         non_finite, out_of_memory, wrong_launcher, 126, 127})
    CHECK(remedy(code) == Remedy::person);
}

TEST_CASE("a rank, a node or a launcher that is lost leads to a restart, and then to fewer ranks") {
  for (const int code : {exit_codes::deadline, exit_codes::peer_died, 1, 6, 9, 11, 15, 17, 63, 205, 255})
    CHECK(remedy(code) == Remedy::ranks);
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGUSR2, SIGPIPE})
    CHECK(remedy(128 + signal) == Remedy::ranks);
  CHECK(remedy(exit_codes::premature_exit) == Remedy::restart);
  CHECK(remedy(exit_codes::io) == Remedy::restart);
}

TEST_CASE("a job that was asked to stop is not started again") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) CHECK(remedy(128 + signal) == Remedy::stop);
  CHECK(remedy(0) == Remedy::none);
}

TEST_CASE("every exit code is in the table, and no other leads to success") {
  for (int code = 1; code < 256; ++code) {
    CHECK(remedy(code) != Remedy::none);
    CHECK(in_words(code).find(std::to_string(code) + ", ") == 0);
  }
  CHECK(in_words(137) == "137, ended by a signal (Killed)");
  CHECK(table_of_ends().find("  86        a rank waited longer than the deadline: starts again; ") !=
        std::string::npos);
}

TEST_CASE("the exit code after a signal is 128 plus its number") {
  CHECK(exit_code_of(W_EXITCODE(86, 0)) == 86);
  CHECK(exit_code_of(W_EXITCODE(0, SIGKILL)) == 137);
}

TEST_CASE("a restart goes on, and no option of the first start makes it begin anew") {
  const Words given = {"train", "--fresh", "--resume", "none", "--steps", "3", "--resume=other", "--fresh=true"};
  CHECK(resumed(given, {}, "auto") == Words{"train", "--steps", "3", "--resume", "auto"});
  RunOptions by_file;
  by_file.fresh_by_file = true;
  CHECK(resumed({"train"}, by_file, "auto") == Words{"train", "--fresh=false", "--resume", "auto"});
}

TEST_CASE("the run's folder is the program's") {
  CHECK(run_options({"build/train"}).out == "runs/train");
  CHECK(run_options({"train", "--out", "a", "--out=b"}).out == "b");
  CHECK(run_options({"train", "--resume=x"}).resume == "x");
  const Folder folder;
  folder.write("config.toml", "out = \"from file\"\nfresh = true\nresume = 'none'\n");
  const std::string file = folder.path / "config.toml";
  const RunOptions options = run_options({"train", "--config", file});
  CHECK(options.out == "from file");
  CHECK(options.fresh_by_file);
  CHECK(options.resume == "none");
  CHECK(run_options({"train", "--config", file, "--out", "a"}).out == "a");
  CHECK(run_options({"train", "--config", "nowhere.toml"}).out == "runs/train");
}

TEST_CASE("each launcher is told the number of ranks in its own way") {
  const Words program = {"train", "--batch", "8"};
  CHECK(whole_command(launcher_from("threads"), 3, program) == Words{"train", "--batch", "8", "--ranks", "3"});
  CHECK(whole_command(launcher_from("mpiexec -f hosts"), 3, program) ==
        Words{"mpiexec", "-f", "hosts", "-n", "3", "train", "--batch", "8"});
  CHECK(whole_command(launcher_from("/usr/bin/srun --mpi=pmi2"), 3, program) ==
        Words{"/usr/bin/srun", "--mpi=pmi2", "-n", "3", "--kill-on-bad-exit=1", "--overlap", "train", "--batch", "8"});
  CHECK(whole_command(launcher_from("mpiexec"), 0, program) == Words{"mpiexec", "train", "--batch", "8"});
  CHECK_THROWS(launcher_from(" "));
}

TEST_CASE("the files of a run say how far it has come") {
  const Folder folder;
  const RunFiles none = run_files(folder.path);
  CHECK(!none.has_checkpoint);
  CHECK(none.beginning.empty());
  folder.write("config.toml", "seed = 1\n");
  folder.write("metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":7,\"loss\":2}\n{\"step\":8,\"lo");
  const RunFiles begun = run_files(folder.path);
  CHECK(begun.begun_since(none));
  CHECK(!begun.begun_since(begun));
  CHECK(!begun.saved_since(none));
  CHECK(begun.last_step == 7);
  folder.save(5);
  const RunFiles saved = run_files(folder.path);
  CHECK(saved.has_checkpoint);
  CHECK(saved.saved_step == 5);
  CHECK(saved.last_step == 7);
  CHECK(saved.saved_since(begun));
  CHECK(!saved.saved_since(saved));
  CHECK(!saved.reported);
  folder.write("report.html", "done");
  CHECK(run_files(folder.path).reported);
  folder.write("report.html", "<td>stopped after step</td>");
  CHECK(run_files(folder.path).stopped);
  CHECK(!run_files(folder.path).reported);
}

TEST_CASE("a damaged checkpoint is none") {
  const Folder folder;
  folder.write("checkpoints/step-000003.safetensors", "no tensors");
  CHECK(!run_files(folder.path).has_checkpoint);
}

TEST_CASE("a run that gets on shows it") {
  const Folder folder;
  const std::string before = activity_of(folder.path);
  CHECK(activity_of(folder.path) == before);
  folder.write("metrics.jsonl", "{\"step\":1}\n");
  CHECK(activity_of(folder.path) != before);
}

TEST_CASE("the holder of a folder has a name") {
  const Folder folder;
  CHECK(holder_of(folder.path).empty());
  const FolderLock lock(folder.path);
  CHECK(holder_of(folder.path).find("process ") == 0);
  CHECK(holder_of(folder.path / "nowhere").empty());
}

TEST_CASE("a request to stop counts, and one to save does not undo another") {
  Asked asked;
  CHECK(asked.nothing());
  asked.add(SIGCHLD);
  CHECK(asked.nothing());
  asked.add(SIGUSR1);
  asked.add(SIGUSR2);
  CHECK(asked.save == SIGUSR1);
  asked.add(SIGTERM);
  asked.add(SIGINT);
  CHECK(asked.stop == SIGTERM);
  CHECK(asked.times == 2);
}

}  // namespace weft::launch
