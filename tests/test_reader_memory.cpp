// What readers take for files that are made to be expensive: at most eight times the file, or what their headers state.
#include <catch2/catch.hpp>

#include "data/safetensors.h"
#include "tests/checkpoint_checks.h"
#include "tests/peak_memory.h"

namespace weft {
namespace {

constexpr int64_t mebibyte = 1 << 20;

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// Names such as ,"000a": that all differ.
template <class F> std::string numbered(size_t count, F&& member) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += (i ? "," : "") + member(std::to_string(i));
  return all;
}

// How many times its file's bytes a reader takes, beyond a mebibyte that it may have.
double times(const std::filesystem::path& file, const std::function<void()>& read) {
  const auto bytes = static_cast<double>(std::filesystem::file_size(file));
  const PeakMemory peak;
  read();
  return static_cast<double>(peak.bytes() - mebibyte) / bytes;
}

TEST_CASE("opening a safetensors file takes at most eight times its bytes, whatever its header holds") {
  const auto tensor = [](const std::string& name) {
    return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  };
  const auto word = [](const std::string& name) { return "\"" + name + "\":\"\""; };
  const std::string long_name = repeated("x", 10'000'000);
  const std::pair<const char*, std::string> headers[] = {
      {"tensors", "{" + numbered(200'000, tensor) + "}"},
      {"words", "{\"__metadata__\":{" + numbered(1'000'000, word) + "}}"},
      {"16384 words", "{\"__metadata__\":{" + numbered(16384, word) + "}}"},
      {"a long name", "{" + tensor(long_name) + "}"},
      {"a long name twice", "{" + tensor(long_name) + "," + tensor(long_name) + "}"},
      {"a long name of a wrong tensor", "{\"" + long_name + "\":{\"dtype\":1}}"},
      {"a long word", "{\"__metadata__\":{\"a\":\"" + long_name + "\"}}"},
      {"a long type", "{\"a\":{\"dtype\":\"" + long_name + "\"}}"},
      {"escapes", "{\"" + repeated("\\u0001", 2'000'000) + "\":{\"dtype\":\"U9\"}}"},
      {"brackets", "{\"a\":" + repeated("[", 10'000'000) + "}"},
      {"digits", "{\"a\":{\"shape\":[" + repeated("1", 10'000'000) + "]}}"},
      {"extents", "{\"a\":{\"shape\":[" + repeated("1,", 5'000'000) + "1]}}"},
      {"offsets", "{\"a\":{\"data_offsets\":[" + repeated("1,", 5'000'000) + "1]}}"},
      {"spaces", "{" + repeated(" ", 10'000'000) + "}"},
  };
  const ScratchFolder folder;
  for (const auto& [what, header] : headers) {
    INFO(what);
    put(folder / "x.safetensors", file_of(header));
    CHECK(times(folder / "x.safetensors", [&] { complaint([&] { SafetensorsFile(folder / "x.safetensors"); }); }) < 8);
  }
}

TEST_CASE("an error cuts a name that is long") {
  const ScratchFolder folder;
  put(folder / "x", file_of("{\"" + repeated("x", 1'000'000) + "\":{\"dtype\":\"U9\"}}"));
  CHECK(complaint([&] { SafetensorsFile(folder / "x"); }).size() < 1000);
}

}  // namespace
}  // namespace weft
