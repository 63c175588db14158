// SPDX-License-Identifier: Apache-2.0
// Command lines and the errors of wrong ones.
#include <cmath>
#include <sstream>

#include "apps/shared/choices/added_options.h"
#include "apps/shared/launch/options.h"
#include "apps/shared/launch/recipes.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "weft/collectives/transport.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/text/suggestion.h"

using namespace weft;
using Catch::Contains;

namespace {

// A program with every kind of option.
struct Program {
  Options options;
  std::vector<int64_t> hidden = {128};
  double temperature = 0.1;
  std::string loss = "nt_xent";
  std::unique_ptr<CommandLine> line;

  Program() {
    options.epochs = 8;
    line = std::make_unique<CommandLine>("train", "Trains.", options);
    line->add("--hidden", hidden, "widths", {1, 4096});
    line->add("--temperature", temperature, "of the loss", {1e-9, 1});
    line->add("--loss", loss, "which", {"nt_xent", "clip", "siglip"});
  }
  std::optional<CommandLine::Ending> parse(std::vector<const char*> words) {
    words.insert(words.begin(), "train");
    return line->parse(static_cast<int>(words.size()), words.data());
  }
};

// The options of train_contrastive.
struct WithEncoder {
  Options options;
  EncoderChoice encoder;
  MethodChoice method;
  Augmentation augmentation;
  std::unique_ptr<CommandLine> line;

  WithEncoder() {
    options.epochs = 3;
    options.batch = 250;
    options.rate = 1e-2;
    line = std::make_unique<CommandLine>("train", "Trains.", options);
    add_encoder(*line, encoder);
    add_method(*line, method);
    add_augmentation(*line, augmentation);
  }
};

CommandLine::Ending ending(const std::vector<const char*>& words) {
  return Program().parse(words).value_or(CommandLine::Ending{-1, "it goes on"});
}

}  // namespace

TEST_CASE("options keep their defaults until they are set") {
  Program program;
  CHECK_FALSE(program.parse({}));
  CHECK((program.options.epochs == 8 && program.options.out == "runs/train" && program.options.resume == "unfinished"));
  CHECK(program.options.init(Device::cpu).dtype == DType::f32);
  Program other;
  CHECK_FALSE(other.parse({"--epochs", "3", "--dtype=bf16", "--hidden", "16", "8", "--temperature", "1e-3", "--json"}));
  CHECK((other.options.epochs == 3 && other.options.json && other.temperature == 1e-3));
  CHECK(other.options.init(Device::cpu).dtype == DType::bf16);
  CHECK(other.hidden == std::vector<int64_t>{16, 8});
}

TEST_CASE("a written configuration reads back as the same configuration") {
  const ScratchFolder folder;
  Program program;
  CHECK_FALSE(program.parse({"--hidden", "7", "5", "--temperature", "0.012345678901234567", "--quiet", "--seed",
                             "9223372036854775807", "--out", "a folder/with \"quotes\", #1 = it", "--loss", "clip",
                             "--dtype", "f64"}));
  put(folder / "config.toml", program.line->config());
  Program again;
  const std::string file = (folder / "config.toml").string();
  CHECK_FALSE(again.parse({"--config", file.c_str()}));
  CHECK(again.line->config() == program.line->config());
  CHECK((again.temperature == program.temperature && again.options.out == program.options.out &&
         again.hidden == program.hidden));
  Program changed;
  CHECK_FALSE(changed.parse({"--epochs", "5", "--config", file.c_str()}));
  CHECK((changed.options.epochs == 5 && changed.options.quiet));
}

TEST_CASE("a configuration may contain comments, and names may contain the comment sign") {
  const ScratchFolder folder;
  put(folder / "config.toml", "# of today\nepochs = 5  # few\nout = \"run #1\"  # 'it'\nresume = 'a \"#2'\n");
  Program program;
  CHECK_FALSE(program.parse({"--config", (folder / "config.toml").c_str()}));
  CHECK(program.options.epochs == 5);
  CHECK(program.options.out == "run #1");
  CHECK(program.options.resume == "a \"#2");
}

