// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/commands.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>

#include "tools/weft/launch/ends.h"
#include "tools/weft/launch/supervisor.h"
#include "weft/collectives/fault.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"  // MissingInput

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  Supervision wanted;
  std::string launcher = "mpiexec";
  bool shrink = false;
  int64_t ranks_per_node = 1;
};

bool can_be_started(const std::string& name) {
  const auto is_program = [](const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(name);
  const char* const all = std::getenv("PATH");
  std::istringstream folders(all ? all : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_program(fs::path(folder) / name)) return true;
  return false;
}

int launch(Arguments& arguments) {
  Supervision& wanted = arguments.wanted;
  wanted.launcher = launcher_from(arguments.launcher);
  if (arguments.shrink) wanted.shrink = arguments.ranks_per_node;
  const auto refuse = [](const char* option, const char* what) { throw CLI::ValidationError(option, what); };
  if (wanted.shrink > 0 && wanted.ranks == 0) refuse("--shrink", "it needs the number of ranks, -n");
  if (wanted.launcher.kind == Kind::threads && wanted.ranks > 0)
    for (const std::string& word : wanted.program)
      if (word.rfind("--ranks", 0) == 0) refuse("--ranks", "of the program: give -n in its place");
  for (const std::string& name :
       {wanted.launcher.words.empty() ? wanted.program[0] : wanted.launcher.words[0], wanted.program[0]})
    if (!can_be_started(name)) throw MissingInput(name + ": there is no such program");
  try {
    return supervise(wanted);
  } catch (const OutputFailure& failure) {
    std::cerr << "weft: " << failure.what() << "\n";
    return exit_codes::io;
  }
}

}  // namespace

void add_launch(CLI::App& app, int& code) {
  const auto arguments = std::make_shared<Arguments>();
  Supervision& wanted = arguments->wanted;
  CLI::App& command =
      *app.add_subcommand("launch", "starts a training, and starts it again from its last checkpoint after a failure");
  command.add_option("-n", wanted.ranks, "number of ranks (default: the launcher's)")->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--launcher", arguments->launcher,
                  "mpiexec or srun, with its options: \"mpiexec -f hosts\"; or threads, of one process")
      ->capture_default_str();
  command.add_option("--restarts", wanted.restarts, "how often to start again")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_flag("--shrink", arguments->shrink,
                   "if ranks are lost again before anything new is saved, go on without those of one node");
  command.add_option("--ranks-per-node", arguments->ranks_per_node, "which --shrink leaves out at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--same-step", wanted.same_step, "give up if so many attempts in a row end at the same step")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--pause", wanted.pause,
                  "seconds before a restart at most; it is 1, 2, 4 ... while nothing new is saved")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  command
      .add_option("--stall", wanted.stall_minutes,
                  "minutes without a step, a checkpoint or output, before a job is ended and started again; 0: any")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  command.add_option("COMMAND", wanted.program, "after --: a program of Weft and its options")->required();
  command.footer("What an exit code leads to:\n" + table_of_ends() +
                 "Beside the run's folder, FOLDER.launch.log has all output, and FOLDER.launch.txt a line for each "
                 "attempt.");
  command.callback([arguments, &code] { code = launch(*arguments); });
}

}  // namespace weft::launch
