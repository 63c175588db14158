// SPDX-License-Identifier: Apache-2.0
// The files of a run: metrics in three files, pictures, and the folder that holds them.
#include <png.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <thread>

#include "apps/shared/report/picture.h"
#include "apps/shared/run/run_folder.h"
#include "apps/shared/run/sessions.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"

using namespace weft;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

template <class T> T number_at(const std::string& bytes, size_t place) {
  T value;
  std::memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}
uint32_t unmasked(uint32_t crc) { return (crc - 0xa282ead8u) >> 17 | (crc - 0xa282ead8u) << 15; }

// The events of a file, with their checksums verified.
std::vector<std::string> events_of(const fs::path& file) {
  const std::string bytes = contents(file);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    REQUIRE(unmasked(number_at<uint32_t>(bytes, at + 8)) == crc32c(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    REQUIRE(unmasked(number_at<uint32_t>(bytes, at + 12 + length)) == crc32c(events.back()));
    at += length + 16;
  }
  return events;
}

// A PNG's pixels as libpng reads them.
std::vector<uint8_t> pixels_of(const std::string& file, int channels, png_image& image) {
  image = {};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&image, file.data(), file.size()));
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  REQUIRE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr));
  return pixels;
}

}  // namespace

TEST_CASE("the checksum of event files is CRC-32C") {
  CHECK(crc32c("123456789") == 0xe3069283u);            // the check value of its definition
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);  // RFC 3720, B.4
}

TEST_CASE("metrics are in all three files when add returns") {
  const ScratchFolder folder;
  Metrics metrics(folder.path, {"loss", "accuracy"});
  metrics.add(1, {{"loss", 0.1}});
  metrics.add(2, {{"loss", 1e-9}, {"accuracy", 0.75}});
  CHECK_THAT(lines_of(folder / "metrics.jsonl").at(0), Contains("{\"step\":1,\"time\":") && Contains("\"loss\":0.1}"));
  CHECK_THAT(lines_of(folder / "metrics.jsonl").at(1), Contains("\"loss\":1e-09,\"accuracy\":0.75}"));
  const std::vector<std::string> table = lines_of(folder / "metrics.csv");
  CHECK(table.at(0) == "step,time,loss,accuracy");
  CHECK_THAT(table.at(1), Catch::StartsWith("1,") && Catch::EndsWith(",0.1,"));
  CHECK_THAT(table.at(2), Catch::EndsWith(",1e-09,0.75"));
  CHECK(events_of(folder / "events.out.tfevents.weft").size() == 4);
  CHECK(metrics.curve("loss").at(1).x == 2);
  CHECK(metrics.last("accuracy") == 0.75);
}

TEST_CASE("an event has the bytes of TensorBoard's format") {
  const ScratchFolder folder;
  EventFile(folder / "tfevents", 1.0).add(2.0, 300, {{"loss", 0.5}});
  const std::vector<std::string> events = events_of(folder / "tfevents");
  CHECK(events.at(0) == std::string("\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"
                                    "brain.Event:2",
                                    24));
  CHECK(events.at(1) == std::string("\x09\0\0\0\0\0\0\0\x40\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04"
                                    "loss\x15\0\0\0\x3f",
                                    27));
}

TEST_CASE("a resumed run removes the metrics after its step from all files") {
  const ScratchFolder folder;
  const auto fill = [](Metrics& metrics, int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; ++step) metrics.add(step, {{"loss", 1.0 / static_cast<double>(step)}});
  };
  {
    Metrics metrics(folder.path, {"loss"});
    fill(metrics, 1, 7);
  }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\":8,\"ti";  // killed while writing
  SECTION("from a step before the last one measured") {
    Metrics metrics(folder.path, {"loss"}, 4);
    CHECK(metrics.curve("loss").size() == 4);
    fill(metrics, 5, 9);
  }
  SECTION("from a step after the last one measured") {
    Metrics metrics(folder.path, {"loss"}, 8);
    CHECK(metrics.curve("loss").size() == 7);
    fill(metrics, 8, 9);
  }
  const std::vector<std::string> lines = lines_of(folder / "metrics.jsonl"), table = lines_of(folder / "metrics.csv");
  REQUIRE(lines.size() == 9);
  REQUIRE(table.size() == 10);
  for (size_t i = 0; i < 9; ++i) {
    CHECK_THAT(lines[i], Contains("\"step\":" + std::to_string(i + 1) + ","));
    CHECK_THAT(table[i + 1], Catch::StartsWith(std::to_string(i + 1) + ","));
  }
  CHECK(events_of(folder / "events.out.tfevents.weft").size() == 10);
}

