// SPDX-License-Identifier: Apache-2.0
#include "weft/data/numpy/npy.h"

#include <cmath>

#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"

namespace weft {
namespace {

using Catch::Contains;

const std::string numpys = std::string(WEFT_TEST_FILES) + "/npy/";

std::string npy(const std::string& dictionary, const std::string& data = "") {
  return std::string("\x93NUMPY\2\0", 8) + file_of(dictionary, data).erase(4, 4);  // 8 bytes that give the length
}
std::string npy_of(const std::string& descr, const std::string& shape, const std::string& data) {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}", data);
}

Tensor read_bytes(const std::string& bytes) {
  const ScratchFolder folder;
  put(folder / "x.npy", bytes);
  return read_npy(folder / "x.npy");
}
std::string refusal(const std::string& bytes) {
  return message_of([&] { read_bytes(bytes); });
}

TEST_CASE("a .npy file reads back bit by bit for every type and shape") {
  const ScratchFolder folder;
  for (const DType dtype : {DType::f32, DType::f64, DType::i64, DType::u8}) {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{2, 3}, Shape{0, 5}, Shape{1, 2, 1, 2, 1, 3}, Shape{50, 999}}) {
      const Tensor values = bytes_as(shape, dtype, 1);
      INFO(text(dtype) << " " << text(shape));
      write_npy(folder / "x.npy", values);
      CHECK(same_bits(read_npy(folder / "x.npy"), values));
      CHECK(contents(folder / "x.npy").find('\n') % 64 == 63);  // aligned for readers that map the file
    }
  }
  const Tensor rows = bytes_as({4, 3}, DType::f32, 1).slice(1, 3);
  write_npy(folder / "x.npy", rows);
  CHECK(same_bits(read_npy(folder / "x.npy"), rows));
}

TEST_CASE("a .npy file is written as NumPy writes it") {
  const ScratchFolder folder;
  for (const char* name : {"f4.npy", "i8.npy", "scalar.npy"}) {
    INFO(name);
    write_npy(folder / name, read_npy(numpys + name));
    CHECK(contents(folder / name) == contents(numpys + name));
  }
}

TEST_CASE("NumPy's .npy files are read in either byte order and either memory order") {
  const auto shown = [](const std::string& name) { return text(read_npy(numpys + name)); };
  CHECK(shown("f4.npy") == "f32 (2, 3) on cpu [[1.5, -2.25, 3e-40], [inf, -0, 6]]");
  CHECK(read_npy(numpys + "f8_big_endian.npy").values() == std::vector<double>{1.0 / 3, -1e300});
  CHECK(*read_npy(numpys + "i8.npy").data<int64_t>() == -(int64_t{1} << 62) - 1);
  CHECK(shown("scalar.npy") == "f64 () on cpu 2.5");
  CHECK(read_npy(numpys + "empty.npy").shape() == Shape{0, 4});
  CHECK(shown("version_2.npy") == "u8 (3) on cpu [7, 8, 9]");
  CHECK(shown("version_3.npy") == "u8 (3) on cpu [7, 8, 9]");
  CHECK(same_bits(read_npy(numpys + "fortran.npy"), Tensor::arange(24).reshape({2, 3, 4})));
  CHECK(same_bits(read_npy(numpys + "six_axes_big_endian_fortran.npy"), Tensor::arange(8).reshape({1, 2, 1, 2, 2, 1})));
}

TEST_CASE("column-major values in a .npy file that exceed a read block come out row-major") {
  const int64_t rows = 300, columns = 700;
  std::string data;
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) data.append({static_cast<char>(i), static_cast<char>(j), 0, 0});
  const Tensor values = read_bytes(npy("{'descr': '<i4', 'fortran_order': True, 'shape': (300, 700)}", data));
  bool equal = true;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      equal &= values.data<int64_t>()[i * columns + j] == (i & 255) + (j & 255) * 256;
  CHECK(equal);
}

