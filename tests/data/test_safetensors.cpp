// SPDX-License-Identifier: Apache-2.0
#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"
#include "weft/data/files/checksum.h"
#include "weft/data/files/safetensors.h"

namespace weft {
namespace {

using Catch::Contains;

TEST_CASE("checkpoint checksums match XXH64") {
  CHECK(checksum("", 0) == 0xef46db3751d8e999);
  CHECK(checksum("abc", 3) == 0x44bc2cf5ad770999);
  std::string text(101, '\0');
  std::iota(text.begin(), text.end(), '\0');
  CHECK(checksum(text.data(), 32) == 0xcbf59c5116ff32b4);
  CHECK(checksum(text.data(), 101) == 0xe99038495f85381e);
  Checksum pieces;
  pieces.add(text.data(), 64);
  pieces.add(text.data() + 64, 37);
  CHECK(pieces.value() == checksum(text.data(), 101));
  CHECK_THROWS_AS(pieces.add(text.data(), 1), Error);
}

TEST_CASE("a safetensors file reads back bit by bit, in order, with its metadata") {
  const ScratchFolder folder;
  const Metadata metadata = {{"", "empty key"}, {"seed", "42"}, {"note", "line\nZoë \"😀\" \\ \x7f"}};
  write_safetensors(folder / "x", sample(), metadata);
  const SafetensorsFile file(folder / "x");
  CHECK(holds(file, sample()));
  CHECK(file.metadata() == metadata);
  CHECK(file.metadata("seed") == "42");
  CHECK(file.checked());
  CHECK_NOTHROW(file.verify());
}

TEST_CASE("numbers in f16 are read from a safetensors file as f32, all of them or a range") {
  const ScratchFolder folder;
  std::string bytes;
  for (int i = 0; i < 1 << 16; ++i) bytes += {static_cast<char>(i), static_cast<char>(i >> 8)};
  put(folder / "x", file_of(R"({"a":{"dtype":"F16","shape":[256,256],"data_offsets":[0,131072]}})") + bytes);
  const SafetensorsFile file(folder / "x");
  const Tensor all = file.read("a");
  REQUIRE(all.dtype() == DType::f32);
  CHECK(all.shape() == Shape{256, 256});
  const auto expected = [](int bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                        : exponent == 0 ? std::ldexp(fraction, -24)
                                        : std::ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -size : size;
  };
  const auto as_expected = [&](int bits, float value) {
    const double wanted = expected(bits);
    return std::isnan(wanted) ? std::isnan(value) : value == wanted && std::signbit(value) == (bits >> 15 == 1);
  };
  for (int i = 0; i < 1 << 16; ++i)
    if (!as_expected(i, all.data<float>()[i])) FAIL("bits " << i << " are read as " << all.data<float>()[i]);
  std::vector<float> range(777);
  file.read(file.tensors()[0], 20'001, std::ssize(range), range.data());
  for (int i = 0; i < std::ssize(range); ++i) CHECK(as_expected(20'001 + i, range[static_cast<size_t>(i)]));
  CHECK_NOTHROW(file.verify());
  CHECK_THROWS_WITH(file.verify(true), Contains("element 31744, is not finite"));
}

TEST_CASE("tensors longer than a read block are read back from a safetensors file") {
  const ScratchFolder folder;
  const NamedTensors large = {{"a", bytes_as({(3 << 20) + 5}, DType::u8, 1)},
                              {"b", bytes_as({1 << 18}, DType::f64, 2)}};
  write_safetensors(folder / "x", large, {});
  const SafetensorsFile file(folder / "x");
  CHECK(holds(file, large));
  CHECK_NOTHROW(file.verify());
}

TEST_CASE("a view is written to a safetensors file with the elements that it shows") {
  const ScratchFolder folder;
  const Tensor whole = bytes_as({4, 3}, DType::f32, 1);
  write_safetensors(folder / "x", NamedTensors{{"rows", whole.slice(1, 3)}}, {});
  CHECK(same_bits(SafetensorsFile(folder / "x").read("rows"), whole.slice(1, 3)));
}

TEST_CASE("a safetensors file may contain no tensors") {
  const ScratchFolder folder;
  write_safetensors(folder / "x", {}, {{"only", "words"}});
  CHECK(SafetensorsFile(folder / "x").tensors().empty());
  put(folder / "y", file_of("{}"));
  CHECK(SafetensorsFile(folder / "y").metadata().empty());
}

TEST_CASE("every tensor in a safetensors file is aligned to its type, for readers that map the file") {
  const ScratchFolder folder;
  write_safetensors(folder / "x", sample(), {{"seed", "1"}});
  const SafetensorsFile file(folder / "x");
  const std::string bytes = contents(folder / "x");
  CHECK(*reinterpret_cast<const uint64_t*>(bytes.data()) % 8 == 0);
  for (const auto& entry : file.tensors()) CHECK(entry.begin % size_of(entry.dtype) == 0);
}

TEST_CASE("a safetensors file written by Python is read") {
  const SafetensorsFile file(std::string(WEFT_TEST_FILES) + "/python.safetensors");
  CHECK_FALSE(file.checked());
  CHECK(file.metadata() == Metadata{{"step", "120"}, {"who", "Zoë \\ \"π\" 😀\t"}});
  CHECK(file.tensors().size() == 6);
  CHECK(text(file.read("weight")) == "f32 (2, 3) on cpu [[1.5, -2.25, 3e-40], [inf, -0, 6]]");
  CHECK(file.read("précision \"f64\"\n").values() == std::vector<double>{1.0 / 3, -1e300});
  CHECK(text(file.read("half")) == "bf16 (3) on cpu [1, -2.5, 3.14062]");
  CHECK(*file.read("count").data<int64_t>() == -(int64_t{1} << 62) - 1);
  CHECK(file.read("bytes").values() == std::vector<double>{0, 127, 255});
  CHECK(file.read("empty").shape() == Shape{0, 4});
  CHECK_THROWS_WITH(file.read("bias"), Contains("there is no tensor \"bias\""));
  CHECK_THROWS_WITH(file.metadata("seed"), Contains("the metadata have no \"seed\""));
}

TEST_CASE("JSON escapes and white space in a safetensors header are parsed") {
  const ScratchFolder folder;
  put(folder / "x",
      file_of("{ \"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\\\"\\\\\\/\\b\\f\\n\\r\\t\"\t:\r\n{\"shape\" : [ 1 , 2 ],"
              "\"data_offsets\":[0,2], \"dtype\":\"U8\"} }   ",
              "ab"));
  const SafetensorsFile file(folder / "x");
  CHECK(file.tensors()[0].name == "Aé€😀\"\\/\b\f\n\r\t");
  CHECK(file.read("Aé€😀\"\\/\b\f\n\r\t").values() == std::vector<double>{'a', 'b'});
}

TEST_CASE("tensors and names that could not be read back are not written to a safetensors file") {
  const ScratchFolder folder;
  const Tensor one = Tensor::zeros({1});
  const auto refusal = [&](const NamedTensors& tensors, const Metadata& metadata) {
    return message_of([&] { write_safetensors(folder / "x", tensors, metadata); });
  };
  CHECK_THAT(refusal({{"a", one}, {"a", one}}, {}), Contains("two tensors are called \"a\""));
  CHECK_THAT(refusal({{"__metadata__", one}}, {}), Contains("two tensors are called"));
  CHECK_THAT(refusal({{"\xff", one}}, {}), Contains("is not UTF-8"));
  CHECK_THAT(refusal({{"a", Tensor()}}, {}), Contains("\"a\" is undefined"));
  CHECK_THAT(refusal({}, {{"k", "\xff"}}), Contains("are not UTF-8"));
  CHECK_THAT(refusal({}, {{"weft.xxh64", "0"}}), Contains("are for checksums"));
  Metadata many;
  for (int i = 0; i < 16'383; ++i) many[std::to_string(i)];
  write_safetensors(folder / "x", {}, many);
  CHECK(SafetensorsFile(folder / "x").metadata() == many);
  std::filesystem::remove(folder / "x");
  many["one more"];
  CHECK_THAT(refusal({}, many), Contains("16384 words of metadata, but at most 16383"));
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("a tensor is read only into a tensor with the same type and shape") {
  const ScratchFolder folder;
  write_safetensors(folder / "x", sample(), {});
  const SafetensorsFile file(folder / "x");
  Tensor other({3, 2, 4});
  Tensor nothing;
  CHECK_THROWS_AS(file.read(*file.find("layer.0.weight"), nothing), Error);
  CHECK_THROWS_WITH(file.read(*file.find("layer.0.weight"), other), Contains("is f32 (2, 3, 4), not f32 (3, 2, 4)"));
}

}  // namespace
}  // namespace weft