TEST_CASE("metrics distinguish non-finite values from missing ones") {
  const ScratchFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  { Metrics(folder.path, {"a", "b", "c"}).add(1, {{"a", std::nan("")}, {"b", -infinity}}); }
  CHECK_THAT(contents(folder / "metrics.jsonl"), Contains("\"a\":null,\"b\":null}"));
  CHECK_THAT(contents(folder / "metrics.csv"), Contains(",nan,-inf,\n"));
  const Metrics again(folder.path, {"a", "b", "c"}, 1);
  CHECK(again.curve("a").size() == 1);
  CHECK(again.curve("c").empty());
}

TEST_CASE("metrics refuse a name that was not announced, and a decreasing step") {
  const ScratchFolder folder;
  Metrics metrics(folder.path, {"loss"});
  metrics.add(3, {{"loss", 1}});
  CHECK_THROWS_WITH(metrics.add(4, {{"lost", 1}}), Contains("'lost'"));
  CHECK_THROWS_WITH(metrics.add(2, {{"loss", 1}}), Contains("step 2 after step 3"));
  CHECK(lines_of(folder / "metrics.jsonl").size() == 1);
}

TEST_CASE("a full disk is reported as an output failure that names the file") {
  AppendedFile file("/dev/full");
  CHECK_THROWS_AS(file.append("x"), OutputFailure);
  CHECK_THROWS_WITH(file.append("x"), Contains("/dev/full: cannot be written: No space left"));
}

TEST_CASE("a PNG has the pixels of its tensor") {
  const int channels = GENERATE(1, 3);
  Tensor picture({5, 7, channels}, DType::u8);
  for (int64_t i = 0; i < picture.size(); ++i) picture.mutate<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  png_image image;
  const std::vector<uint8_t> pixels = pixels_of(png(picture), channels, image);
  CHECK((image.height == 5 && image.width == 7));
  CHECK(std::memcmp(pixels.data(), picture.data(), picture.bytes()) == 0);
  CHECK_THROWS_WITH(png(Tensor::zeros({5, 7})), Contains("png: u8"));
}

TEST_CASE("an image grid has every picture in its place, and background elsewhere") {
  Tensor pictures({5, 2, 3, 1}, DType::u8);
  for (int64_t i = 0; i < pictures.size(); ++i) pictures.mutate<uint8_t>()[i] = static_cast<uint8_t>(i + 1);
  const Tensor whole = grid(pictures, 3);
  REQUIRE(whole.shape() == Shape({5, 11, 1}));
  const auto at = [&](int64_t y, int64_t x) { return int{whole.data<uint8_t>()[y * 11 + x]}; };
  CHECK((at(0, 0) == 1 && at(1, 2) == 6 && at(0, 4) == 7 && at(4, 6) == 30));
  CHECK((at(0, 3) == 128 && at(2, 0) == 128 && at(4, 8) == 128));
  CHECK(grid(pictures, 100).shape() == Shape({2, 19, 1}));
}

TEST_CASE("pixel values map to the range from black to white") {
  const Tensor pixels = as_pixels(Tensor::from({5}, {-1, 0, 0.5, 1, std::nan("")}));
  CHECK(pixels.values() == std::vector<double>{0, 0, 128, 255, 0});
  CHECK(as_pixels(Tensor::from({1}, {7})).values()[0] == 255);
}

// The day of a file, as a run that began then has it in its name.
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char day[20];
  std::strftime(day, sizeof day, "%F", localtime_r(&now, &date));
  return day;
}

