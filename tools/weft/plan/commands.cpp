// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/commands.h"

#include <iostream>
#include <memory>

#include "tools/weft/plan/measured_link.h"
#include "tools/weft/plan/plan.h"
#include "tools/weft/plan/printed_schedule.h"
#include "weft/collectives/transports/factory.h"
#include "weft/collectives/transports/session.h"
#include "weft/engine/text/units.h"

namespace weft::plan {
namespace {

constexpr int64_t most_ranks = int64_t{1} << 20;

struct Arguments {
  std::vector<std::string> runs;
  std::vector<int64_t> ranks;
  NodeLink link;
  Plan::Options options;
  bool json = false;
};

int plan_and_print(const Arguments& arguments) {
  std::vector<RecordedRun> runs;
  for (const std::string& run : arguments.runs) runs.push_back(read_run(run));
  const Plan plan(runs, arguments.link, arguments.options);
  std::vector<PlannedStep> steps;
  for (const int64_t ranks : arguments.ranks) steps.push_back(plan.at(ranks));
  std::cout << (arguments.json ? json_of(steps) : text_of(steps));
  return 0;
}

// An option whose value has a unit.
CLI::Option* add_measure(CLI::App& command, const std::string& name, double (*read)(const std::string&),
                         std::function<void(double)> set, const std::string& help) {
  const auto parse = [name, read, set = std::move(set)](const std::string& text) {
    try {
      set(read(text));
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  return command.add_option_function<std::string>(name, parse, help);
}

// Returns those that a plan cannot do without.
std::vector<CLI::Option*> add_link_options(CLI::App& command, Link& link) {
  const auto set_bandwidth = [&link](double value) {
    if (value <= 0) throw CLI::ValidationError("--bandwidth", "it must be more than 0");
    link.bandwidth = value;
  };
  add_measure(
      command, "--overhead", parsed_seconds, [&link](double value) { link.overhead = value; },
      "what a message takes of a rank's time (default: 1us)");
  return {add_measure(
              command, "--latency", parsed_seconds, [&link](double value) { link.latency = value; },
              "of a message between nodes, as 50us; `weft link` measures it"),
          add_measure(command, "--bandwidth", parsed_bytes_per_second, set_bandwidth,
                      "of a node's link, in each direction, as 25Gbit; `weft link` measures it")};
}

}  // namespace

void add_plan(CLI::App& app, int& code) {
  const auto arguments = std::make_shared<Arguments>();
  for (int64_t ranks = 2; ranks <= 16384; ranks *= 2) arguments->ranks.push_back(ranks);
  NodeLink& link = arguments->link;
  CLI::App& command = *app.add_subcommand("plan", "predicts the time of a training step on many nodes");
  command
      .add_option("RUN", arguments->runs,
                  "folders of runs on one node: of one, or of several on different numbers of ranks")
      ->required();
  for (CLI::Option* const option : add_link_options(command, link)) option->required();
  command.add_option("--ranks-per-node", link.ranks_per_node, "which share the node's link")
      ->check(CLI::Range(int64_t{1}, most_ranks))
      ->capture_default_str();
  command.add_option("--ranks", arguments->ranks, "for which numbers of ranks (default: 2, 4, 8 to 16384)")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, most_ranks));
  add_measure(
      command, "--computing", parsed_seconds, [arguments](double value) { arguments->options.computing = value; },
      "of a step, as 80ms, in place of what the runs took");
  command.add_flag("--over-link", arguments->options.over_link,
                   "the runs were recorded over this link, not on one node: what it took is not computing");
  command.add_flag("--json", arguments->json, "for programs");
  command.callback([arguments, &code] { code = plan_and_print(*arguments); });
}

void add_schedule(CLI::App& app, int& code) {
  struct Wanted {
    std::string verb;
    uint64_t bytes = 0;
    int ranks = 4;
    NodeLink link;
  };
  const auto wanted = std::make_shared<Wanted>();
  CLI::App& command = *app.add_subcommand("schedule", "prints who sends what to whom in a collective between nodes");
  command.add_option("COLLECTIVE", wanted->verb, "such as all_reduce")->required();
  command.add_option("--bytes", wanted->bytes, "of a rank's tensor, as 4000 or 4MiB")
      ->check(
          [](const std::string& text) { return text[0] == '-' ? "there are no tensors of " + text + " bytes" : ""; })
      ->transform(CLI::AsSizeValue(false))
      ->required();
  command.add_option("--ranks", wanted->ranks, "in all")->check(CLI::Range(2, 64))->capture_default_str();
  command.add_option("--ranks-per-node", wanted->link.ranks_per_node, "which share memory")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  add_link_options(command, wanted->link);
  command.callback([wanted, &code] {
    std::cout << printed_schedule(wanted->verb, static_cast<int64_t>(wanted->bytes), wanted->ranks, wanted->link);
    code = 0;
  });
}

void add_link(CLI::App& app, int argc, char** argv, int& code) {
  CLI::App& command = *app.add_subcommand("link", "under mpiexec, measures the link between nodes, for weft plan");
  const auto bytes = std::make_shared<int64_t>(int64_t{4} << 20);
  command.add_option("--bytes", *bytes, "of the sums that measure the bandwidth: as many as the gradients have")
      ->check(CLI::Range(int64_t{1} << 16, int64_t{1} << 32))
      ->capture_default_str();
  command.callback([argc, argv, bytes, &code] {
    code = run_session(argc, argv, [bytes](Session& session) {
      if (session.size() < 2) {
        std::cerr << "weft: link: start it on two nodes at least, by mpiexec\n";
        return 65;
      }
      Communicator comm(connect(session));
      const Link link = measured_link(comm, *bytes);
      if (session.rank() == 0)
        std::cout << comm.description() << ": --latency " << in_seconds(link.latency) << " --bandwidth "
                  << in_bits_per_second(link.bandwidth) << std::endl;
      return 0;
    });
  });
}

}  // namespace weft::plan
