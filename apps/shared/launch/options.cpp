// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/launch/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <functional>
#include <limits>
#include <new>
#include <sstream>

#include "apps/shared/launch/config_text.h"
#include "apps/shared/launch/recipes.h"
#include "apps/shared/launch/usual_names.h"
#include "weft/collectives/run_ranks.h"
#include "weft/data/files/json_text.h"
#include "weft/engine/kernels/cpu_kinds.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  const auto complaint = [names](const std::string& given) {
    if (std::find(names.begin(), names.end(), given) != names.end()) return std::string();
    return "there is no '" + given + "' among " + joined(names) + what_was_meant(given, names);
  };
  return CLI::Validator(complaint, "");
}

template <class T> CLI::Validator within(T least, T most) {
  const auto complaint = [least, most](const std::string& given) {
    T value;
    const auto [stop, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (error != std::errc() || stop != given.data() + given.size()) return "'" + given + "' is not a number that fits";
    if (value < least) return given + " is too small, " + text(least) + " is the least";
    return value <= most ? "" : given + " is too large, " + text(most) + " is the most";
  };
  return CLI::Validator(complaint, "");
}

// Values as read_config reads them: no escapes, but two kinds of quotes.
std::string toml(bool value) { return value ? "true" : "false"; }
std::string toml(int64_t value) { return text(value); }
std::string toml(double value) { return exact_number(value); }
std::string toml(const std::string& value) {
  const char* quote = value.find('"') == std::string::npos ? "\"" : "'";
  return quote + value + quote;
}
std::string toml(const std::vector<int64_t>& values) {
  std::string all;
  for (const int64_t value : values) all += (all.empty() ? "" : ", ") + text(value);
  return "[" + all + "]";
}

// CLI11's own reader skips what it does not understand, and its memory grows with the square of the text.
class Toml : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::string text(max_config_bytes + 1, '\0');
    input.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(input.gcount()));
    std::vector<CLI::ConfigItem> items;
    for (ConfigValue& value : read_config(text)) items.push_back({{}, std::move(value.name), std::move(value.values)});
    return items;
  }
};

// Accepts text that config.toml can hold.
CLI::Validator writable() {
  const auto complaint = [](const std::string& given) {
    const std::string obstacle = obstacle_to_quotes(given);
    return obstacle.empty() ? "" : excerpt(given) + " cannot stand in a configuration; leave out " + obstacle;
  };
  return CLI::Validator(complaint, "");
}

// What needs the host in each step, or memory that moves.
std::string obstacle_to_graph(const Options& options) {
  const std::string why = "--graph lets a card repeat a step without the host, and ";
  if (options.clip > 0) return why + "--clip needs the norm of each step's gradients there; leave one of them out";
  if (adapts(options.rule.make())) return why + "--optimizer " + options.rule.name + " needs norms there; take another";
  if (options.training.stage == 3) return why + "--zero 3 gathers parameters anew in each; take --zero 0, 1 or 2";
  if (!options.trace.empty()) return why + "--trace takes the times of its ops there; leave one of them out";
  return "";
}

// What is wrong with a combination of options; empty if nothing.
std::string conflict_in(const Options& options) {
  if (options.training.same_bits && options.training.stage == 3)
    return "--same-bits needs whole gradients on every rank, and --zero 3 divides them; take --zero 0, 1 or 2";
  if (options.training.same_bits && options.fast_reductions)
    return "--same-bits and --fast-reductions exclude each other: with the latter, bits depend on the order of sums";
  if (options.training.average > 0 && options.training.stage == 3)
    return "--average needs whole weights on every rank, and --zero 3 divides them; take --zero 0, 1 or 2";
  return options.graph ? obstacle_to_graph(options) : "";
}

}  // namespace

struct CommandLine::Parser {
  CLI::App app;
  std::string recipe;
  std::vector<std::string> names = {"--help", "--version", "--config"};
  std::vector<std::pair<std::string, std::function<std::string()>>> lines;  // of the configuration, by option