TEST_CASE("a new run moves an earlier one aside, to a name with its day and method, and a resumed run does not") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "runs/one";
  const auto run = [](const fs::path& folder, const char* config, double loss) {
    RunFolder run(folder);
    run.begin(config, {"loss"});
    run.metrics().add(1, {{"loss", loss}});
    return run.moved_to();
  };
  CHECK(run(path, "loss = \"nt-xent\"\nseed=1\n", 1).empty());
  const fs::path first = scratch / ("runs/one-" + today() + "-nt-xent"), second = first.string() + "-2";
  CHECK(run(path / "", "loss = \"nt-xent\"\n", 2) == first);
  CHECK(run(path, "quantizer = \"../f sq\"\n", 3) == second);
  CHECK_THAT(contents(first / "config.toml"), Contains("seed=1\n"));
  CHECK_THAT(contents(second / "metrics.jsonl"), Contains("\"loss\":2"));
  CHECK(run(path, "seed=4\n", 4) == scratch / ("runs/one-" + today() + "-fsq"));
  {
    RunFolder on(path);
    on.begin("seed=4\n", {"loss"}, 1);
    CHECK(on.moved_to().empty());
  }
  CHECK(run(path, "seed=5\n", 5) == scratch / ("runs/one-" + today()));
}

TEST_CASE("the day of a run is that of its beginning, however often it was resumed") {
  const ScratchFolder scratch;
  const fs::path config = scratch / "one/config.toml";
  const auto begin = [&](int64_t resumed_step) {
    RunFolder run(scratch / "one");
    run.begin("seed=1\n", {"loss"}, resumed_step);
    run.metrics().add(resumed_step + 1, {{"loss", 1}});
    return run.moved_to();
  };
  begin(0);
  const std::chrono::sys_seconds then{std::chrono::seconds(1'000'000'000)};  // at night from the 8th to the 9th
  fs::last_write_time(config, fs::file_time_type::clock::from_sys(then));
  begin(1);
  CHECK_THAT(begin(0).string(), Contains("one-2001-09-0"));
}

TEST_CASE("a run refuses a folder with other contents and leaves it alone") {
  const ScratchFolder scratch;
  put(scratch / "letter.txt", "dear");
  CHECK_THROWS_WITH(RunFolder(scratch.path), Contains("something other than a run"));
  CHECK_THROWS_WITH(RunFolder(scratch / "letter.txt"), Contains("not a folder"));
  CHECK_THROWS_WITH(RunFolder("/proc/x/run"), Contains("/proc/x/run: cannot be created in /proc: "));
  CHECK(contents(scratch / "letter.txt") == "dear");
  CHECK_FALSE(fs::exists(scratch / "lock"));
}

TEST_CASE("a run has exclusive use of its folder until it ends, even while it moves an earlier run aside") {
  const ScratchFolder scratch;
  const fs::path path = scratch / "runs/one";
  const std::string another_has_it =
      (path / "").parent_path().string() + ": another run has it, process " + std::to_string(getpid()) + " on ";
  {
    RunFolder first(path);
    first.begin("seed=1\n", {"loss"});
    CHECK_THROWS_WITH(RunFolder(path), Contains(another_has_it));
    CHECK_THROWS_WITH(RunFolder(path / "."), Contains("another run has it"));
  }
  {
    RunFolder second(path);
    second.begin("seed=2\n", {"loss"});
    CHECK_THROWS_WITH(RunFolder(path), Contains(another_has_it));
    CHECK_FALSE(fs::exists(scratch / ("runs/one-" + today() + "/lock")));
    const RunFolder earlier(scratch / ("runs/one-" + today()));  // no run has it open
  }
  CHECK_FALSE(fs::exists(path / "lock"));
  put(path / "lock", "process 1 on another, which was killed");
  CHECK_NOTHROW(RunFolder(path));
}

TEST_CASE("a run waits a moment for one that is about to end") {
  const ScratchFolder scratch;
  auto ending = std::make_unique<RunFolder>(scratch / "one");
  ending->begin("seed=1\n", {"loss"});
  std::thread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ending.reset();
  });
  CHECK_NOTHROW(RunFolder(scratch / "one"));
  end.join();
}

