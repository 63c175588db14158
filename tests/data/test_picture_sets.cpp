// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "tests/data/picture_files.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/descriptions.h"
#include "weft/data/files/input_file.h"
#include "weft/data/files/safetensors.h"
#include "weft/data/numpy/npz.h"
#include "weft/data/pictures/open_pictures.h"
#include "weft/data/vocabulary.h"

namespace weft {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

PictureList listed(const fs::path& folder) { return std::get<PictureList>(open_pictures({folder})); }
Pictures loaded(const fs::path& path, int64_t side = 0) { return std::get<Pictures>(open_pictures({path, side})); }

std::vector<std::string> paths(const std::vector<PictureFile>& files) {
  std::vector<std::string> all;
  for (const PictureFile& file : files) all.push_back(file.path);
  return all;
}

void touch(const ScratchFolder& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) write_bytes(folder / name, "x");
}

TEST_CASE("classes are folders, in the order of their names, and what is below them belongs to them") {
  const ScratchFolder folder;
  touch(folder, {"train/b/1.png", "train/a/deep/2.JPG", "test/a/3.jpeg", "train/b/notes.txt", "train/.hidden/4.png"});
  const PictureList list = listed(folder.path);
  CHECK(list.classes == std::vector<std::string>{"a", "b"});
  CHECK(paths(list.train) == std::vector<std::string>{"train/a/deep/2.JPG", "train/b/1.png"});
  CHECK(list.train[1].label == 1);
  CHECK(paths(list.test) == std::vector<std::string>{"test/a/3.jpeg"});
  CHECK(list.test[0].label == 0);
  CHECK(list.notes == std::vector<std::string>{"other files: 1, left out"});
}

TEST_CASE("pictures without folders have no classes, nor have those of one folder") {
  for (const bool below : {false, true}) {
    const ScratchFolder folder;
    for (int i = 0; i < 40; ++i) write_bytes(folder / ((below ? "all/" : "") + std::to_string(i) + ".png"), "x");
    const PictureList list = listed(folder.path);
    CHECK(list.classes.empty());
    CHECK(list.train[0].label == -1);
    CHECK(list.train.size() + list.test.size() == 40);
  }
}

TEST_CASE("a tenth is kept for tests, and a picture stays in its part when others are added") {
  const ScratchFolder folder;
  const auto add = [&](int first, int last) {
    for (int i = first; i < last; ++i)
      write_bytes(folder / (std::to_string(i % 3) + "/" + std::to_string(i) + ".png"), "x");
  };
  add(0, 500);
  const PictureList before = listed(folder.path);
  CHECK(before.test.size() >= 30);
  CHECK(before.test.size() <= 70);
  add(500, 1000);
  const auto after = paths(listed(folder.path).test);
  for (const std::string& path : paths(before.test)) CHECK(std::find(after.begin(), after.end(), path) != after.end());
  for (const std::string& path : paths(before.train)) CHECK(std::find(after.begin(), after.end(), path) == after.end());
}

TEST_CASE("val is read as test, unless there is test") {
  const ScratchFolder folder;
  touch(folder, {"train/a/1.png", "train/b/1.png", "val/a/2.png", "val/b/2.png"});
  CHECK(paths(listed(folder.path).test) == std::vector<std::string>{"val/a/2.png", "val/b/2.png"});
  touch(folder, {"test/a/3.png", "test/b/3.png"});
  const PictureList list = listed(folder.path);
  CHECK(paths(list.test) == std::vector<std::string>{"test/a/3.png", "test/b/3.png"});
  CHECK(list.notes == std::vector<std::string>{"val is not used, since there is test"});
}

TEST_CASE("a folder that mixes kinds is refused with what is wrong") {
  const auto refused = [](std::initializer_list<const char*> names, const std::string& why) {
    const ScratchFolder folder;
    touch(folder, names);
    CHECK_THROWS_WITH(open_pictures({folder.path}), Contains(why));
    CHECK_THROWS_AS(open_pictures({folder.path}), MalformedInput);
  };
  refused({"a/1.png", "b/1.png", "2.png"}, "1 pictures lie beside folders of pictures, first 2.png");
  refused({"train/a/1.png", "train/b/1.png", "test/a/1.png", "more/1.png"}, "more lies beside train");
  refused({"train/a/1.png", "train/b/1.png", "test/a/1.png", "1.png"}, "1.png lies beside train");
  refused({"train/a/1.png", "train/b/1.png", "test/c/1.png", "test/a/1.png"},
          "test has a class c, which train has not");
  refused({"train/a/1.png", "train/b/1.png", "test/1.png"}, "train has classes and test has none");
  refused({"notes.txt"}, "there are no pictures in it");
  refused({}, "there are no pictures in it");
}

