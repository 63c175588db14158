// SPDX-License-Identifier: Apache-2.0
// The memory that readers take for maliciously expensive files: at most eight times the file, or what their headers
// state.
#include "apps/shared/launch/options.h"
#include "apps/shared/run/metrics_rows.h"
#include "apps/shared/run/sessions.h"
#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/peak_memory.h"
#include "weft/data/files/safetensors.h"
#include "weft/data/numpy/npz.h"
#include "weft/engine/text/file_text.h"

namespace weft {
namespace {

constexpr int64_t mebibyte = 1 << 20;

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// Distinct names such as ,"000a":
template <class F> std::string numbered(size_t count, F&& member) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += (i ? "," : "") + member(std::to_string(i));
  return all;
}

// The memory that a reader takes beyond 1 MiB, in multiples of its file's size.
double times(const std::filesystem::path& file, const std::function<void()>& read) {
  const auto bytes = static_cast<double>(std::filesystem::file_size(file));
  const PeakMemory peak;
  read();
  return static_cast<double>(peak.bytes() - mebibyte) / bytes;
}

TEST_CASE("opening a safetensors file takes at most eight times its size in memory, whatever its header holds") {
  const auto tensor = [](const std::string& name) {
    return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  };
  const auto word = [](const std::string& name) { return "\"" + name + "\":\"\""; };
  const std::string long_name = repeated("x", 2'000'000);
  const std::pair<const char*, std::string> headers[] = {
      {"tensors", "{" + numbered(50'000, tensor) + "}"},
      {"words", "{\"__metadata__\":{" + numbered(200'000, word) + "}}"},
      {"16384 words", "{\"__metadata__\":{" + numbered(16384, word) + "}}"},
      {"a long name", "{" + tensor(long_name) + "}"},
      {"a long name twice", "{" + tensor(long_name) + "," + tensor(long_name) + "}"},
      {"a long name of a wrong tensor", "{\"" + long_name + "\":{\"dtype\":1}}"},
      {"a long word", "{\"__metadata__\":{\"a\":\"" + long_name + "\"}}"},
      {"a long type", "{\"a\":{\"dtype\":\"" + long_name + "\"}}"},
      {"escapes", "{\"" + repeated("\\u0001", 500'000) + "\":{\"dtype\":\"U9\"}}"},
      {"brackets", "{\"a\":" + repeated("[", 2'000'000) + "}"},
      {"digits", "{\"a\":{\"shape\":[" + repeated("1", 2'000'000) + "]}}"},
      {"extents", "{\"a\":{\"shape\":[" + repeated("1,", 1'000'000) + "1]}}"},
      {"offsets", "{\"a\":{\"data_offsets\":[" + repeated("1,", 1'000'000) + "1]}}"},
      {"spaces", "{" + repeated(" ", 2'000'000) + "}"},
  };
  const ScratchFolder folder;
  for (const auto& [what, header] : headers) {
    INFO(what);
    put(folder / "x.safetensors", file_of(header));
    CHECK(times(folder / "x.safetensors", [&] { message_of([&] { SafetensorsFile(folder / "x.safetensors"); }); }) < 8);
  }
}

TEST_CASE("reading a .npy file takes at most eight times its size in memory") {
  const auto npy = [](const char* descr, bool fortran_order, int64_t rows, size_t bytes) {
    return text(NpyHeader{descr, fortran_order, {rows, 1000}}) + std::string(bytes, '\0');
  };
  const std::pair<const char*, std::string> files[] = {
      {"bytes that become i64", npy("|i1", false, 2000, 2'000'000)},
      {"bytes that become i64, column-major", npy("|i1", true, 2000, 2'000'000)},
      {"halves, column-major", npy("<f2", true, 1000, 2'000'000)},
      {"more than is there", npy("<f8", false, int64_t{1} << 40, 2'000'000)},
      {"a long header", std::string("\x93NUMPY\2\0\0\xff\xff\0", 12) + repeated("(", 2'000'000)},
  };
  const ScratchFolder folder;
  for (const auto& [what, bytes] : files) {
    INFO(what);
    put(folder / "x.npy", bytes);
    CHECK(times(folder / "x.npy", [&] { message_of([&] { read_npy(folder / "x.npy"); }); }) < 8);
  }
}

TEST_CASE("opening a .npz file takes at most eight times its size in memory, whatever its directory states") {
  const auto archive = [](size_t count, const std::string& name, bool deflated, uint64_t packed_bytes, uint64_t bytes) {
    std::vector<ZipEntry> entries;
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      entries.push_back({std::to_string(i) + name + ".npy", deflated, 0, packed_bytes, bytes, text.size()});
      text += zip_header(entries.back()) + std::string(packed_bytes, '\0');
    }
    return text + zip_directory(entries, text.size());
  };
  constexpr uint64_t gibibyte = uint64_t{1} << 30, mebibytes = uint64_t{1} << 20;
  const std::tuple<const char*, std::string, const char*> archives[] = {
      {"entries", archive(50'000, "", false, 0, 0), "only 0 bytes"},
      {"long names", archive(50, std::string(60'000, 'x'), false, 0, 0), "only 0 bytes"},
      {"a gibibyte", archive(1, "", true, 2 * mebibytes, gibibyte), "unpack to more than"},
      {"a gibibyte in parts", archive(64, "", true, 40'000, gibibyte / 64), "unpack to more than"},
      {"what is allowed, but is not there", archive(1, "", true, mebibytes, NpzFile::default_max_bytes), "corrupt"},
  };
  const ScratchFolder folder;
  const auto read = [&] {
    const NpzFile file(folder / "x.npz");
    for (const std::string& name : file.names()) file.read(name);
  };
  for (const auto& [what, bytes, words] : archives) {
    INFO(what);
    put(folder / "x.npz", bytes);
    CHECK_THAT(message_of(read), Catch::Contains(words));
    CHECK(times(folder / "x.npz", [&] { message_of(read); }) < 8);
  }
}

TEST_CASE("resuming metrics takes at most eight times their file's size in memory") {
  const std::pair<const char*, std::string> texts[] = {
      {"rows", repeated("{\"step\":1,\"time\":1}\n", 100'000)},
      {"rows with a value", repeated("{\"step\":1,\"time\":1,\"a\":1}\n", 100'000)},
      {"a row", "{\"step\":1,\"time\":1" + repeated(",\"b\":1", 300'000) + "}\n"},
      {"brackets", repeated("[", 2'000'000) + "\n"},
      {"one line", repeated("x", 2'000'000)},
  };
  const ScratchFolder folder;
  for (const auto& [what, text] : texts) {
    INFO(what);
    put(folder / "metrics.jsonl", text);
    CHECK(times(folder / "metrics.jsonl", [&] { read_rows(file_text(folder / "metrics.jsonl"), {"a"}, 5); }) < 8);
  }
}

TEST_CASE("reading sessions is limited to 8 MiB of the file, with a fixed amount of memory per rank's entry") {
  const std::string rank = "{\"seconds\":1,\"communication\":1,\"data\":1}";
  const ScratchFolder folder;
  const auto bytes_for = [&](const std::string& text) {
    put(folder / "sessions.json", text);
    const PeakMemory peak;
    sessions_up_to(1, folder / "sessions.json");
    return peak.bytes();
  };
  CHECK(bytes_for(repeated("[", 20'000'000)) < 32 * mebibyte);
  // An entry has four counts of every verb, and the list of entries doubles as it grows.
  CHECK(bytes_for("[{\"last_step\":1,\"images\":1,\"ranks\":[" + rank + repeated("," + rank, 190'000) + "]}]") <
        384 * mebibyte);
}

TEST_CASE("a configuration takes at most 16 MiB of memory, whatever it contains") {
  const ScratchFolder folder;
  const std::string file = (folder / "config.toml").string();
  for (const std::string part : {"a=1\n", "[a.b.c]\n", "[", "hidden = [1, 1, 1]\n", "'", "#", "1,", "a.a"}) {
    INFO(part);
    for (const size_t bytes : {65'000, 1'000'000}) {
      put(file, "steps = [" + repeated(part, bytes / part.size()));
      Options options;
      CommandLine line("train", "Trains.", options);
      const char* words[] = {"train", "--config", file.c_str()};
      const PeakMemory peak;
      CHECK(line.parse(3, words));
      put(file, repeated(part, bytes / part.size()));
      line.parse(3, words);
      CHECK(peak.bytes() < 16 * mebibyte);
    }
  }
}

TEST_CASE("an error of a reader shortens a long name") {
  const ScratchFolder folder;
  put(folder / "x", file_of("{\"" + repeated("x", 1'000'000) + "\":{\"dtype\":\"U9\"}}"));
  CHECK(message_of([&] { SafetensorsFile(folder / "x"); }).size() < 1000);
}

}  // namespace
}  // namespace weft
