// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/runs/commands.h"

#include <iostream>
#include <memory>

#include "tools/weft/runs/print.h"
#include "weft/collectives/fault.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"  // MissingInput

namespace weft::runs {
namespace {

struct Arguments {
  std::vector<std::string> folders;
  std::string report;
  bool json = false;
};

void write_page(const std::vector<RunSummary>& runs, const std::string& path) {
  if (runs.size() < 2 || runs.size() > most_on_a_page)
    throw CLI::ValidationError("--report", "it compares two to " + std::to_string(most_on_a_page) + " runs, not " +
                                               std::to_string(runs.size()));
  const std::string page = page_of(runs);
  DurableFile file(path);
  file.write(0, page.data(), page.size());
  file.commit();
}

// A folder without runs is told, and the others are listed.
int list(const Arguments& arguments) {
  int code = 0;
  std::vector<RunSummary> all;
  for (const std::string& folder : arguments.folders) try {
      const std::vector<RunSummary> runs = runs_in(folder);
      all.insert(all.end(), runs.begin(), runs.end());
    } catch (const MissingInput& error) {
      std::cerr << "weft: " << error.what() << "\n";
      code = exit_codes::missing_input;
    }
  if (all.empty()) return code;
  if (!arguments.report.empty()) write_page(all, arguments.report);
  std::cout << (arguments.json ? json_of(all) : text_of(all));
  if (!arguments.report.empty() && !arguments.json) std::cout << "report: " << arguments.report << "\n";
  return code;
}

}  // namespace

void add_runs(CLI::App& app, int& code) {
  const auto arguments = std::make_shared<Arguments>();
  arguments->folders = {"runs"};
  CLI::App& command = *app.add_subcommand("runs", "lists trainings and what they have come to, and compares them");
  command.add_option("FOLDER", arguments->folders, "runs, as named by --out, or folders of them")
      ->capture_default_str();
  command.add_option("--report", arguments->report, "an HTML file for two to five runs side by side");
  command.add_flag("--json", arguments->json, "for programs");
  command.callback([arguments, &code] { code = list(*arguments); });
}

}  // namespace weft::runs