TEST_CASE("a run that ends before it starts leaves no folder, and an impossible folder is refused at once") {
  const ScratchFolder scratch;
  { const RunFolder run(scratch / "runs/one"); }
  CHECK_FALSE(fs::exists(scratch / "runs"));
  put(scratch / "letter", "dear");
  CHECK_THROWS_WITH(RunFolder(scratch / "letter/runs/one"),
                    Contains("runs/one: cannot be created: ") && Contains("letter is a file"));
}

TEST_CASE("only one of two runs that start in the same new folder gets it") {
  const ScratchFolder scratch;
  RunFolder first(scratch / "one"), second(scratch / "one");
  first.begin("seed=1\n", {"loss"});
  CHECK_THROWS_WITH(second.begin("seed=2\n", {"loss"}), Contains("another run has it"));
  CHECK(contents(scratch / "one/config.toml") == "seed=1\n");
}

TEST_CASE("a metrics file that was removed, moved or replaced is an output failure, and links are not followed") {
  const ScratchFolder scratch;
  const fs::path file = scratch / "metrics.csv";
  AppendedFile metrics(file);
  metrics.append("1\n");
  fs::rename(file, scratch / "elsewhere");
  CHECK_THROWS_WITH(metrics.append("2\n"), Contains("cannot be written any more: No such file"));
  put(file, "mine");
  CHECK_THROWS_WITH(metrics.append("2\n"), Contains("another file has replaced it"));
  fs::remove(file);
  put(scratch / "precious", "mine");
  fs::create_symlink(scratch / "precious", file);
  CHECK_THROWS_WITH(AppendedFile(file), Contains("metrics.csv: is a link, which is not followed"));
  CHECK(contents(scratch / "precious") == "mine");
}

TEST_CASE("a damaged line of metrics ends what a resumed run keeps") {
  for (const char* line : {R"({"step":2,"time":"now","loss":1})", R"({"step":-2,"time":1,"loss":1})",
                           R"({"step":1e300,"time":1,"loss":1})", R"({"step":2.5,"time":1,"loss":1})",
                           R"({"step":18446744073709551615,"time":1})", R"({"step":null,"time":1})", "[2]", "\xff"}) {
    INFO(line);
    const ScratchFolder folder;
    put(folder / "metrics.jsonl", std::string(R"({"step":1,"time":1,"loss":3})") + "\n" + line + "\n");
    const Metrics metrics(folder.path, {"loss"}, 5);
    CHECK(metrics.curve("loss").size() == 1);
    CHECK(lines_of(folder / "metrics.jsonl").size() == 1);
    CHECK_THAT(metrics.damage(), Contains("metrics.jsonl: byte "));
  }
}

TEST_CASE("sessions add up to the whole run, without those after the step it resumes from") {
  const ScratchFolder folder;
  Traffic two, three;
  two[Verb::all_reduce] = {2, 20, 0.5, 1};
  three[Verb::all_gather] = {3, 30, 0.25};
  const std::vector<RunSession> sessions = {{0, 10, 100, {{4, 1, 0.5}}, {two}},
                                            {10, 20, 200, {{8, 2, 1}, {8, 3, 1}}, {two, three}}};
  put(folder / "sessions.json", json(sessions));
  const std::vector<RunSession> read = sessions_up_to(20, folder / "sessions.json");
  REQUIRE(read.size() == 2);
  CHECK(read[1].first_step == 10);
  const RunSession all = whole(read);
  CHECK(all.last_step == 20);
  CHECK(all.images == 300);
  CHECK(all.ranks.at(0).seconds == 12);
  CHECK(all.ranks.at(1).communication == 3);
  CHECK(all.traffic.at(0)[Verb::all_reduce].bytes == 40);
  CHECK(all.traffic.at(0)[Verb::all_reduce].small_calls == 2);
  CHECK(all.traffic.at(1)[Verb::all_gather].calls == 3);
  CHECK(sessions_up_to(19, folder / "sessions.json").size() == 1);
  CHECK(sessions_up_to(20, folder / "none").empty());
  for (const char* damaged :
       {R"([{"last_step":1,"images":"many","ranks":[]}])", R"([{"last_step":1,"ranks":[]}])",
        R"([{"last_step":-1,"images":1,"ranks":[]}])", R"([{"last_step":1e300,"images":1,"ranks":[]}])",
        R"([{"last_step":1,"images":1,"ranks":[{"seconds":1,"communication":1,"data":1,"traffic":{"send":[1]}}]}])"}) {
    put(folder / "sessions.json", damaged);
    CHECK(sessions_up_to(20, folder / "sessions.json").empty());
  }
  put(folder / "sessions.json", R"([{"last_step":1,"images":1,"ranks":[]}])" + std::string(size_t{8} << 20, '\n'));
  CHECK(sessions_up_to(20, folder / "sessions.json").size() == 1);  // the rest of these 8 MiB is not read
}