TEST_CASE("f16 values in a .npy file are read as the equal f32 values") {
  const Tensor named = read_npy(numpys + "f2.npy");
  const float* values = named.data<float>();
  const float expected[] = {1, -2.5, 65504, 0x1p-24f, -0x1.ff8p-15f, INFINITY, -0.0f};
  for (int i = 0; i < 7; ++i) CHECK(std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(expected[i]));
  CHECK(std::isnan(values[7]));
  CHECK(values[8] == 0.333251953125f);

  std::string all;
  for (int bits = 0; bits < 1 << 16; ++bits) all += {static_cast<char>(bits), static_cast<char>(bits >> 8)};
  const Tensor halves = read_bytes(npy_of("<f2", "(65536,)", all));
  int wrong = 0;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    const double value = exponent < 31 ? size : fraction == 0 ? INFINITY : NAN;
    const float got = halves.data<float>()[bits];
    wrong += std::isnan(value) ? !std::isnan(got) : got != (bits < 1 << 15 ? value : -value);
    wrong += std::signbit(got) != (bits >= 1 << 15);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a .npy header dictionary is parsed like Python does") {
  const std::string plain = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
  for (const std::string& dictionary :
       {plain, plain + "  \t\n", std::string("{\"shape\":(2,),\"fortran_order\":True,\"descr\":\"<u1\"}"),
        std::string(" {'fortran_order' :False,\n'descr': '>u1' , 'shape': ( 2 , ) , } ")}) {
    INFO(dictionary);
    CHECK(message_of([&] {
            CHECK(read_bytes(npy(dictionary, "ab")).values() == std::vector<double>{'a', 'b'});
          }) == "nothing");
  }
  CHECK(read_bytes(npy_of("|u1", "(2, 0,)", "")).shape() == Shape{2, 0});
  CHECK(message_of([&] { read_bytes(npy(plain + std::string(10'000 - plain.size(), ' '), "ab")); }) == "nothing");
  CHECK_THAT(refusal(npy(plain + std::string(10'001 - plain.size(), ' '), "ab")), Contains("a header of 10001 bytes"));
}

TEST_CASE("types without a counterpart in a .npy file are refused by name, and so are bad values") {
  const auto of = [](const std::string& name) { return message_of([&] { read_npy(numpys + name); }); };
  CHECK_THAT(of("complex.npy"), Contains("complex.npy: type \"<c16\" (complex numbers), but only f2"));
  CHECK_THAT(of("text.npy"), Contains("type \"<U1\" (texts)"));
  CHECK_THAT(of("record.npy"), Contains("byte 20: a structured type"));
  CHECK_THAT(of("above_i64.npy"), Contains("value 2 is above 2^63 - 1, the largest i64"));
  CHECK_THAT(refusal(npy_of("|O", "(1,)", "ab")), Contains("type \"|O\" (Python objects)"));
  CHECK_THAT(refusal(npy_of("<V2", "(1,)", "ab")), Contains("type \"<V2\" (raw bytes)"));
  CHECK_THAT(refusal(npy_of("|f4", "(1,)", "abcd")), Contains("type \"|f4\", but only"));
  CHECK_THAT(refusal(npy_of("|b1", "(3,)", std::string("\0\1\2", 3))), Contains("value 2 is neither 0 nor 1"));
}

TEST_CASE("a .npy file truncated anywhere is refused") {
  for (const char* name : {"f4.npy", "version_3.npy", "scalar.npy"}) {
    const std::string whole = contents(numpys + name);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      INFO(name << ", " << bytes << " bytes");
      CHECK(refusal(whole.substr(0, bytes)) != "nothing");
    }
    CHECK_THAT(refusal(whole + "x"), Contains("follow"));
  }
}

TEST_CASE("a missing .npy file is an error, and so is a folder") {
  CHECK_THROWS_AS(read_npy("/nowhere/x.npy"), MissingInput);
  CHECK_THROWS_WITH(read_npy("/nowhere/x.npy"), Contains("/nowhere/x.npy: cannot be opened"));
  CHECK_THROWS_AS(read_npy("/"), MalformedInput);
}

TEST_CASE("types that NumPy does not have are not written to a .npy file") {
  const ScratchFolder folder;
  const auto refused = [&](const Tensor& x) { return message_of([&] { write_npy(folder / "x.npy", x); }); };
  CHECK_THAT(refused(Tensor()), Contains("write_npy: ") && Contains("is undefined"));
  CHECK_THAT(refused(Tensor::zeros({2}, DType::bf16)), Contains("NumPy has no bf16; write x.to(DType::f32)"));
  CHECK(std::filesystem::is_empty(folder.path));
}

}  // namespace
}  // namespace weft
