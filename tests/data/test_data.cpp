// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>

#include "tests/support/catch.h"
#include "weft/data/batches.h"
#include "weft/data/fashion_mnist.h"
#include "weft/data/idx.h"
#include "weft/engine/tensor/pool.h"

namespace weft {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// A folder that is removed with its test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "weft_data_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
};

std::string gzip(const std::string& bytes) {
  std::string packed(bytes.size() + 1000, '\0');
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<unsigned>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string header(std::initializer_list<uint32_t> extents, char type = 0x08) {
  std::string bytes{0, 0, type, static_cast<char>(extents.size())};
  for (const uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  return bytes;
}

std::string counting(int size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  return bytes;
}

// The error of reading a file with these bytes.
std::string complaint(const std::string& bytes) {
  const Folder folder;
  try {
    read_idx(folder.write("values.gz", bytes));
  } catch (const MalformedInput& error) {
    CHECK_THAT(error.what(), Contains((folder.path / "values.gz").string()));
    return error.what();
  }
  return "nothing";
}

TEST_CASE("a gzipped IDX file gives its bytes in its shape") {
  const Folder folder;
  const Tensor values = read_idx(folder.write("values.gz", gzip(header({2, 3, 4}) + counting(24))));
  CHECK(values.shape() == Shape{2, 3, 4});
  CHECK(values.dtype() == DType::u8);
  CHECK(values.values()[23] == 23);
}

TEST_CASE("an IDX file can be uncompressed, or have no values") {
  const Folder folder;
  CHECK(read_idx(folder.write("plain", header({5}) + counting(5))).size() == 5);
  CHECK(read_idx(folder.write("empty", gzip(header({0, 28, 28})))).shape() == Shape{0, 28, 28});
}

TEST_CASE("an error about a missing file names it and says what to do") {
  CHECK_THROWS_WITH(read_idx("/nowhere/x.gz", "look elsewhere"), "/nowhere/x.gz: no such file; look elsewhere");
  CHECK_THROWS_AS(read_idx("/nowhere/x.gz"), MissingInput);
  CHECK_THROWS_AS(read_idx("/"), MalformedInput);
}

TEST_CASE("a file other than an IDX file of bytes is refused") {
  CHECK_THAT(complaint(""), Contains("not an IDX file"));
  CHECK_THAT(complaint("GIF89a, not gzip either"), Contains("not an IDX file"));
  CHECK_THAT(complaint(gzip("\1\2\3\4")), Contains("not an IDX file"));
  CHECK_THAT(complaint(gzip(header({2}, 0x0d) + counting(8))), Contains("IDX type 13"));
  CHECK_THAT(complaint(gzip(header({}))), Contains("IDX rank 0"));
  CHECK_THAT(complaint(gzip(header({1, 1, 1, 1, 1}) + counting(1))), Contains("IDX rank 5"));
  CHECK_THAT(complaint(gzip(header({2, 3}).substr(0, 9))), Contains("within its header"));
}

TEST_CASE("an IDX file with too few or too many bytes is refused") {
  CHECK_THAT(complaint(gzip(header({2, 3}) + counting(5))), Contains("promises 6 bytes, but only 5 follow"));
  CHECK_THAT(complaint(gzip(header({2, 3}) + counting(7))), Contains("bytes follow after the 6"));
}

TEST_CASE("an IDX header with absurd extents is refused before memory is allocated") {
  const auto live = [] { return pool::statistics().peak_bytes; };
  const int64_t before = live();
  CHECK_THAT(complaint(gzip(header({~0u, ~0u, ~0u, ~0u}))), Contains("promises more than"));
  CHECK_THAT(complaint(gzip(header({~0u}))), Contains("promises more than"));
  CHECK(live() < before + (1 << 20));
  const Folder folder;
  CHECK_THROWS_AS(read_idx(folder.write("x", header({100}) + counting(100)), "", 99), MalformedInput);
}

TEST_CASE("a truncated gzip stream is refused wherever it ends") {
  const std::string whole = gzip(header({100}) + counting(100));
  for (size_t length = 12; length < whole.size(); ++length) {
    INFO("cut to " << length << " of " << whole.size());
    CHECK_THAT(complaint(whole.substr(0, length)), Contains("truncated"));
  }
}

TEST_CASE("a corrupt gzip stream is refused wherever the damage is") {
  const std::string whole = gzip(header({100}) + counting(100));
  for (size_t i = 10; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    INFO("byte " << i << " of " << whole.size());
    CHECK(complaint(damaged) != "nothing");
  }
}

// A folder with a Fashion-MNIST of five images and the given label files.
void write_dataset(const Folder& folder, const std::string& labels) {
  for (const std::string part : {"train", "t10k"}) {
    folder.write(part + "-images-idx3-ubyte.gz", gzip(header({5, 28, 28}) + counting(5 * 28 * 28)));
    folder.write(part + "-labels-idx1-ubyte.gz", gzip(labels));
  }
}

TEST_CASE("a dataset folder gives images with a channel axis and labels") {
  const Folder folder;
  write_dataset(folder, header({5}) + std::string("\0\x9\1\2\3", 5));
  const Pictures data = load_fashion_mnist(folder.path);
  CHECK(data.train.images.shape() == Shape{5, 28, 28, 1});
  CHECK(data.test.labels.dtype() == DType::i64);
  CHECK(data.test.labels.values() == std::vector<double>{0, 9, 1, 2, 3});
}

TEST_CASE("a dataset with labels that do not match is refused") {
  const Folder folder;
  write_dataset(folder, header({5}) + std::string("\0\xa\1\2\3", 5));
  CHECK_THROWS_WITH(load_fashion_mnist(folder.path), Contains("is 10, which is no class from 0 to 9"));
  write_dataset(folder, header({4}) + counting(4));
  CHECK_THROWS_WITH(load_fashion_mnist(folder.path), Contains("5 labels are needed, one per image, not (4)"));
}

TEST_CASE("a dataset with images of another size is refused") {
  const Folder folder;
  write_dataset(folder, header({5}) + counting(5));
  folder.write("train-images-idx3-ubyte.gz", gzip(header({5, 2, 2}) + counting(20)));
  CHECK_THROWS_WITH(load_fashion_mnist(folder.path), Contains("28 x 28 are needed, not (5, 2, 2)"));
  folder.write("train-images-idx3-ubyte.gz", gzip(header({0, 28, 28})));
  CHECK_THROWS_WITH(load_fashion_mnist(folder.path), Contains("28 x 28 are needed, not (0, 28, 28)"));
}

TEST_CASE("a dataset of more than 262,144 images is refused before memory is allocated") {
  const Folder folder;
  write_dataset(folder, header({5}) + counting(5));
  std::string incompressible;  // incompressible, so that the file could unpack to the size in its header
  for (uint64_t i = 0; i < 40'000; ++i) incompressible += std::to_string(Random{.seed = 1}.fork(i).stream);
  folder.write("train-images-idx3-ubyte.gz", gzip(header({262'145, 28, 28}) + incompressible));
  const int64_t before = pool::statistics().peak_bytes;
  CHECK_THROWS_WITH(load_fashion_mnist(folder.path), Contains("promises more than 205520896 bytes"));
  CHECK(pool::statistics().peak_bytes < before + (1 << 20));
}

TEST_CASE("an error about a missing dataset says how to get it") {
  const Folder folder;
  CHECK_THROWS_WITH(load_fashion_mnist(folder.path), Contains("dataset-fashion-mnist") && Contains("--data"));
}

TEST_CASE("an epoch visits every sample once, in batches of which the last may be smaller") {
  const Epoch epoch(103, 10, 7, 0);
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < epoch.steps(); ++step)
    for (const int64_t sample : epoch.batch(step)) seen.push_back(sample);
  CHECK(epoch.steps() == 11);
  CHECK(epoch.batch(10).size() == 3);
  CHECK_FALSE(std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  std::vector<int64_t> all(103);
  std::iota(all.begin(), all.end(), 0);
  CHECK(seen == all);
}

TEST_CASE("the order of an epoch depends only on seed and epoch") {
  const auto order = [](int64_t batch, uint64_t seed, uint64_t epoch) {
    const Epoch e(50, batch, seed, epoch);
    return std::vector<int64_t>(e.order().begin(), e.order().end());
  };
  CHECK(order(5, 1, 2) == order(7, 1, 2));
  CHECK(order(5, 1, 2) != order(5, 1, 3));
  CHECK(order(5, 1, 2) != order(5, 2, 2));
}

TEST_CASE("every sample is equally likely to come first") {
  std::vector<int> first(5, 0);
  for (uint64_t epoch = 0; epoch < 5000; ++epoch) ++first[static_cast<size_t>(Epoch(5, 1, 3, epoch).order()[0])];
  for (const int count : first) CHECK(std::abs(count - 1000) < 130);  // more than four standard deviations
}

TEST_CASE("invalid epochs and batches are refused") {
  CHECK_THROWS_AS(Epoch(10, 0, 1, 1), Error);
  CHECK_THROWS_AS(Epoch(10, 5, 1, 1).batch(2), Error);
  CHECK(Epoch(0, 5, 1, 1).steps() == 0);
}

TEST_CASE("a batch holds the selected samples, scaled to 0 to 1") {
  const LabelledImages data{Tensor::from({3, 1, 2, 1}, {0, 255, 51, 102, 1, 2}, DType::u8),
                            Tensor::from({3}, {7, 8, 9}, DType::i64)};
  const std::vector<int64_t> samples{1, 0, 1};
  const Batch batch = take(data, samples, DType::f64);
  CHECK(batch.images.shape() == Shape{3, 1, 2, 1});
  CHECK(batch.images.values() == std::vector<double>{0.2, 0.4, 0, 1, 0.2, 0.4});
  CHECK(batch.labels.values() == std::vector<double>{8, 7, 8});
  CHECK(take(data, samples, DType::bf16).images.values()[3] == 1);
  CHECK_THROWS_WITH(take(data, std::vector<int64_t>{3}), "take: sample 3 of 3");
}

TEST_CASE("Debian's Fashion-MNIST has the published counts") {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) return;
  const Pictures data = load_fashion_mnist("/usr/share/datasets/fashion-mnist");
  CHECK(data.train.count() == 60000);
  CHECK(data.test.count() == 10000);
  const std::vector<double> labels = data.test.labels.values();
  for (int c = 0; c < 10; ++c) CHECK(std::count(labels.begin(), labels.end(), c) == 1000);
}

}  // namespace
}  // namespace weft