  // `all` are the option's name, which a configuration has, and its other names.
  template <class T> CLI::Option* note(const std::string& all, CLI::Option* option, const T& value, const char* type) {
    const std::string name = all.substr(0, all.find(','));
    for (const std::string& other : option->get_lnames()) names.push_back("--" + other);
    lines.emplace_back(name, [name, &value] { return name.substr(2) + " = " + toml(value) + "\n"; });
    return option->type_name(type);
  }
};

Options::Options() {
  try {
    timeout = static_cast<double>(default_deadline().count()) / 1000;
  } catch (const Fault&) {
    timeout = 0;  // `parse` reports why
  }
}

Init Options::init(Device device) const {
  return {.key = {static_cast<uint64_t>(seed)},
          .dtype = dtype == "f32"   ? DType::f32
                   : dtype == "f64" ? DType::f64
                                    : DType::bf16,
          .device = device};
}

std::string Options::begins_at() const {
  if (fresh && resume != "unfinished" && resume != "none")
    throw WrongOption("--fresh begins anew, and --resume " + resume + " does not; leave one of them out");
  return fresh || (dry_run && resume == "unfinished") ? "none" : resume;
}

Device Options::chosen_device() const {
  const bool card = device != "cpu" && available(Device::cuda);
  if (device == "cuda" && !card) throw WrongOption("--device cuda: this machine has no working card; take cpu or auto");
  const Device chosen = card ? Device::cuda : Device::cpu;
  if (tf32 && chosen == Device::cpu)
    throw WrongOption("--tf32: it is for products on a card, but this run is on the CPU; leave it out");
  if (graph && chosen == Device::cpu)
    throw WrongOption("--graph: it is for steps on a card, but this run is on the CPU; leave it out");
  return chosen;
}

CommandLine::CommandLine(const std::string& program, const std::string& what_it_does, Options& options)
    : options_(options), parser_(std::make_unique<Parser>()) {
  if (options.out.empty()) options.out = "runs/" + program;
  CLI::App& app = parser_->app;
  app.name(program);
  app.description(what_it_does);
  app.get_formatter()->column_width(34);
  app.option_defaults()->always_capture_default();
  app.config_formatter(std::make_shared<Toml>());
  app.set_version_flag(
      "--version", [program] { return program + " of Weft " WEFT_VERSION ", kernels for " + chosen_cpu_kind().name; });
  app.set_config("--config", "", "options from a TOML file, such as an earlier run's config.toml")->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  add("--recipe", parser_->recipe,
      "options of a shipped recipe, unless others are given: " + joined(names_of_recipes()));
  add_common();
}

CommandLine::~CommandLine() = default;

std::string CommandLine::program() const { return parser_->app.get_name(); }

