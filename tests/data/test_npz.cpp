// SPDX-License-Identifier: Apache-2.0
#include "weft/data/numpy/npz.h"

#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"

namespace weft {
namespace test_npz {

using Catch::Contains;

const std::string numpys = std::string(WEFT_TEST_FILES) + "/npy/";

NamedTensors arrays() {
  NamedTensors result = sample();
  std::erase_if(result, [](const NamedTensor& x) { return x.tensor.dtype() == DType::bf16; });
  result.push_back({"long", bytes_as({300, 301}, DType::f64, 2)});
  return result;
}

// The arrays of a file, or the error of reading it.
std::string reading(const std::filesystem::path& path) {
  std::string all;
  const std::string refusal = message_of([&] {
    const NpzFile file(path);
    for (const std::string& name : file.names()) all += name + " " + text(file.read(name)) + "\n";
  });
  return refusal == "nothing" ? all : refusal;
}

TEST_CASE("a .npz file reads back bit by bit, by name") {
  const ScratchFolder folder;
  write_npz(folder / "x.npz", arrays());
  const NpzFile file(folder / "x.npz");
  const std::vector<std::string> names = file.names();
  CHECK(names.size() == arrays().size());
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const auto& [name, tensor] : arrays()) {
    INFO(name);
    CHECK(same_bits(file.read(name), tensor));
  }
  CHECK_THROWS_WITH(file.read("bias"), Contains("x.npz: there is no array \"bias\""));
  write_npz(folder / "x.npz", {});
  CHECK(NpzFile(folder / "x.npz").names().empty());
  CHECK(contents(folder / "x.npz") == contents(numpys + "none.npz"));
}

TEST_CASE("NumPy's .npz files are read, stored or deflated, written to a file or a pipe") {
  CHECK(reading(numpys + "stored.npz") ==
        "Zoë/0 i64 () on cpu 3\nweight f32 (2, 3) on cpu [[1.5, -2.25, 3e-40], [inf, -0, 6]]\n");
  CHECK(reading(numpys + "none.npz").empty());
  for (const char* name : {"streamed.npz", "streamed_deflated.npz"})
    CHECK(reading(numpys + name) == "a f64 (5) on cpu [0, 1, 2, 3, 4]\nb u8 (2, 3) on cpu [[0, 0, 0], [0, 0, 0]]\n");
  const NpzFile integers(numpys + "integers.npz");
  const auto values = [&](const std::string& name) {
    const Tensor x = integers.read(name);
    CHECK(x.dtype() == DType::i64);
    return std::vector<int64_t>(x.data<int64_t>(), x.data<int64_t>() + x.size());
  };
  using Values = std::vector<int64_t>;
  CHECK(values("i1") == Values{-128, 0, 127});
  CHECK(values("i2") == Values{-32768, 0, 32767});
  CHECK(values("i4") == Values{INT32_MIN, 0, INT32_MAX});
  CHECK(values("i8") == Values{INT64_MIN, 0, INT64_MAX});
  CHECK(values("u2") == Values{0, 0, 65535});
  CHECK(values("u4") == Values{0, 0, UINT32_MAX});
  CHECK(values("u8") == Values{0, INT64_MAX});
  CHECK(text(integers.read("u1")) == "u8 (3) on cpu [0, 0, 255]");
  CHECK(text(integers.read("b1")) == "u8 (2, 1) on cpu [[1], [0]]");
}

TEST_CASE("a .npz file with one flipped bit is refused, unless the bit does not concern the arrays") {
  const ScratchFolder folder;
  write_npz(folder / "ours.npz", NamedTensors{{"a", bytes_as({3}, DType::u8, 1)}, {"b", bytes_as({2}, DType::i64, 1)}});
  for (const std::string& name :
       {(folder / "ours.npz").string(), numpys + "stored.npz", numpys + "streamed_deflated.npz"}) {
    const std::string whole = contents(name), sound = reading(name);
    size_t refused = 0;
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
      put(folder / "damaged.npz", damaged);
      const std::string said = reading(folder / "damaged.npz");
      INFO(name << ", byte " << bit / 8 << ": " << said);
      if (said != sound) {
        ++refused;
        CHECK(said.starts_with((folder / "damaged.npz").string() + ": "));
      }
    }
    // Dates, versions and attributes do not affect arrays, nor do placeholders for sizes that follow.
    const size_t silent_bytes = 60 * NpzFile(name).names().size();
    CHECK(refused + 8 * silent_bytes >= 8 * whole.size());
  }
}

TEST_CASE("a .npz file that is truncated or extended is refused") {
  const ScratchFolder folder;
  for (const char* name : {"stored.npz", "streamed_deflated.npz"}) {
    const std::string whole = contents(numpys + name);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      INFO(name << ", " << bytes << " bytes");
      put(folder / "x.npz", whole.substr(0, bytes));
      CHECK_THROWS_AS(NpzFile(folder / "x.npz"), MalformedInput);
      put(folder / "x.npz", whole.substr(whole.size() - bytes));
      if (bytes > 22) CHECK_THROWS_AS(NpzFile(folder / "x.npz"), MalformedInput);
    }
    put(folder / "x.npz", whole + '\0');
    CHECK_THROWS_AS(NpzFile(folder / "x.npz"), MalformedInput);
  }
}

TEST_CASE("a missing .npz file is an error, and so is a folder") {
  CHECK_THROWS_AS(NpzFile("/nowhere/x.npz"), MissingInput);
  CHECK_THROWS_AS(NpzFile("/"), MalformedInput);
}

TEST_CASE("arrays that could not be read back are not written to a .npz file") {
  const ScratchFolder folder;
  const Tensor one = Tensor::zeros({1});
  const auto refused = [&](const NamedTensors& x) { return message_of([&] { write_npz(folder / "x.npz", x); }); };
  CHECK_THAT(refused({{"a", one}, {"a", one}}), Contains("write_npz: two arrays are called \"a\""));
  CHECK_THAT(refused({{"../a", one}}), Contains("array \"../a\": its name leads out of the archive"));
  CHECK_THAT(refused({{"/a", one}}), Contains("its name begins with no folder or file"));
  CHECK_THAT(refused({{"\xff", one}}), Contains("its name is not UTF-8"));
  CHECK_THAT(refused({{std::string(65'532, 'x'), one}}), Contains("its name is too long"));
  CHECK_THAT(refused({{"a", one}, {"b", Tensor()}}), Contains("array \"b\": the tensor is undefined"));
  CHECK_THAT(refused({{"a", Tensor::zeros({1}, DType::bf16)}}), Contains("NumPy has no bf16"));
  CHECK(std::filesystem::is_empty(folder.path));
  write_npz(folder / "x.npz", NamedTensors{{std::string(65'531, 'x'), one}, {"..", one}, {"a..b/...", one}});
  CHECK(NpzFile(folder / "x.npz").names().size() == 3);
}

}  // namespace test_npz
}  // namespace weft