TEST_CASE("links that lead back and pipes are counted, and links to elsewhere followed") {
  const ScratchFolder folder, elsewhere;
  touch(elsewhere, {"1.png"});
  touch(folder, {"a/1.png"});
  fs::create_directory_symlink(folder.path, folder / "a/back");
  fs::create_directory_symlink(elsewhere.path, folder / "b");
  fs::create_symlink("nowhere.png", folder / "a/lost.png");
  REQUIRE(mkfifo((folder / "a/pipe.png").c_str(), 0600) == 0);
  const PictureList list = listed(folder.path);
  std::vector<std::string> all = paths(list.train);
  for (const std::string& path : paths(list.test)) all.push_back(path);
  CHECK(std::set(all.begin(), all.end()) == std::set<std::string>{"a/1.png", "b/1.png"});
  CHECK(std::count(list.notes.begin(), list.notes.end(), "links that lead back: 1, left out") == 1);
  CHECK(std::count(list.notes.begin(), list.notes.end(), "what is no file: 2, left out") == 1);
}

// Records whose pixels are 3 in red, 5 in green and 7 in blue.
std::string records(int count, int labels, int label) {
  std::string all;
  for (int i = 0; i < count; ++i)
    all +=
        std::string(size_t(labels), char(label)) + std::string(1024, 3) + std::string(1024, 5) + std::string(1024, 7);
  return all;
}

