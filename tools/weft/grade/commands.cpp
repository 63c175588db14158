// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/grade/commands.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>

#include "weft/data/files/input_file.h"

namespace weft::grader {
namespace {

namespace fs = std::filesystem;

// Runs a program and returns its exit status; 128 and more if a signal ended it.
int status_of(std::vector<std::string> words) {
  std::cout.flush();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  require(failed == 0, words[0], " cannot be started: ", std::strerror(failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) require(errno == EINTR, words[0], ": ", std::strerror(errno));
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// This program lies in tools/weft of the build.
fs::path build_folder() {
  const fs::path program = fs::read_symlink("/proc/self/exe"),
                 build = program.parent_path().parent_path().parent_path();
  if (!fs::exists(build / "build.ninja"))
    throw MissingInput("grade: " + build.string() +
                       " is no build of Weft; call build/tools/weft/weft of the clone that has the exercises");
  return build;
}

int grade(int number) {
  const fs::path build = build_folder();
  const std::string program = std::string("exercises/exercise_") + (number < 10 ? "0" : "") + std::to_string(number);
  require(status_of({"ninja", "-C", build.string(), program}) == 0, "grade: exercise ", number, " does not compile");
  const int status = status_of({build / program});
  require(status < 128, "grade: exercise ", number, " was ended by signal ", status - 128, ", ",
          strsignal(status - 128));
  return status;
}

}  // namespace

void add_grade(CLI::App& app, int& code) {
  const auto number = std::make_shared<int>();
  CLI::App& command = *app.add_subcommand("grade", "builds an exercise of the course, and says what is wrong with it");
  command.add_option("EXERCISE", *number, "1 to 10, as in exercises/README.md")->required()->check(CLI::Range(1, 10));
  command.callback([number, &code] { code = grade(*number); });
}

}  // namespace weft::grader