TEST_CASE("values that config.toml cannot hold are refused") {
  CHECK_THAT(ending({"--out", "a\"b'c"}).text, Contains("--out: \"a\\\"b'c\" cannot stand in a configuration"));
  CHECK_THAT(ending({"--out", "a\nb"}).text, Contains("leave out the ends of lines"));
  CHECK_THAT(ending({"--out", "a\x08"}).text, Contains("leave out the control characters"));
}

TEST_CASE("an unknown option gets a suggestion of the closest one") {
  CHECK(ending({"--epoch", "3"}) ==
        CommandLine::Ending{exit_codes::usage,
                            "error: there is no option --epoch; did you mean --epochs? (see --help)\n"});
  CHECK_THAT(ending({"--sede=3"}).text, Contains("--sede; did you mean --seed?"));
  CHECK_THAT(ending({"--checkpoint_every", "3"}).text, Contains("did you mean --checkpoint-every?"));
  CHECK_THAT(ending({"--loss", "nt_xnet"}).text,
             Contains("'nt_xnet' among nt_xent, clip, siglip; did you mean nt_xent?"));
  CHECK_THAT(ending({"--frobnicate"}).text, Contains("no option --frobnicate (see"));
  // Another word, though not many letters differ.
  for (const char* word : {"--host", "--name", "--delta", "--verbose", "--report", "--eps", "--half", "--root"})
    CHECK_THAT(ending({word}).text, Contains(std::string("no option ") + word + " (see"));
  CHECK_THAT(ending({"train.toml"}).text, Contains("'train.toml' is not an option"));
}

TEST_CASE("options have the names that other programs use, and a configuration may have these") {
  Program program;
  CHECK_FALSE(program.parse({"--lr", "0.5", "--batch-size", "77", "--wd=0.25", "--grad-clip", "3"}));
  const Options& o = program.options;
  CHECK((o.rate == 0.5 && o.batch == 77 && o.rule.weight_decay == 0.25 && o.largest_norm() == 3));
  CHECK_THAT(program.line->config(), Contains("\nrate = 0.5\n") && Contains("\nbatch = 77\n") && !Contains("lr ="));
  const ScratchFolder folder;
  put(folder / "config.toml", "lr = 0.125\n");
  Program other;
  CHECK_FALSE(other.parse({"--config", (folder / "config.toml").c_str()}));
  CHECK(other.options.rate == 0.125);
  CHECK(std::isinf(other.options.largest_norm()));
  CHECK_THAT(ending({"--lr", "1", "--rate", "2"}).text, Contains("--rate is given more than once"));
  CHECK_THAT(ending({"--lr", "11"}).text, Contains("--rate: 11 is too large"));
}

TEST_CASE("what other programs call an option, or its beginning, leads to it") {
  WithEncoder encoders;
  CHECK_THAT(encoders.line->parse(2, std::vector<const char*>{"train", "--backbone"}.data())->text,
             Contains("no option --backbone; did you mean --encoder?"));
  CHECK_THAT(ending({"--gpu"}).text, Contains("no option --gpu; did you mean --device cuda?"));
  CHECK_THAT(ending({"--device", "gpu"}).text, Contains("did you mean cuda?"));
  CHECK_THAT(ending({"--dtype", "float32"}).text, Contains("did you mean f32?"));
  CHECK_THAT(ending({"--temp", "1"}).text, Contains("--temp; did you mean --temperature?"));
  CHECK_THAT(ending({"--iterations", "9"}).text, Contains("--iterations; did you mean --steps?"));
  CHECK_THAT(ending({"--save-every", "9"}).text, Contains("--save-every; did you mean --checkpoint-every?"));
  CHECK_THAT(ending({"--check", "1"}).text, Contains("no option --check (see"));        // two begin so
  CHECK_THAT(ending({"--backbone", "x"}).text, Contains("no option --backbone (see"));  // this program has no --encoder
}

