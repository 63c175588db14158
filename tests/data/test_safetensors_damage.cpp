// SPDX-License-Identifier: Apache-2.0
#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"
#include "weft/data/files/safetensors.h"
#include "weft/data/idx.h"

namespace weft {
namespace {

using Catch::Contains;

// The error of opening such a file.
std::string complaint_about(const std::string& bytes) {
  const ScratchFolder folder;
  put(folder / "x.safetensors", bytes);
  const std::string found = message_of([&] { SafetensorsFile(folder / "x.safetensors"); });
  if (found != "nothing") CHECK_THAT(found, Contains((folder / "x.safetensors").string()));
  return found;
}
std::string complaint_about(const std::string& header, const std::string& data) {
  return complaint_about(file_of(header, data));
}

std::string weft_file(const NamedTensors& tensors, const Metadata& metadata) {
  const ScratchFolder folder;
  write_safetensors(folder / "x.safetensors", tensors, metadata);
  return contents(folder / "x.safetensors");
}

TEST_CASE("a file that is not a safetensors file is refused") {
  CHECK_THAT(message_of([] { SafetensorsFile("/nowhere/x"); }), Contains("/nowhere/x: cannot be opened: No such file"));
  CHECK_THROWS_AS(SafetensorsFile("/nowhere/x"), MissingInput);
  CHECK_THROWS_AS(SafetensorsFile("/"), MalformedInput);
  CHECK_THAT(complaint_about(""), Contains("only 0 bytes"));
  CHECK_THAT(complaint_about("1234567"), Contains("only 7 bytes"));
  CHECK_THAT(complaint_about(file_of("{}", "", 3)), Contains("a header of 3 bytes in a file of 10"));
  CHECK_THAT(complaint_about(file_of("{}", "", UINT64_MAX)), Contains("a header of 18446744073709551615 bytes"));
  CHECK_THAT(complaint_about(file_of("", "")), Contains("does not begin with '{'"));
  CHECK_THAT(complaint_about(file_of(" {}")), Contains("does not begin with '{'"));
  CHECK_THAT(complaint_about(file_of("{}\n")), Contains("something follows"));
  CHECK_THAT(complaint_about(file_of("{} {}")), Contains("something follows"));
  CHECK_THAT(complaint_about(file_of("{", "")), Contains("byte 9"));
}

TEST_CASE("a safetensors header longer than 100 million bytes is refused") {
  const ScratchFolder folder;
  put(folder / "x", file_of("{", "", 100'000'001));
  std::filesystem::resize_file(folder / "x", 200'000'000);  // sparse: takes no space
  CHECK_THROWS_WITH(SafetensorsFile(folder / "x"), Contains("a header of 100000001 bytes"));
}

// A header with one tensor of two bytes, with one part replaced.
std::string header(const std::string& shape, const std::string& offsets, const std::string& dtype = "\"U8\"") {
  return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

TEST_CASE("a safetensors header with impossible sizes is refused") {
  CHECK(complaint_about(header("[2]", "[0,2]"), "ab") == "nothing");
  const auto check = [](const std::string& shape, const std::string& offsets, const std::string& expected) {
    CHECK_THAT(complaint_about(header(shape, offsets), "ab"), Contains(expected));
  };
  check("[3]", "[0,2]", "\"a\" does not need the 2 bytes");
  check("[2]", "[0,3]", "does not need the 3 bytes");
  check("[]", "[0,2]", "does not need the 2 bytes");
  check("[1]", "[1,2]", "begins at 1 of the data, not at 0");
  check("[1]", "[0,1]", "promises 1 bytes of data, but 2 follow");
  check("[3]", "[0,3]", "promises 3 bytes of data, but 2 follow");
  check("[2]", "[2,0]", "ends before it begins");
  check("[18446744073709551614]", "[2,0]", "an extent of 18446744073709551614");
  check("[4294967296,4294967296]", "[0,0]", "a shape that is too large");
  check("[4294967296,4294967296,0]", "[0,2]", "a shape that is too large");
  check("[4611686018427387904,2,0]", "[0,0]", "a shape that is too large");
  check("[9223372036854775807,2]", "[0,2]", "a shape that is too large");
  check("[1,1,1,1,1,1,2]", "[0,2]", "more than 6 axes");
  check("[0]", "[1,1]", "begins at 1 of the data");
  for (const char* number : {"-2", "2.0", "2e0", "02", "\"2\"", "", "18446744073709551616", "null", "[2]", "+2", "0x2"})
    check("[" + std::string(number) + (*number ? "]" : ",]"), "[0,2]", "a whole number is needed");
  check("[2]", "[0,-2]", "a whole number is needed");
  check("[2]", "[0]", "data_offsets needs two numbers");
  check("[2]", "[]", "data_offsets needs two numbers");
  check("[2]", "[0,2,2]", "data_offsets needs two numbers");
  check("2", "[0,2]", "'[' is missing");
  CHECK_THAT(complaint_about(header("[1]", "[0,2]", "\"F8_E4M3\""), "ab"), Contains("type \"F8_E4M3\", but only F32"));
  CHECK_THAT(complaint_about(header("[1]", "[0,2]", "16"), "ab"), Contains("'\"' is missing"));
}

TEST_CASE("a safetensors file whose tensors overlap or leave a gap is refused") {
  const auto two = [](const std::string& first, const std::string& second) {
    return "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" + first +
           "},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" + second + "}}";
  };
  CHECK(complaint_about(two("[0,2]", "[2,4]"), "abcd") == "nothing");
  CHECK(complaint_about(two("[2,4]", "[0,2]"), "abcd") == "nothing");
  CHECK_THAT(complaint_about(two("[0,2]", "[1,3]"), "abc"), Contains("\"b\" begins at 1 of the data, not at 2"));
  CHECK_THAT(complaint_about(two("[0,2]", "[0,2]"), "ab"), Contains("begins at 0 of the data, not at 2"));
  CHECK_THAT(complaint_about(two("[3,5]", "[0,2]"), "abcde"), Contains("\"a\" begins at 3 of the data, not at 2"));
}

TEST_CASE("a safetensors header that is not exactly the expected JSON is refused") {
  const std::string a = "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  const auto check = [](const std::string& header, const std::string& expected) {
    CHECK_THAT(complaint_about(header, ""), Contains(expected));
  };
  check("{" + a + "," + a + "}", "the key \"a\" comes twice");
  check("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", "the key \"k\" comes twice");
  check("{\"__metadata__\":{},\"__metadata__\":{}}", "the key \"__metadata__\" comes twice");
  check("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        "the key \"dtype\" comes twice");
  check("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", "tensor \"a\" lacks data_offsets");
  check("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":0}}", "unknown member \"x\"");
  check("{\"__metadata__\":{\"k\":1}}", "'\"' is missing");
  check("{\"__metadata__\":{\"k\":{\"l\":\"1\"}}}", "'\"' is missing");
  check("{" + a + ",}", "'\"' is missing");
  check("{" + a, "'}' is missing");
  check("{\"a\"}", "':' is missing");
  check("{\"a", "ends within a string");
  check("{\"a\\", "ends within a string");
  check("{\"\\x\":", "no such escape");
  check("{\"\\u12\":", "\\u without four digits");
  check("{\"\\u12g4\":", "\\u without four digits");
  check("{\"\\ud83d\":", "half of a surrogate pair");
  check("{\"\\ud83d\\u0041\":", "half of a surrogate pair");
  check("{\"\\ude00\":", "half of a surrogate pair");
  check("{\"a\nb\":", "control character");
  for (const char* text :
       {"\x80", "\xc0\xaf", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff"})
    check("{\"" + std::string(text) + "\":", "not UTF-8");
}

TEST_CASE("truncating an open safetensors file is detected") {
  const ScratchFolder folder;
  std::filesystem::copy(std::string(WEFT_TEST_FILES) + "/python.safetensors", folder / "x");
  const SafetensorsFile file(folder / "x");
  std::filesystem::resize_file(folder / "x", 480);
  CHECK_NOTHROW(file.read("count"));
  CHECK_THROWS_WITH(file.read("weight"), Contains("byte 480: the file ends here"));
}

// Whether opening and reading the whole file throws an Error.
bool refused(const std::filesystem::path& path, const std::string& bytes) {
  put(path, bytes);
  return message_of([&] { open_checkpoint(path); }) != "nothing";
}

TEST_CASE("every flipped bit of a checkpoint is detected") {
  const ScratchFolder folder;
  const std::string sound = weft_file(sample(), {{"step", "7"}});
  REQUIRE_FALSE(refused(folder / "x", sound));
  for (size_t i = 0; i < sound.size() * 8; ++i) {
    std::string changed = sound;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ 1 << i % 8);
    if (!refused(folder / "x", changed)) FAIL("bit " << i % 8 << " of byte " << i / 8);
  }
}

TEST_CASE("every truncation and extension of a checkpoint is detected") {
  const ScratchFolder folder;
  const std::string sound = weft_file(sample(), {{"step", "7"}});
  for (size_t length = 0; length < sound.size(); ++length)
    if (!refused(folder / "x", sound.substr(0, length))) FAIL("cut to " << length << " bytes");
  for (const char added : {'\0', ' ', '}'}) CHECK(refused(folder / "x", sound + added));
}

TEST_CASE("random bytes in a checkpoint are detected") {
  const ScratchFolder folder;
  const std::string sound = weft_file(sample(), {{"step", "7"}});
  const Random random{.seed = 5};
  for (uint64_t i = 0; i < 2000; ++i) {
    std::string changed = sound;
    const uint64_t draw = random.fork(i).stream, count = 1 + draw % 8;
    for (uint64_t k = 0; k < count; ++k) {
      const uint64_t word = random.fork(i).fork(k).stream;
      changed[word % changed.size()] = static_cast<char>(word >> 40);
    }
    if (changed != sound && !refused(folder / "x", changed)) FAIL("change " << i);
  }
}

TEST_CASE("a mutated safetensors header is accepted only if its tensors tile the data") {
  const std::string sound = contents(std::string(WEFT_TEST_FILES) + "/python.safetensors");
  const uint64_t length = *reinterpret_cast<const uint64_t*>(sound.data()), data = sound.size() - 8 - length;
  const std::vector<std::string> tokens = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "\"",
                                           "\\",
                                           "0",
                                           "-1",
                                           "18446744073709551615",
                                           "\"dtype\"",
                                           "\"shape\":[]",
                                           "\\ud800",
                                           "\xf0\x9f",
                                           " ",
                                           "57",
                                           "24"};
  const Random random{.seed = 6};
  int understood = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string text = sound.substr(8, length);
    const uint64_t changes = 1 + random.fork(i).stream % 3;
    for (uint64_t k = 0; k < changes; ++k) {
      const uint64_t word = random.fork(i).fork(k).stream;
      text.replace(word % text.size(), word >> 32 & 7, tokens[(word >> 40) % tokens.size()]);
    }
    try {
      uint64_t total = 0;
      for (const auto& entry : parse_safetensors_header(text, data, "x").tensors) {
        if (entry.end > data ||
            entry.end - entry.begin != static_cast<uint64_t>(entry.shape.size()) * size_of(entry.dtype))
          FAIL(text);
        total += entry.end - entry.begin;
      }
      if (total != data) FAIL(text);
      ++understood;
    } catch (const MalformedInput&) {
    }
  }
  CHECK(understood > 100);  // else only the first character was ever tried
}

}  // namespace
}  // namespace weft