void CommandLine::add_common() {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  add("--ranks", options_.ranks,
      "number of ranks of each process, as threads; 0: one if mpiexec has started the process, else one per physical "
      "core, or one on a card",
      {0, 1024});
  add("--device", options_.device, "device that computes", {"auto", "cpu", "cuda"});
  add("--dtype", options_.dtype, "element type of the network", {"f32", "f64", "bf16"});
  add("--zero", options_.training.stage,
      "ZeRO stage: ranks divide 0 nothing, 1 the optimizer state, 2 also gradients, 3 also parameters", {0, 3});
  add("--accumulate", options_.training.accumulate,
      "micro-batches per step on each rank; if there are several, each has a tape, and a contrastive loss another",
      {1, 1 << 20});
  add("--data", options_.data,
      "pictures: a folder of PNG and JPEG files, with a folder for each class if they have any; a folder or a file of "
      "IDX, .npy, .npz, .safetensors or CIFAR's .bin (default: $WEFT_DATA, then Debian's Fashion-MNIST)");
  add("--size", options_.size,
      "height and width of pictures, in pixels, to which all are resized; 0: their own if all have the same and at "
      "most "
      "64, else 64",
      {0, 4096});
  add("--cache", options_.cache, "GiB of memory that the pictures may take", {1e-6, 1e6});
  add("--batch,--batch-size", options_.batch, "pictures per step, on all ranks together", {2, 60000});
  add_steps();
  add("--epochs", options_.epochs, "passes over the training data", {1, most});
  add("--steps", options_.steps, "number of steps; 0: as many as --epochs has", {0, most});
  add("--seed", options_.seed, "seed of the initial weights, the order of the data and all random draws", {0, most});
  add("--out", options_.out, "folder for checkpoints, metrics and the report");
  add("--resume", options_.resume,
      "checkpoint to go on from: unfinished (the latest in --out, if a run of the same options has not ended there), "
      "auto (the latest in --out, whatever the options), none, or a path: of a file, a run's folder, FOLDER/best");
  add("--fresh", options_.fresh, "begin anew, even if --out has an unfinished run, which is moved aside");
  add("--checkpoint-minutes", options_.checkpoint_minutes,
      "minutes between checkpoints, or more where saving one takes over 5 % of the time; 0: none by time", {0, 1e6});
  add("--checkpoint-every", options_.checkpoint_every, "steps between checkpoints; 0: none by steps", {0, most});
  add("--keep", options_.keep, "how many checkpoints stay, the last ones; the best stays, too", {1, most});
  add("--watch-every", options_.watch_every,
      "steps between looks at what is learnt; 0: a thirtieth of the run, at least 75 steps", {0, 1'000'000'000});
  add("--timeout", options_.timeout, "deadline: seconds that a rank waits for others before the job fails", {0.1, 1e6});
  add("--same-bits", options_.training.same_bits,
      "same weights, to the bit, on any number of ranks, for more work and traffic (with --zero 0 to 2); without it "
      "weights are the same on the same number of ranks");
  add("--fast-reductions", options_.fast_reductions,
      "sum over ranks in whatever order is fastest; two runs may then differ in rounding");
  add("--tf32", options_.tf32, "round the factors of f32 products on cards to 11 bits, for speed");
  add("--trace", options_.trace,
      "file for a trace of all ranks, which ui.perfetto.dev shows: steps, collectives, and who waits for whom; if it "
      "is "
      "a folder, each rank has a file in it, for HTA");
  add("--record-step", options_.record_step,
      "a step whose tapes, of all ranks, are kept in --out for weft view, and its ops in --trace; 0: none", {0, most});
  add("--dry-run", options_.dry_run, "make one step, print its shapes, memory and traffic, and end");
  add("--quiet", options_.quiet, "print the last line only");
  add("--json", options_.json, "print one JSON object per line");
}

void CommandLine::add_steps() {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  RuleChoice& rule = options_.rule;
  ScheduleChoice& schedule = options_.schedule;
  add("--rate,--lr,--learning-rate", options_.rate, "highest learning rate of the schedule", {0, 10});
  add("--optimizer", rule.name, "rule of the steps (optim/rules.h has the formulas)", names_of_rules());
  add("--weight-decay,--wd", rule.weight_decay, "weight decay of the optimizer", {0, 10});
  add("--momentum", rule.momentum, "momentum of sgd, lars and muon", {0, 0.9999});
  add("--beta1", rule.beta1, "decay of the mean of gradients, of adam, adamw and lamb", {0, 0.9999});
  add("--beta2", rule.beta2, "decay of the mean of their squares", {0, 0.999999});
  add("--average,--ema", options_.training.average,
      "decay of an average of the weights over the steps, less in the first ones; probes and exports use it; 0: none",
      {0, 0.999999});
  add("--clip,--clip-norm,--grad-clip", options_.clip, "largest norm of the gradients; larger ones are scaled; 0: any",
      {0, 1e9});
  add("--schedule,--lr-schedule", schedule.name, "course of the learning rate after its rise", names_of_schedules());
  add("--warmup,--warmup-steps", schedule.warmup, "steps in which the learning rate rises, at most half of all",
      {0, most});
  add("--last-rate,--min-lr", schedule.last_rate, "learning rate at the end, of linear and cosine", {0, 10});
  add("--factor", schedule.factor, "factor of the learning rate after each third of the steps, of stairs", {0, 1});
}

void CommandLine::add(const std::string& name, bool& value, const std::string& help) {
  parser_->note(name, parser_->app.add_flag(name, value, help), value, "");
}
void CommandLine::add(const std::string& name, int64_t& value, const std::string& help, Range<int64_t> range) {
  parser_->note(name, parser_->app.add_option(name, value, help), value, "N")->check(within(range.least, range.most));
}
void CommandLine::add(const std::string& name, double& value, const std::string& help, Range<double> range) {
  parser_->note(name, parser_->app.add_option(name, value, help), value, "X")->check(within(range.least, range.most));
}
void CommandLine::add(const std::string& name, std::vector<int64_t>& values, const std::string& help,
                      Range<int64_t> range) {
  parser_->note(name, parser_->app.add_option(name, values, help), values, "N")->check(within(range.least, range.most));
}
void CommandLine::add(const std::string& name, std::string& value, const std::string& help,
                      const std::vector<std::string>& choices) {
  CLI::Option* option = parser_->app.add_option(name, value, help + (choices.empty() ? "" : ": " + joined(choices)));
  parser_->note(name, option, value, choices.empty() ? "TEXT" : "NAME");
  option->check(choices.empty() ? writable() : one_of(choices));
}

void CommandLine::keep_only(const std::set<std::string>& names) {
  const auto others = [&](const auto& line) { return names.count(line.first) == 0; };
  for (const auto& line : parser_->lines)
    if (others(line)) {
      parser_->app.remove_option(parser_->app.get_option(line.first));
      std::erase(parser_->names, line.first);
    }
  std::erase_if(parser_->lines, others);
}

std::string CommandLine::explain_unknown(std::string name) const {
  name.resize(std::min(name.size(), name.find('=')));
  if (name.rfind("--", 0) != 0) return "'" + name + "' is not an option";
  return "there is no option " + name + what_was_meant(name, parser_->names);
}

// What the command line and --config have not set.
void CommandLine::follow_recipe() {
  if (parser_->recipe.empty()) return;
  try {
    std::istringstream text(recipe_named(parser_->recipe));
    parser_->app.parse_from_stream(text);
  } catch (const CLI::ConfigError& error) {
    const std::string said = error.what(), name = said.substr(said.rfind(' ') + 1);
    throw WrongOption("recipe " + parser_->recipe + " is for another program: " + explain_unknown("--" + name));
  }
}

std::optional<CommandLine::Ending> CommandLine::parse(int argc, const char* const* argv) {
  CLI::App& app = parser_->app;
  const auto mistake = [](int code, const std::string& text) {
    return Ending{code, "error: " + text + " (see --help)\n"};
  };
  try {
    app.parse(argc, argv);
    try {
      follow_recipe();
    } catch (const WrongOption& error) {
      return mistake(exit_codes::usage, "--recipe: " + std::string(error.what()));
    }
    if (const std::string conflict = conflict_in(options_); !conflict.empty())
      return mistake(exit_codes::usage, conflict);
    if (options_.timeout == 0) default_deadline();
    chosen_cpu_kind();
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    return Ending{0, wrapped(app.help(), 80)};
  } catch (const CLI::CallForVersion& version) {
    return Ending{0, version.what() + std::string("\n")};
  } catch (const CLI::ExtrasError&) {
    return mistake(exit_codes::usage, explain_unknown(app.remaining().front()));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string said = error.what(), name = said.substr(0, said.find(':'));
    return mistake(exit_codes::usage, name + (app.count(name) > 1 ? " is given more than once" : " lacks its value"));
  } catch (const CLI::FileError& error) {
    return mistake(exit_codes::missing_input, std::string("--config: ") + error.what());
  } catch (const CLI::ConfigError& error) {
    const std::string said = error.what(), name = said.substr(said.rfind(' ') + 1);
    return mistake(exit_codes::usage, "--config: " + explain_unknown("--" + name));
  } catch (const std::bad_alloc&) {
    return Ending{exit_codes::out_of_memory, "error: out of memory\n"};
  } catch (const WrongOption& error) {
    return mistake(exit_codes::usage, "--config: " + app.get_config_ptr()->as<std::string>() + ": " + error.what());
  } catch (const std::exception& error) {
    return mistake(exit_codes::usage, error.what());
  }
}

std::string CommandLine::config() const {
  std::string all;
  for (const auto& [name, line] : parser_->lines) all += line();
  return all;
}

}  // namespace weft
