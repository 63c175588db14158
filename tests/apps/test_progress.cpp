// SPDX-License-Identifier: Apache-2.0
// What a user sees during a run.
#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "apps/shared/run/progress.h"
#include "tests/support/catch.h"
#include "weft/engine/text/words.h"

using namespace weft;
using Catch::Contains;

namespace {

// The output of a Progress.
class Screen {
 public:
  ~Screen() { std::fclose(file_); }
  Output& output() { return output_; }
  std::string text() const {
    std::string all(static_cast<size_t>(lseek(output_.file(), 0, SEEK_CUR)), '\0');
    REQUIRE(pread(output_.file(), all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
    return all;
  }

 private:
  std::FILE* const file_ = std::tmpfile();
  Output output_{fileno(file_)};
};

// A run of 1000 steps of 64 images, 100 steps per second, a quarter of them in communication.
Progress::Status at_step(int64_t step) {
  const double seconds = static_cast<double>(step) / 100;
  return {.epoch = 1 + (step - 1) / 500,
          .epochs = 2,
          .step = step,
          .steps = 1000,
          .loss = 1 / seconds,
          .images = 64.0 * static_cast<double>(step),
          .seconds = seconds,
          .communication = seconds / 4};
}
std::string run(Progress::Style style, int rank = 0) {
  Screen screen;
  Progress progress(screen.output(), style, rank);
  for (int64_t step = 1; step <= 1000; ++step) progress.show(at_step(step));
  progress.finish("loss 0.1");
  return screen.text();
}
size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("progress without a terminal prints a line at the first step, every few seconds and at the last step") {
  const std::string text = run({});
  CHECK(text ==
        "epoch 1/2  step 1/1,000  loss 100  6.4k images/s  25 % communication  0:10 left\n"
        "epoch 2/2  step 501/1,000  loss 0.1996  6.4k images/s  25 % communication  5.0 s left\n"
        "epoch 2/2  step 1,000/1,000  loss 0.1  6.4k images/s  25 % communication  0.0 s left\n"
        "loss 0.1\n");
}

TEST_CASE("progress on a terminal rewrites one line ten times a second within the terminal's width") {
  const std::string text = run({.live = true, .columns = 100});
  CHECK((count(text, "\r\033[K") > 90 && count(text, "\r\033[K") <= 102));
  CHECK_THAT(text, Contains("━━━━"));
  CHECK_THAT(text, Catch::EndsWith("\r\033[Kloss 0.1\n"));
  CHECK(count(text, "\n") == 1);
  const std::string narrow = run({.live = true, .columns = 40});
  CHECK_THAT(narrow, Contains("\r\033[Kepoch 2/2  step 1,000/1,000  loss 0.1  \r"));
  CHECK(count(narrow, "━") == 0);
}

TEST_CASE("progress is colored only where color is wanted") {
  CHECK_THAT(run({.live = true, .color = true, .columns = 120}), Contains("\033[36m"));
  CHECK_THAT(run({.live = true, .columns = 120}), !Contains("\033[36m"));
  CHECK_THAT(run({}), !Contains("\033"));
}

TEST_CASE("progress written to a file is neither rewritten nor colored") {
  Screen screen;
  const Progress::Style style = Progress::style_for(screen.output(), false, false);
  CHECK_FALSE(style.live);
  CHECK_FALSE(style.color);
}

TEST_CASE("a terminal without a width is taken for a file") {
  for (const unsigned short width : {0, 90}) {
    const winsize size{.ws_row = 30, .ws_col = width, .ws_xpixel = 0, .ws_ypixel = 0};
    int user = -1, program = -1;
    REQUIRE(openpty(&user, &program, nullptr, nullptr, &size) == 0);
    const Progress::Style style = Progress::style_for(Output(program), false, false);
    CHECK(style.live == (width > 0));
    CHECK(style.columns == (width > 0 ? width : 80));
    close(program);
    close(user);
  }
}

TEST_CASE("a terminal that Ctrl-S has stopped is not waited for, and gets everything after Ctrl-Q") {
  int user = -1, program = -1;
  REQUIRE(openpty(&user, &program, nullptr, nullptr, nullptr) == 0);
  const auto press = [&](char key) { REQUIRE(write(user, &key, 1) == 1); };
  press('\x13');
  {
    Output output(program);
    output.write("a note\n");
    output.show("step 1\n");
    output.write("another\n");
    press('\x11');
    output.show("step 2\n");
  }
  close(program);
  std::string all;
  char piece[100];
  for (ssize_t size; (size = read(user, piece, sizeof piece)) > 0;) all.append(piece, static_cast<size_t>(size));
  CHECK(all == "a note\r\nanother\r\nstep 2\r\n");
  close(user);
}

TEST_CASE("a pipe that nobody reads is not waited for, and what it does not take comes later") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::string all, line = std::string(999, 'x') + "\n";
  std::thread reader;
  {
    Output output(ends[1]);
    for (int i = 0; i < 500; ++i) output.write(line);
    reader = std::thread([&] {
      char piece[4096];
      for (ssize_t size; (size = read(ends[0], piece, sizeof piece)) > 0;) all.append(piece, static_cast<size_t>(size));
    });
    CHECK(output.error() == 0);
  }
  close(ends[1]);
  reader.join();
  close(ends[0]);
  CHECK(count(all, line) == 500);
}

TEST_CASE("what the system refuses to print is told, unless the terminal is gone") {
  const Descriptor full(open("/dev/full", O_WRONLY));
  Output output(full.number());
  output.write("a note\n");
  CHECK(output.error() == ENOSPC);

  int user = -1, program = -1;
  REQUIRE(openpty(&user, &program, nullptr, nullptr, nullptr) == 0);
  Output closed(program);
  close(user);
  closed.write("a note\n");
  CHECK(closed.error() == 0);
  close(program);
}

TEST_CASE("text is wrapped and aligned to its last column, and long words stay whole") {
  CHECK(wrapped("one two three\n", 80) == "one two three\n");
  CHECK(wrapped("one two three\n\n", 7) == "one two\nthree\n\n");
  CHECK(wrapped("  --a X  one two three four\n", 16) == "  --a X  one two\n         three\n         four\n");
  CHECK(wrapped("  --a X  incomprehensible\n  --a X\n", 8) == "  --a X  incomprehensible\n  --a X\n");
}

TEST_CASE("every line of --json output is an object") {
  const std::string text = run({.json = true});
  CHECK(count(text, "\n") == 4);
  CHECK_THAT(text, Catch::StartsWith("{\"event\":\"progress\",\"epoch\":1,\"step\":1,\"steps\":1000,\"loss\":100.0,"
                                     "\"images_per_second\":6400.0,\"seconds\":0.01,"));
  CHECK_THAT(text, Contains("\n{\"event\":\"finished\",\"text\":\"loss 0.1\"}\n"));
}

TEST_CASE("a run ends with its figures: in words on one line or in a table, and as JSON by name, as numbers") {
  const std::vector<Figure> figures = {in_percent("accuracy", 0.875), in_digits("loss", 12345), {"hash", "1f"}};
  const auto text = [&](bool json, auto finish) {
    Screen screen;
    Progress progress(screen.output(), {.quiet = true, .json = json}, 0);
    (progress.*finish)(figures);
    return screen.text();
  };
  using Finish = void (Progress::*)(const std::vector<Figure>&);
  CHECK(text(false, Finish{&Progress::finish}) == "accuracy 87.50 %, loss 12.3k, hash 1f\n");
  CHECK(text(false, Finish{&Progress::finish_table}) == "accuracy  87.50 %\nloss      12.3k\nhash      1f\n");
  for (const Finish finish : {Finish{&Progress::finish}, Finish{&Progress::finish_table}})
    CHECK(text(true, finish) ==
          "{\"event\":\"finished\",\"figures\":{\"accuracy\":0.875,\"loss\":12345.0,\"hash\":\"1f\"}}\n");
}

TEST_CASE("a quiet run prints only its last line and warnings") {
  CHECK(run({.quiet = true}) == "loss 0.1\n");
  Screen screen;
  Progress progress(screen.output(), {.quiet = true}, 0);
  progress.note("data are there");
  progress.warn("a checkpoint is damaged");
  CHECK(screen.text() == "warning: a checkpoint is damaged\n");
}

TEST_CASE("ranks other than 0 print only warnings, once each, with their rank") {
  CHECK(run({}, 1).empty());
  Screen screen;
  Progress progress(screen.output(), {}, 3);
  progress.note("data are there");
  for (int i = 0; i < 3; ++i) progress.warn("slow disk");
  progress.warn("full disk");
  CHECK(screen.text() == "[rank 3] warning: slow disk\n[rank 3] warning: full disk\n");
}

TEST_CASE("a note does not overwrite the progress line") {
  Screen screen;
  Progress progress(screen.output(), {.live = true}, 0);
  progress.show(at_step(1));
  progress.note("checkpoint");
  CHECK_THAT(screen.text(), Contains("left\r\033[Kcheckpoint\n"));
}

TEST_CASE("progress rates cover the last seconds, not the whole run") {
  Screen screen;
  Progress progress(screen.output(), {}, 0);
  for (int64_t step = 1; step <= 500; ++step) progress.show(at_step(step));
  Progress::Status status = at_step(500);
  for (int i = 0; i < 50; ++i) {  // from here on a step takes a second
    status.step += 1, status.seconds += 1, status.images += 64;
    progress.show(status);
  }
  CHECK_THAT(screen.text(), Contains("step 546/1,000  loss 0.2  64 images/s  0 % communication  7:34 left\n"));
}

TEST_CASE("progress formats numbers readably") {
  CHECK((grouped(0) == "0" && grouped(999) == "999" && grouped(-1234567) == "-1,234,567" && grouped(-100) == "-100"));
  CHECK((short_number(0.24951) == "0.2495" && short_number(98927) == "98.9k" && short_number(999.99) == "1k"));
  CHECK((bytes_in_words(17) == "17 B" && bytes_in_words(1536) == "1.5 KiB" && bytes_in_words(3e9) == "2.79 GiB" &&
         bytes_in_words(1e9) == "954 MiB" && bytes_in_words(1023) == "0.999 KiB"));
  CHECK((duration(0.0123) == "12 ms" && duration(4.21) == "4.2 s" && duration(9.96) == "0:10" &&
         duration(3599.4) == "59:59"));
  CHECK(duration(6.2e-7) == "0.62 us");
  CHECK((duration(3723) == "1:02:03" && duration(1.0 / 0.0) == "?"));
  CHECK((percent(1, 3) == "33 %" && percent(0, 0) == "0 %"));
}