TEST_CASE("a run resumes from its latest checkpoint, from a given path, or not at all") {
  const ScratchFolder scratch;
  const NamedTensors state = {{"w", Tensor::zeros({2})}};
  save_checkpoint(RunFolder::checkpoints(scratch.path), 20, state, {});
  save_checkpoint(RunFolder::checkpoints(scratch.path), 40, state, {});
  const auto resumed = [](const std::string& resume, const fs::path& run) {
    return checkpoint_to_resume(resume, run, "", 100);
  };
  CHECK_FALSE(resumed("none", scratch.path).file);
  CHECK(resumed("auto", scratch.path).step == 40);
  CHECK_THROWS_AS(resumed("auto", scratch / "elsewhere"), MissingInput);
  CHECK(resumed(scratch.path.string(), "elsewhere").step == 40);
  CHECK(resumed((scratch / "checkpoints/step-000020.safetensors").string(), "elsewhere").step == 20);
  CHECK_THROWS_AS(resumed((scratch / "none.safetensors").string(), "elsewhere"), MissingInput);
  fs::create_directory(scratch / "empty");
  CHECK_THROWS_AS(resumed((scratch / "empty").string(), "elsewhere"), MissingInput);
  put(scratch / "checkpoints/step-000020.safetensors", "");
  put(scratch / "checkpoints/step-000040.safetensors", "");
  CHECK_THROWS_WITH(resumed("auto", scratch.path),
                    Contains("no sound checkpoint is in it; ") && Contains("step-000040"));
}

TEST_CASE("a run goes on by itself if it has the same options and has not ended") {
  const ScratchFolder scratch;
  const fs::path run = scratch.path, report = run / RunFolder::report;
  const NamedTensors state = {{"w", Tensor::zeros({2})}};
  const auto goes_on = [&](const std::string& config, int64_t steps) {
    return checkpoint_to_resume("unfinished", run, config, steps).step;
  };
  CHECK(goes_on("seed = 1\n", 40) == 0);  // nothing is there
  put(run / "config.toml", "seed = 1\nranks = 2\n");
  CHECK(goes_on("seed = 1\n", 40) == 0);  // nor a checkpoint
  const fs::path checkpoint = save_checkpoint(RunFolder::checkpoints(run), 20, state, {});
  CHECK(goes_on("seed = 1\nranks = 3\nfresh = false\n", 40) == 20);
  CHECK(goes_on("seed = 2\nranks = 2\n", 40) == 0);
  put(report, "stopped after step 20");
  CHECK(goes_on("seed = 1\n", 40) == 20);
  CHECK(goes_on("seed = 1\n", 20) == 0);  // all steps are done, and reported
  fs::last_write_time(report, fs::last_write_time(checkpoint) - std::chrono::seconds(1));
  CHECK(goes_on("seed = 1\n", 20) == 20);  // done, but the report is of an earlier step
  fs::remove(report);
  CHECK(goes_on("seed = 1\n", 20) == 20);
}

TEST_CASE("a resumed run reports options that differ from the earlier run, except where and how it runs") {
  const ScratchFolder scratch;
  const fs::path checkpoint = scratch / "checkpoints/step-000020.safetensors";
  const std::string now = "ranks = 4\nloss = \"vicreg\"\nrate = 0.01\nout = \"b\"\nnew = 1\n";
  CHECK(changes_since(checkpoint, now).empty());
  put(scratch / "config.toml", "ranks = 2\nloss = \"nt-xent\"\nrate = 0.01\nout = \"a\"\nold = 1\n");
  CHECK(changes_since(checkpoint, now) == std::vector<std::string>{"loss was \"nt-xent\" and is now \"vicreg\""});
}
