// SPDX-License-Identifier: Apache-2.0
// weft: tells any framework whether its distributed gradient is right, and if not, which mistake it has. Plans
// and starts trainings, too.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/weft/dump/roles.h"
#include "tools/weft/dump/tensor_files.h"
#include "tools/weft/grade/commands.h"
#include "tools/weft/launch/commands.h"
#include "tools/weft/plan/commands.h"
#include "tools/weft/printable.h"
#include "tools/weft/record/last_job.h"
#include "tools/weft/record/record.h"
#include "tools/weft/run_case.h"
#include "tools/weft/runs/commands.h"
#include "tools/weft/verdict/certificate.h"
#include "tools/weft/verdict/compare.h"
#include "tools/weft/verdict/print.h"
#include "tools/weft/view/commands.h"
#include "weft/data/files/descriptor.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"
#include "weft/engine/tensor/error.h"

namespace {

using namespace weft::verify;

struct Arguments {
  std::string subject;             // a folder, or a loss
  std::vector<std::string> files;  // --dump
  std::vector<std::string> options;
  std::string reducer = "mean";
  bool json = false;

  Dump dump() const {
    if (files.empty()) return read_dump(std::filesystem::path(subject));
    NamedDump named{subject, {files.begin(), files.end()}, reducer == "sum" ? Reducer::sum : Reducer::mean, {}};
    for (const std::string& each : options) {
      const size_t equals = each.find('=');
      weft::require(equals != std::string::npos, "--option is NAME=NUMBER, not '", each, "'");
      const std::string number = each.substr(equals + 1);
      double value = 0;
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
      weft::require(error == std::errc() && end == number.data() + number.size() && std::isfinite(value), "--option ",
                    each, ": '", number, "' is not a number");
      named.options[each.substr(0, equals)] = value;
    }
    return read_dump(named);
  }
};

int exit_code(Outcome outcome) {
  switch (outcome) {
    case Outcome::correct: return 0;
    case Outcome::wrong: return 1;
    default: return 2;
  }
}

int verify(const Arguments& arguments) {
  const Dump dump = arguments.dump();
  const std::vector<Verdict> all = verdicts(dump);
  std::cout << (arguments.json ? json_of(all, dump) : text_of(all, dump));
  return exit_code(overall(all));
}

int power(const Arguments& arguments) {
  const Dump dump = arguments.dump();
  const std::vector<Verdict> all = verdicts(dump);
  std::cout << (arguments.json ? json_of(all, dump) : power_of(all, dump));
  return all.empty() ? 2 : 0;
}

struct Certified {
  std::string folder, output;
};

void write(const std::filesystem::path& path, const std::string& text) {
  weft::DurableFile file(path);
  file.write(0, text.data(), text.size());
  file.commit();
}

int certify(const Certified& arguments) {
  const std::filesystem::path output = arguments.output;
  weft::require(output.extension() == ".json", "--output ", arguments.output, ": the name ends in .json");
  const Certificate certificate = certificate_of(arguments.folder);
  write(output, certificate.json);
  write(std::filesystem::path(output).replace_extension(".html"), certificate.page);
  std::cout << "verdict: " << name(certificate.outcome) << ", in " << output.string() << " and beside it as .html\n";
  return exit_code(certificate.outcome);
}

void add_certify(CLI::App& app, Certified& arguments, int& code) {
  CLI::App& command =
      *app.add_subcommand("certify", "writes a verdict, with the hashes of its dump, to show to others");
  command.add_option("FOLDER", arguments.folder, "a folder with manifest.json")->required();
  command.add_option("-o,--output", arguments.output, "a .json file; a page for people is written beside it")
      ->required();
  command.callback([&] { code = certify(arguments); });
}

struct Compared {
  std::string ours, theirs;
  double limit = 32;
  bool json = false;
};

int compare_files(const Compared& arguments) {
  const Difference difference = compare(arguments.ours, arguments.theirs, arguments.limit);
  std::cout << (arguments.json ? json_of(difference) : text_of(difference));
  return exit_code(difference.outcome());
}

void add_compare(CLI::App& app, Compared& arguments, int& code) {
  CLI::App& command = *app.add_subcommand("compare", "finds where two files or folders of tensors begin to differ");
  command.add_option("OURS", arguments.ours, "a .safetensors, .npy or .npz file, or a folder of these")->required();
  command.add_option("THEIRS", arguments.theirs, "the same of another implementation")->required();
  command.add_option("--limit", arguments.limit, "multiples of rounding that still count as equal")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_flag("--json", arguments.json, "for programs");
  command.callback([&] { code = compare_files(arguments); });
}

int list_tensors(const std::string& path) {
  for (const auto& [name, stored] : tensors_of(path)) {
    const weft::Tensor tensor = stored.read();
    std::cout << name << "  " << (stored.half ? "f16" : weft::text(tensor.dtype())) << " " << weft::text(tensor.shape())
              << "\n";
  }
  return 0;
}

int list_cases(bool json) {
  if (json) {
    nlohmann::ordered_json all = {{"losses", nlohmann::json::array()}, {"cases", weft::case_names()}};
    for (const Loss& loss : losses())
      all["losses"].push_back({{"name", loss.name},
                               {"formula", loss.formula},
                               {"features", loss.towers},
                               {"scalars", loss.scalars},
                               {"options", loss.options}});
    std::cout << all.dump(2) << "\n";
    return 0;
  }
  for (const Loss& loss : losses()) {
    std::cout << loss.name << "\n  " << loss.formula << "\n  features:";
    for (const std::string& tower : loss.towers)
      std::cout << ' ' << tower << (is_one_of(loss.targets, tower) ? " (may have no gradient)" : "");
    for (const std::string& scalar : loss.scalars) std::cout << "  scalar: " << scalar;
    for (const auto& [name, value] : loss.options) std::cout << "  option: " << name << "=" << value;
    std::cout << "\n";
  }
  std::cout << "\ncases of `weft run`:\n";
  for (const std::string& name : weft::case_names()) std::cout << "  " << name << "\n";
  return 0;
}

int run_and_say(const weft::CaseRun& run) {
  std::cout << weft::run_case(run) << " on " << run.ranks << " ranks, in " << run.folder.string() << "\n";
  return 0;
}

void add_run(CLI::App& app, weft::CaseRun& run, int& code) {
  CLI::App& command =
      *app.add_subcommand("run", "runs a case of Weft on ranks as threads, and dumps it for weft verify");
  command.add_option("CASE", run.name, "as `weft cases` lists them")->required();
  command.add_option("--ranks", run.ranks, "threads")->check(CLI::Range(1, 64))->capture_default_str();
  command.add_option("--seed", run.seed, "of the inputs")->capture_default_str();
  const auto choose = [&run](const std::string& name) {
    run.dtype = name == "f32" ? weft::DType::f32 : weft::DType::f64;
  };
  command.add_option_function<std::string>("--dtype", choose, "of inputs, values and gradients")
      ->check(CLI::IsMember({"f64", "f32"}))
      ->default_str("f64");
  command.add_option("-o,--output", run.folder, "a folder, for a file of each rank and manifest.json")->required();
  command.callback([&] { code = run_and_say(run); });
}

struct Recorded {
  std::vector<std::filesystem::path> places;
  int calls = 3;
};
void add_record(CLI::App& app, int argc, char** argv, Recorded& recorded, int& code) {
  CLI::App& command = *app.add_subcommand("record", "after a fault, tells the last calls of all ranks, and who waited");
  command.add_option("PLACE", recorded.places,
                     "files that reports have named, one of each node, or folders of them (default: of the last job "
                     "that failed here; under mpiexec, on all nodes)");
  command.add_option("--calls", recorded.calls, "of each rank")->check(CLI::Range(1, 64))->capture_default_str();
  command.callback([&, argc, argv] {
    if (recorded.places.empty()) {
      code = weft::print_last_job(argc, argv, recorded.calls);
    } else {
      std::cout << weft::printed_record(weft::node_records(recorded.places), recorded.calls);
      code = 0;
    }
  });
}

int list_signatures() {
  for (const Signature& each : signatures()) {
    std::cout << each.id << "  " << each.name << "\n      " << each.effect << "\n";
    if (!each.repair.empty()) std::cout << "      repair: " << each.repair << "\n";
  }
  return 0;
}

void add_dump(CLI::App& command, Arguments& arguments) {
  command
      .add_option("FOLDER|LOSS", arguments.subject, "a folder with manifest.json, or the name of a loss with --dump")
      ->required();
  command.add_option("--dump", arguments.files, "a safetensors file of each rank, in rank order");
  command.add_option("--option", arguments.options, "of the loss: NAME=NUMBER");
  command.add_option("--reducer", arguments.reducer, "what makes one gradient of those of all ranks")
      ->check(CLI::IsMember({"mean", "sum"}));
  command.add_flag("--json", arguments.json, "for programs");
}

int run(int argc, char** argv) {
  CLI::App app("Tells any framework whether its distributed gradient is right, and if not, which mistake it has.",
               "weft");
  app.require_subcommand(1);
  Arguments arguments;
  int code = 0;
  CLI::App& of_verify =
      *app.add_subcommand("verify", "compares a dump of all ranks with one process that has the whole batch");
  add_dump(of_verify, arguments);
  of_verify.callback([&] { code = verify(arguments); });
  CLI::App& of_power = *app.add_subcommand("power", "says which mistakes a dump could not show");
  add_dump(of_power, arguments);
  of_power.callback([&] { code = power(arguments); });
  Certified certified;
  add_certify(app, certified, code);
  Compared compared;
  add_compare(app, compared, code);
  std::string inspected;
  CLI::App& info = *app.add_subcommand("info", "lists the tensors of a file or folder, and reads all of them");
  info.add_option("PATH", inspected, "a .safetensors, .npy or .npz file, or a folder of these")->required();
  info.callback([&] { code = list_tensors(inspected); });
  weft::CaseRun case_run;
  add_run(app, case_run, code);
  bool json = false;
  CLI::App& cases = *app.add_subcommand("cases", "the losses whose truth is known, and what weft run can run");
  cases.add_flag("--json", json, "for programs");
  cases.callback([&] { code = list_cases(json); });
  app.add_subcommand("signatures", "the mistakes that have a name")->callback([&] { code = list_signatures(); });
  Recorded recorded;
  add_record(app, argc, argv, recorded, code);
  weft::plan::add_plan(app, code);
  weft::plan::add_schedule(app, code);
  weft::plan::add_link(app, argc, argv, code);
  weft::launch::add_launch(app, code);
  weft::runs::add_runs(app, code);
  weft::view::add_view(app, code);
  weft::grader::add_grade(app, code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  return code;
}

}  // namespace

// 0: correct, 1: wrong, 2: cannot tell; 64 and above: there is no verdict.
int main(int argc, char** argv) {
  weft::guard_standard_streams();
  const weft::Printable output(std::cout), errors(std::cerr);
  try {
    const int code = run(argc, argv);
    if (std::cout.flush()) return code;
    std::cerr << "weft: the standard output cannot be written\n";
    return 74;
  } catch (const weft::MissingInput& error) {
    std::cerr << "weft: " << error.what() << "\n";
    return 66;
  } catch (const weft::OutputFailure& error) {
    std::cerr << "weft: " << error.what() << "\n";
    return 74;
  } catch (const std::exception& error) {
    std::cerr << "weft: " << error.what() << "\n";
    return 65;
  }
}
