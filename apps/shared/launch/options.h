// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line: options that all programs share, and those that a program adds. CLI11 is included only in
// options.cpp, since it takes seconds to compile.
//
//   struct Settings : Options {
//     double temperature = 0.5;
//   };
//   ...
//   Settings settings;
//   settings.epochs = 8;  // this program's default
//   CommandLine line("train_contrastive", "Trains ...", settings);
//   line.add("--temperature", settings.temperature, "of the loss", {0.01, 10});
//   return launch(line, argc, argv, [&](const Launch& rank) { ... });
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/shared/choices/named_rule.h"
#include "apps/shared/choices/named_schedule.h"
#include "weft/engine/nn/init.h"
#include "weft/optim/training.h"

namespace weft {

struct WrongOption : Error {
  using Error::Error;
};  // options that contradict each other or the data

struct Options {
  int64_t ranks = 0;  // 0: the processes of the launcher, or the cores if there is no launcher
  std::string device = "auto";
  std::string dtype = "f32";
  Training::Options training;
  std::string data;  // a folder or file
  int64_t size = 0;  // of a picture, in pixels; 0: chosen by the data
  double cache = 4;  // GiB of pictures at most
  int64_t batch = 256;
  double rate = 2e-3;  // the highest of the schedule
  RuleChoice rule;
  ScheduleChoice schedule;
  double clip = 0;                // the largest norm of the gradients; 0: any
  int64_t steps = 0, epochs = 1;  // 0 steps: those of the epochs
  int64_t seed = 1;
  std::string resume = "unfinished";
  bool fresh = false;              // as if `resume` were "none"
  double checkpoint_minutes = 10;  // of training between checkpoints; 0: any
  int64_t checkpoint_every = 0;    // steps; 0: any
  int64_t keep = 2;                // checkpoints
  int64_t watch_every = 0;         // steps; 0: a thirtieth of the run, and at least 75
  std::string out;                 // by default "runs/PROGRAM"
  std::string trace;               // a file or folder; empty: none
  int64_t record_step = 0;         // whose tapes are kept; 0: none
  bool dry_run = false, fast_reductions = false, tf32 = false, graph = false, quiet = false, json = false;
  double timeout;       // seconds
  bool has_run = true;  // false: the program trains nothing, and has no folder of a run

  Options();
  Init init(Device device) const;  // for parameters; its key is that of all random draws
  Schedule rates(int64_t steps_of_run) const { return schedule.make(rate, steps_of_run); }
  double largest_norm() const { return clip > 0 ? clip : std::numeric_limits<double>::infinity(); }
  std::string begins_at() const;  // `resume`, or "none" if the run is `fresh`; throws WrongOption if it is both
  Device chosen_device() const;   // throws WrongOption if this machine does not have it
};

class CommandLine {
 public:
  template <class T> struct Range { T least, most; };
  // A program that ends right after parsing: with help, or with a mistake.
  struct Ending {
    int exit_code;
    std::string text;
    bool operator==(const Ending&) const = default;
  };

  // Names are the option's, then its other names if it has any: "--rate,--lr".
  // Binds the common options. Bound variables hold their defaults already, and must outlive this object.
  CommandLine(const std::string& program, const std::string& what_it_does, Options& options);
  ~CommandLine();

  void add(const std::string& names, bool& value, const std::string& help);
  void add(const std::string& names, int64_t& value, const std::string& help, Range<int64_t> range);
  void add(const std::string& names, double& value, const std::string& help, Range<double> range);
  void add(const std::string& names, std::vector<int64_t>& values, const std::string& help, Range<int64_t> range);
  void add(const std::string& names, std::string& value, const std::string& help,
           const std::vector<std::string>& choices = {});  // none: any text

  // Leaves out all options but these.
  void keep_only(const std::set<std::string>& names);

  std::optional<Ending> parse(int argc, const char* const* argv);  // never throws
  const Options& options() const { return options_; }
  std::string program() const;
  std::string config() const;  // every option's value as TOML, for --config

 private:
  struct Parser;
  void add_common();
  void add_steps();
  void follow_recipe();
  std::string explain_unknown(std::string name) const;

  Options& options_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace weft
