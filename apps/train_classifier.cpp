// Trains a small network on Fashion-MNIST in one process and draws how it learns.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "collectives/transports/session.h"
#include "data/fashion_mnist.h"
#include "data/idx.h"
#include "engine/nn/linear.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "optim/optimizer.h"

namespace {

using namespace weft;

struct Options {
  int64_t epochs = 8, batch = 50;
  double rate = 0.05;
  uint64_t seed = 1;
  std::string data;
  std::vector<int64_t> hidden = {128};
  bool quiet = false;
};

Tensor as_rows(const Tensor& images) { return images.reshape({images.shape()[0], images.shape().product(1, 4)}); }

// One pass over the images. The rate falls in a straight line to zero at the end of the last epoch. Returns the mean
// loss.
double train_epoch(Mlp& network, Optimizer& optimizer, const LabelledImages& data, const Options& options,
                   int64_t epoch) {
  const Epoch order(data.count(), options.batch, options.seed, static_cast<uint64_t>(epoch));
  double total = 0;
  for (int64_t step = 0; step < order.steps(); ++step) {
    const auto [images, labels] = take(data, order.batch(step));
    Tape tape;
    const Var loss = mean(cross_entropy(network(tape.constant(as_rows(images))), labels));
    total += loss.value().item() * static_cast<double>(labels.size());

    Gradients gradients;
    tape.backward(loss, gradients);
    const double done =
        static_cast<double>(epoch * order.steps() + step) / static_cast<double>(options.epochs * order.steps());
    optimizer.step(gradients, options.rate * (1 - done));
  }
  require(std::isfinite(total), "the training diverged in epoch ", epoch + 1, "; try a smaller --rate");
  return total / static_cast<double>(data.count());
}

// The share of images whose largest logit is that of their label.
double accuracy(Mlp& network, const LabelledImages& data) {
  int64_t right = 0;
  const Epoch order(data.count(), 1000, 0, 0);
  for (int64_t step = 0; step < order.steps(); ++step) {
    const auto [images, labels] = take(data, order.batch(step));
    const Tensor guesses = argmax(network(as_rows(images)).value(), 1);
    for (int64_t i = 0; i < labels.size(); ++i) right += guesses.data<int64_t>()[i] == labels.data<int64_t>()[i];
  }
  return static_cast<double>(right) / static_cast<double>(data.count());
}

// Draws one bar per value, from `floor` to the largest of them.
void draw(const char* title, const std::vector<double>& values, double floor, double unit, int decimals) {
  static constexpr const char* blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr int height = 6, widest = 72;
  const double top = *std::max_element(values.begin(), values.end());
  const int count = static_cast<int>(values.size()), bars = std::min(count, widest), width = std::min(6, widest / bars);
  std::printf("\n  %s\n", title);
  for (int row = height; row-- > 0;) {
    if (row == height - 1 || row == 0)
      std::printf("%8.*f │", decimals, (row ? top : floor) * unit);
    else
      std::printf("         │");
    for (int bar = 0; bar < bars; ++bar) {
      const double value = values[static_cast<size_t>(bar * count / bars)];
      const double eighths = top > floor ? (value - floor) / (top - floor) * height * 8 : height * 8;
      for (int column = 0; column < width; ++column)
        std::printf(
            "%s", column && column == width - 1 ? " " : blocks[std::clamp(static_cast<int>(eighths) - row * 8, 0, 8)]);
    }
    std::printf("\n");
  }
}

void train(const Options& options) {
  const FashionMnist data = load_fashion_mnist(options.data);
  std::vector<int64_t> widths = options.hidden;
  widths.insert(widths.begin(), data.train.images.shape().product(1, 4));
  widths.push_back(FashionMnist::classes);
  Mlp network("network", widths, Init{.key = Random{options.seed}});
  Optimizer optimizer(network.parameters(), Sgd{.momentum = 0.9});

  if (!options.quiet) std::printf("%ld training and %ld test images\n", data.train.count(), data.test.count());
  std::vector<double> losses, accuracies;
  double seconds = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    losses.push_back(train_epoch(network, optimizer, data.train, options, epoch));
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    accuracies.push_back(accuracy(network, data.test));
    if (options.quiet) continue;
    std::printf("epoch %3ld   training loss %.4f   test accuracy %5.2f %%\n", epoch + 1, losses.back(),
                100 * accuracies.back());
    std::fflush(stdout);
  }
  if (!options.quiet) {
    draw("training loss by epoch", losses, 0, 1, 3);
    const auto [least, most] = std::minmax_element(accuracies.begin(), accuracies.end());
    draw("test accuracy by epoch, in %", accuracies, *least - (*most - *least) / 4, 100, 1);
    std::printf("\n");
  }
  const double images = static_cast<double>(data.train.count() * options.epochs);
  std::printf("loss %.4f, test accuracy %.2f %%, %.1f s of training, %.0f images/s\n", losses.back(),
              100 * accuracies.back(), seconds, images / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  if (session.size() > 1)
    session.end(exit_codes::wrong_launcher, "this program trains in one process; start it without mpiexec");
  Options options;
  CLI::App app("Trains a small network on Fashion-MNIST and draws how it learns.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", options.epochs, "passes over the training images")->check(CLI::Range(1, 100000));
  app.add_option("--batch", options.batch, "images per step")->check(CLI::Range(1, 1000000));
  app.add_option("--rate", options.rate, "learning rate at the start")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--seed", options.seed, "of the first weights and of the order of the images");
  app.add_option("--data", options.data, "folder of the four IDX files (default: $WEFT_DATA, then Debian's)")
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "widths of the hidden layers")->check(CLI::Range(1, 65536));
  app.add_flag("--quiet", options.quiet, "print the last line only");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("error: ") + error.what() + "; see --help\n";
  });
  try {
    app.parse(argc, argv);
    train(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_codes::usage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    if (dynamic_cast<const MissingInput*>(&error)) return exit_codes::missing_input;
    return dynamic_cast<const MalformedInput*>(&error) ? exit_codes::malformed_input : exit_codes::exception;
  }
  return 0;
}