TEST_CASE("a recipe sets what neither the command line nor a configuration does") {
  const ScratchFolder folder;
  put(folder / "config.toml", "batch = 99\n");
  for (const bool configured : {false, true}) {
    WithEncoder program;
    std::vector<const char*> words = {"train", "--recipe", "fashion", "--lr", "0.25"};
    const std::string file = (folder / "config.toml").string();
    if (configured) words.insert(words.end(), {"--config", file.c_str()});
    CHECK_FALSE(program.line->parse(static_cast<int>(words.size()), words.data()));
    CHECK(program.options.rate == 0.25);
    CHECK(program.encoder.network == "stages");
    CHECK(program.options.batch == (configured ? 99 : 250));
  }
  CHECK_THAT(ending({"--recipe", "fashon"}).text,
             Contains("--recipe: there is no recipe \"fashon\" among cifar10, fashion, fashion-conv, "
                      "fashion-quick; did you mean fashion?"));
  CHECK_THAT(ending({"--recipe", "fashion"}).text,
             Contains("--recipe: recipe fashion is for another program: there is no option --"));
  CHECK(ending({"--recipe", "fashon"}).exit_code == exit_codes::usage);
}

TEST_CASE("every recipe is one that train_contrastive can follow, and the first network's has its defaults") {
  for (const std::string& name : names_of_recipes()) {
    WithEncoder program;
    const std::vector<const char*> words = {"train", "--recipe", name.c_str()};
    CHECK_FALSE(program.line->parse(3, words.data()));
  }
  WithEncoder plain, followed;
  CHECK_FALSE(plain.line->parse(1, std::vector<const char*>{"train"}.data()));
  CHECK_FALSE(followed.line->parse(3, std::vector<const char*>{"train", "--recipe", "fashion-conv"}.data()));
  const auto without_first_line = [](const std::string& text) { return text.substr(text.find('\n')); };
  CHECK(without_first_line(plain.line->config()) == without_first_line(followed.line->config()));
}

TEST_CASE("option values out of range are refused, with the limit") {
  CHECK_THAT(ending({"--epochs", "0"}).text, Contains("--epochs: 0 is too small, 1 is the least"));
  CHECK_THAT(ending({"--zero", "4"}).text, Contains("--zero: 4 is too large, 3 is the most"));
  CHECK_THAT(ending({"--temperature", "2"}).text, Contains("--temperature: 2 is too large, 1 is the most"));
  CHECK_THAT(ending({"--rate", "nan"}).text, Contains("--rate: nan"));
  CHECK_THAT(ending({"--hidden", "16", "0"}).text, Contains("--hidden: 0 is too small"));
  CHECK_THAT(ending({"--seed", "1.5"}).text, Contains("--seed: '1.5' is not a number that fits"));
  CHECK_THAT(ending({"--seed", "9223372036854775808"}).text, Contains("is not a number that fits"));
  CHECK_THAT(ending({"--steps"}).text, Contains("--steps"));
  for (const char* word : {"--epochs=0", "--rate=x", "--steps"}) CHECK(ending({word}).exit_code == exit_codes::usage);
}

TEST_CASE("incompatible options are refused, from the command line and from a configuration") {
  const CommandLine::Ending divided = ending({"--same-bits", "--zero", "3"});
  CHECK(divided.exit_code == exit_codes::usage);
  CHECK_THAT(divided.text, Contains("--same-bits needs whole gradients on every rank, and --zero 3 divides them"));
  const ScratchFolder folder;
  const std::string file = (folder / "config.toml").string();
  put(file, "same-bits = true\n");
  const CommandLine::Ending in_any_order = ending({"--config", file.c_str(), "--fast-reductions"});
  CHECK(in_any_order.exit_code == exit_codes::usage);
  CHECK_THAT(in_any_order.text, Contains("--same-bits and --fast-reductions exclude each other"));
  CHECK_FALSE(Program().parse({"--same-bits", "--zero", "2"}));
  CHECK_FALSE(Program().parse({"--fast-reductions", "--zero", "3"}));
}