TEST_CASE("CIFAR-10's files give coloured pictures with the names of their classes") {
  const ScratchFolder folder;
  write_bytes(folder / "data_batch_1.bin", records(2, 1, 9));
  write_bytes(folder / "data_batch_2.bin", records(3, 1, 1));
  write_bytes(folder / "test_batch.bin", records(1, 1, 4));
  write_bytes(folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  const Pictures data = loaded(folder.path);
  CHECK(data.name == "CIFAR-10");
  CHECK(data.classes[9] == "j");
  CHECK(data.train.images.shape() == Shape{5, 32, 32, 3});
  CHECK(data.train.images.slice(4, 5).values()[5] == 7);
  CHECK(data.train.labels.values() == std::vector<double>{9, 9, 1, 1, 1});
  CHECK(data.test.labels.values() == std::vector<double>{4});
}

TEST_CASE("CIFAR-100's files have a coarse and a fine label, of which the fine one counts") {
  const ScratchFolder folder;
  std::string record = records(1, 2, 99);
  record[0] = 3;
  write_bytes(folder / "train.bin", record + record);
  write_bytes(folder / "test.bin", record);
  const Pictures data = loaded(folder.path);
  CHECK(data.name == "CIFAR-100");
  CHECK(data.train.labels.values() == std::vector<double>{99, 99});
  CHECK(data.classes.size() == 100);
}

TEST_CASE("one file of CIFAR's is divided, and damaged ones are refused") {
  const ScratchFolder folder;
  write_bytes(folder / "mine.bin", records(20, 1, 2));
  const Pictures data = loaded(folder / "mine.bin");
  CHECK(data.train.count() == 18);
  CHECK(data.test.count() == 2);
  write_bytes(folder / "cut.bin", records(2, 1, 2).substr(0, 5000));
  CHECK_THROWS_WITH(loaded(folder / "cut.bin"), Contains("5000 bytes are no whole number of records of CIFAR-10"));
  write_bytes(folder / "label.bin", records(1, 1, 0) + records(1, 1, 10));
  CHECK_THROWS_WITH(loaded(folder / "label.bin"), Contains("record 1 has the label 10, which is no class from 0 to 9"));
  write_bytes(folder / "empty.bin", "");
  CHECK_THROWS_WITH(loaded(folder / "empty.bin"), Contains("0 bytes are no whole number"));
}

TEST_CASE("arrays of every layout and type become the same pictures") {
  const Tensor last = Tensor::arange(20 * 5 * 5 * 3).to(DType::f64);  // values are cut to 0 to 255 below
  std::vector<double> bytes = last.values(), first(bytes.size());
  for (double& value : bytes) value = double(int64_t(value) % 256);
  for (size_t n = 0; n < 20; ++n)
    for (size_t i = 0; i < 25; ++i)
      for (size_t c = 0; c < 3; ++c) first[n * 75 + c * 25 + i] = bytes[n * 75 + i * 3 + c];
  std::vector<double> fractions = bytes;
  for (double& value : fractions) value /= 255;
  for (const Tensor& images :
       {Tensor::from({20, 5, 5, 3}, bytes, DType::u8), Tensor::from({20, 3, 5, 5}, first, DType::u8),
        Tensor::from({20, 5, 5, 3}, bytes, DType::i64), Tensor::from({20, 5, 5, 3}, fractions, DType::f32)}) {
    const ScratchFolder folder;
    write_npy(folder / "mine.npy", images);
    const Pictures data = loaded(folder / "mine.npy");
    CHECK(data.train.images.shape() == Shape{18, 5, 5, 3});
    CHECK_FALSE(data.labelled());
    CHECK(data.train.images.slice(0, 9).values() == std::vector<double>(bytes.begin(), bytes.begin() + 9 * 75));
  }
}

TEST_CASE("floating values are rounded to the nearest of 256") {
  const ScratchFolder folder;
  write_npy(folder / "bright.npy", Tensor::full({20, 5, 5}, 0.999));
  CHECK(loaded(folder / "bright.npy").train.images.values()[0] == 255);
}

TEST_CASE("arrays have the usual names, in .npz, .safetensors and a folder of .npy") {
  const std::vector<NamedTensor> arrays = {{"x_train", Tensor::full({6, 5, 5}, 7, DType::u8)},
                                           {"y_train", Tensor::from({6}, {0, 1, 2, 0, 1, 2}, DType::i64)},
                                           {"x_test", Tensor::full({2, 5, 5}, 9, DType::u8)},
                                           {"y_test", Tensor::from({2, 1}, {3, 0}, DType::i64)}};
  const ScratchFolder folder;
  write_npz(folder / "set.npz", arrays);
  write_safetensors(folder / "set.safetensors", arrays, {});
  fs::create_directory(folder / "set");
  for (const NamedTensor& array : arrays) write_npy(folder / ("set/" + array.name + ".npy"), array.tensor);
  for (const char* name : {"set.npz", "set.safetensors", "set"}) {
    const Pictures data = loaded(folder / name);
    CHECK(data.name == "set");
    CHECK(data.train.images.shape() == Shape{6, 5, 5, 1});
    CHECK(data.test.images.values()[0] == 9);
    CHECK(data.test.labels.values() == std::vector<double>{3, 0});
    CHECK(data.classes == std::vector<std::string>{"0", "1", "2", "3"});
  }
  fs::create_directory(folder / "one");
  fs::rename(folder / "set.npz", folder / "one/set.npz");
  CHECK(loaded(folder / "one").train.count() == 6);
}

TEST_CASE("arrays that are no pictures are refused by name") {
  const auto refused = [](const std::vector<NamedTensor>& arrays, const std::string& why) {
    const ScratchFolder folder;
    write_npz(folder / "set.npz", arrays);
    CHECK_THROWS_WITH(loaded(folder / "set.npz"), Contains(why));
  };
  const Tensor images = Tensor::full({3, 5, 5}, 1, DType::u8);
  refused({{"a", images}, {"b", images}},
          "no array is called images, x_train, train_images, x or data; there are a, b");
  refused({{"images", Tensor::full({3, 5}, 1, DType::u8)}}, "set.npz, images: images (n, h, w)");
  refused({{"images", Tensor::full({3, 5, 5, 2}, 1, DType::u8)}}, "of 1, 3 or 4 channels c are needed");
  refused({{"images", Tensor::full({0, 5, 5}, 1, DType::u8)}}, "there are no images");
  refused({{"images", Tensor::full({3, 5, 5}, 1.5)}}, "value 0 is 1.5, but floating values have to be from 0 to 1");
  refused({{"images", Tensor::full({3, 5, 5}, 256, DType::i64)}}, "integers have to be from 0 to 255");
  refused({{"images", images}, {"labels", Tensor::full({2}, 1, DType::i64)}}, "3 labels are needed");
  refused({{"images", images}, {"labels", Tensor::full({3}, 1)}}, "one whole number per image, not f32");
  refused({{"images", images}, {"labels", Tensor::full({3}, -1, DType::i64)}}, "label 0 is -1, which is no class");
  refused({{"images", images}, {"test_images", images}, {"labels", Tensor::full({3}, 1, DType::i64)}},
          "one part has labels and the other has none");
}

std::string idx(std::initializer_list<uint32_t> extents, const std::string& values) {
  std::string bytes{0, 0, 8, static_cast<char>(extents.size())};
  for (const uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  return bytes + values;
}

TEST_CASE("IDX files may have any name") {
  const ScratchFolder folder;
  write_bytes(folder / "emnist-train-images", idx({4, 3, 3}, std::string(36, 5)));
  write_bytes(folder / "emnist-train-labels", idx({4}, {0, 1, 2, 11}));
  write_bytes(folder / "emnist-test-images", idx({1, 3, 3}, std::string(9, 6)));
  write_bytes(folder / "emnist-test-labels", idx({1}, {1}));
  write_bytes(folder / "README", "about these files");
  const Pictures data = loaded(folder.path);
  CHECK(data.train.images.shape() == Shape{4, 3, 3, 1});
  CHECK(data.test.labels.values() == std::vector<double>{1});
  CHECK(data.count_of_classes() == 12);
  const Pictures one = loaded(folder / "emnist-train-images");
  CHECK(one.train.count() == 4);
  CHECK(one.labelled());
  fs::remove(folder / "emnist-train-labels");
  CHECK_FALSE(loaded(folder / "emnist-train-images").labelled());
  CHECK_THROWS_WITH(loaded(folder.path), Contains("one part has labels and the other has none"));
  write_bytes(folder / "other-images", idx({4, 3, 3}, std::string(36, 5)));
  CHECK_THROWS_WITH(loaded(folder.path), Contains("other-images: emnist-train-images has images of the same part"));
}

TEST_CASE("a path that is nothing of all this is refused") {
  const ScratchFolder folder;
  CHECK_THROWS_AS(open_pictures({folder / "nothing"}), MissingInput);
  write_bytes(folder / "one.png", png_of(slope(4, 4, 1)));
  CHECK_THROWS_WITH(open_pictures({folder / "one.png"}), Contains("neither a folder nor a file of many pictures"));
}

TEST_CASE("pictures in one file are resized too, once for both parts") {
  const ScratchFolder folder;
  write_npy(folder / "big.npy", Tensor::full({20, 100, 80}, 9, DType::u8));
  CHECK(loaded(folder / "big.npy").train.images.shape() == Shape{18, 64, 64, 1});
  const Pictures data = loaded(folder / "big.npy", 20);
  CHECK(data.test.images.shape() == Shape{2, 20, 20, 1});
  CHECK(data.test.images.values()[0] == 9);
  CHECK_THAT(data.notes.back(), Contains("resized to 20 x 20"));
}

TEST_CASE("pictures that would not fit are refused with the size that would") {
  const ScratchFolder folder;
  write_npy(folder / "set.npy", Tensor::full({100, 32, 32}, 9, DType::u8));
  CHECK_THROWS_AS(open_pictures({folder / "set.npy", 0, 100'000}), TooManyPictures);
  CHECK_THROWS_WITH(open_pictures({folder / "set.npy", 0, 100'000}),
                    Contains("100 pictures of 32 x 32 x 1 would take 100 KiB") && Contains("--size 31 would fit"));
  CHECK_NOTHROW(open_pictures({folder / "set.npy", 31, 100'000}));
}

TEST_CASE("a vocabulary has the most frequent words first, and tokens of texts end in padding") {
  const std::vector<std::string> texts = {"A dog, a cat", "the DOG runs"};
  const Vocabulary words(texts);
  CHECK(words.size() == 2 + 5);
  CHECK(words.length() == 4);
  CHECK(words.tokens(texts).values() == std::vector<double>{2, 3, 2, 4, 6, 3, 5, 0});
  CHECK(words.tokens(std::vector<std::string>{"a zebra"}).values() == std::vector<double>{2, 1, 0, 0});
  CHECK(words.knows("one cat?"));
  CHECK_FALSE(words.knows("? zebra"));
}

TEST_CASE("the words of a vocabulary make the same one") {
  const std::vector<std::string> texts = {"A dog, a cat?", "the DOG-runs", "what? A zebra ?"};
  const Vocabulary words(std::span<const std::string>(texts).first(2)), again(words.words(), words.length());
  CHECK(again.tokens(texts).values() == words.tokens(texts).values());
  const Vocabulary of_clothes(vocabulary(), sentence_length());
  CHECK(of_clothes.tokens(in_words(prompts())).values() == prompts().values());
  CHECK_FALSE(of_clothes.knows("zebra? no"));
}

}  // namespace
}  // namespace weft
