// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/view/commands.h"

#include <iostream>
#include <memory>

#include "apps/shared/report/tape_file.h"
#include "tools/weft/view/page.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"  // MissingInput
#include "weft/engine/text/file_text.h"

namespace weft::view {
namespace {

struct Arguments {
  std::filesystem::path run, output;
};

int write_page(const Arguments& arguments) {
  constexpr size_t most = size_t{256} << 20;
  const bool is_file = arguments.run.extension() == ".json";
  const std::filesystem::path recorded = is_file ? arguments.run : arguments.run / tape_file;
  if (!std::filesystem::exists(recorded))
    throw MissingInput(recorded.string() + " does not exist; a training writes it with --record-step N");
  const std::filesystem::path output =
      arguments.output.empty() ? recorded.parent_path() / "tapes.html" : arguments.output;
  const std::string page = page_of(file_text(recorded, most), recorded.string());
  DurableFile file(output);
  file.write(0, page.data(), page.size());
  file.commit();
  std::cout << output.string() << "\n";
  return 0;
}

}  // namespace

void add_view(CLI::App& app, int& code) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("view", "makes a page of the tapes of all ranks in one step of a training");
  command
      .add_option("RUN", arguments->run, "a run that was made with --record-step, as named by --out, or its tapes.json")
      ->required();
  command.add_option("-o,--output", arguments->output, "the page (default: tapes.html beside tapes.json)");
  command.callback([arguments, &code] { code = write_page(*arguments); });
}

}  // namespace weft::view