TEST_CASE("a bad configuration is refused like a bad command line") {
  const ScratchFolder folder;
  const std::string file = (folder / "config.toml").string();
  const auto said = [&](const char* config) {
    put(file, config);
    return ending({"--config", file.c_str()});
  };
  CHECK_THAT(said("epoch = 3\n").text, Contains("--config: there is no option --epoch; did you mean --epochs?"));
  CHECK_THAT(said("epochs = 0\n").text, Contains("--epochs: 0 is too small"));
  CHECK_THAT(said("loss = \"clop\"\n").text, Contains("did you mean clip?"));
  CHECK(said("epochs = \"many\"\n").exit_code == exit_codes::usage);
  CHECK_THAT(said("seed = 3\n[part]\n").text, Contains(file + ": line 2: \"[part]\" is not NAME = VALUE"));
  CHECK_THAT(said("seed\n").text, Contains("line 1: \"seed\" is not NAME = VALUE"));
  CHECK_THAT(said("seed = 3\n\nseed = 4\n").text, Contains("line 3: \"seed\" comes twice"));
  CHECK_THAT(said("seed =\n").text, Contains("line 1: a value is missing"));
  CHECK_THAT(said("seed = 3 4\n").text, Contains("line 1: something follows the value of \"seed\""));
  CHECK_THAT(said("hidden = [1, 2").text, Contains("line 1: ',' or ']' is missing"));
  CHECK_THAT(said("out = \"here\nseed = 3\n").text, Contains("line 1: a text does not end"));
  CHECK_THAT(said(("#" + std::string(size_t{1} << 16, ' ')).c_str()).text, Contains("more than 65536 bytes"));
  CHECK_THAT(ending({"--config", "/dev/zero"}).text, Contains("more than 65536 bytes"));
  CHECK_FALSE(Program().parse({"--config", (put(file, "hidden = [ # these\n  7,\n  5 ]\n"), file).c_str()}));
  CHECK(ending({"--config", "nowhere.toml"}).exit_code == exit_codes::missing_input);
  CHECK_THAT(ending({"--config", "nowhere.toml"}).text, Contains("nowhere.toml"));
}

TEST_CASE("--help lists every option and exits with success") {
  const CommandLine::Ending help = ending({"--help"});
  CHECK(help.exit_code == 0);
  for (const char* name : {"--ranks",
                           "--device",
                           "--dtype",
                           "--zero",
                           "--accumulate",
                           "--steps",
                           "--epochs",
                           "--seed",
                           "--resume",
                           "--checkpoint-every",
                           "--fresh",
                           "--checkpoint-minutes",
                           "--out",
                           "--config",
                           "--dry-run",
                           "--same-bits",
                           "--fast-reductions",
                           "--tf32",
                           "--timeout",
                           "--quiet",
                           "--json",
                           "--loss"})
    CHECK_THAT(help.text, Contains(name));
  CHECK_THAT(help.text, Contains("--epochs N=8") || Contains("--epochs N [8]"));  // CLI11 2.1, and 2.4 or later
  std::istringstream lines(help.text);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("a missing card is not selected") {
  Options options;
  options.device = "cpu";
  CHECK(options.chosen_device() == Device::cpu);
  options.device = "cuda";
  if (available(Device::cuda))
    CHECK(options.chosen_device() == Device::cuda);
  else
    CHECK_THROWS_AS(options.chosen_device(), WrongOption);
}

TEST_CASE("a graph is refused without a card, and beside what needs the host in each step") {
  Options options;
  options.graph = true;
  options.device = "cpu";
  CHECK_THROWS_WITH(options.chosen_device(), Contains("--graph: it is for steps on a card"));
  for (const auto& [option, value] : {std::pair("--clip", "1"), {"--optimizer", "lamb"}, {"--zero", "3"}}) {
    Program program;
    program.options.graph = true;
    CHECK_THAT(program.parse({option, value})->text,
               Contains("--graph lets a card repeat a step without the host, and " + std::string(option)));
  }
}

TEST_CASE("TF32 is refused without a card") {
  Options options;
  options.tf32 = true;
  options.device = "cpu";
  CHECK_THROWS_WITH(options.chosen_device(), Contains("--tf32: it is for products on a card"));
  options.device = "auto";
  if (available(Device::cuda))
    CHECK(options.chosen_device() == Device::cuda);
  else
    CHECK_THROWS_AS(options.chosen_device(), WrongOption);
}

TEST_CASE("the edit distance counts insertions, deletions, substitutions and transpositions") {
  CHECK((edit_distance("", "abc") == 3 && edit_distance("abc", "") == 3 && edit_distance("same", "same") == 0));
  CHECK((edit_distance("kitten", "sitting") == 3 && edit_distance("sede", "seed") == 1));
  CHECK(suggestion("--limit", {"--init"}).empty());
  CHECK((suggestion("x", {"yz"}).empty() && suggestion("clop", {"siglip", "clip"}) == "; did you mean clip?"));
}
