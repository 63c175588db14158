// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/data/checkpoint_checks.h"
#include "tests/support/catch.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/descriptor.h"
#include "weft/data/idx.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
using Names = std::vector<std::string>;

// Flips one bit of a tensor's first byte; returns its offset in the file.
size_t damage(const fs::path& file, const std::string& tensor) {
  std::string bytes = contents(file);
  const SafetensorsFile opened(file);
  const size_t at = 8 + *reinterpret_cast<const uint64_t*>(bytes.data()) + opened.find(tensor)->begin;
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  put(file, bytes);
  return at;
}

TEST_CASE("the latest checkpoint holds what was saved last") {
  const ScratchFolder folder;
  CHECK(save_checkpoint(folder / "run", 110, sample(1), {{"seed", "1"}}) == folder / "run/step-000110.safetensors");
  save_checkpoint(folder / "run", 120, sample(2), {{"seed", "2"}});
  const Latest latest = latest_checkpoint(folder / "run");
  REQUIRE(latest.file);
  CHECK(latest.step == 120);
  CHECK(latest.damaged.empty());
  CHECK(holds(*latest.file, sample(2)));
  CHECK(latest.file->metadata() == Metadata{{"seed", "2"}, {"step", "120"}});
}

TEST_CASE("non-finite values are not saved, and a checkpoint that contains some is not the latest") {
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    for (const double bad :
         {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      const ScratchFolder folder;
      save_checkpoint(folder.path, 1, sample(1), {});
      // After a megabyte, which is read and checked in one block.
      const Tensor wrong = Tensor::full({3, 200'000}, 1, type);
      Tensor row = wrong.slice(2, 3).reshape({200'000});
      row.slice(199'998, 199'999).copy_from(Tensor::full({1}, bad, type));
      const NamedTensors state = {{"fine", Tensor::full({3}, 1)}, {"wrong", wrong}};
      CHECK_THROWS_AS(save_checkpoint(folder.path, 2, state, {}), NotFinite);
      CHECK_THROWS_WITH(save_checkpoint(folder.path, 2, state, {}), Contains("step 2: 'wrong'") &&
                                                                        Contains("element (2, 199998) is ") &&
                                                                        Contains("nothing was saved"));
      CHECK(names_in(folder.path) == Names{"step-000001.safetensors"});
      write_safetensors(folder / "step-000002.safetensors", state, {{"step", "2"}});
      const Latest latest = latest_checkpoint(folder.path);
      CHECK(latest.step == 1);
      REQUIRE(latest.damaged.size() == 1);
      CHECK_THAT(latest.damaged[0], Contains("step-000002") && Contains("\"wrong\", element 599998, is not finite"));
    }
}

TEST_CASE("a checkpoint whose step is not a number is refused") {
  const ScratchFolder folder;
  for (const char* step : {"abc", "", "12x", "-3", "99999999999999999999"}) {
    write_safetensors(folder / "file", sample(), {{"step", step}});
    CHECK_THROWS_WITH(open_checkpoint(folder / "file"),
                      Contains("its step is \"" + std::string(step) + "\", which is no"));
  }
}

TEST_CASE("an empty or missing folder has no latest checkpoint") {
  const ScratchFolder folder;
  CHECK_FALSE(latest_checkpoint(folder.path).file);
  CHECK_FALSE(latest_checkpoint(folder / "missing").file);
  CHECK_FALSE(fs::exists(folder / "missing"));
  put(folder / "file", "");
  CHECK_THROWS_WITH(latest_checkpoint(folder / "file"), Contains("file: cannot be listed: Not a directory"));
}

TEST_CASE("the two latest checkpoints are kept, whatever their number of digits") {
  const ScratchFolder folder;
  put(folder / "notes.txt", "mine");
  for (const int64_t step : {0, 7, 999'999, 1'000'000}) save_checkpoint(folder.path, step, sample(), {});
  CHECK(names_in(folder.path) == Names{"notes.txt", "step-1000000.safetensors", "step-999999.safetensors"});
  CHECK(latest_checkpoint(folder.path).step == 1'000'000);
  save_checkpoint(folder.path, 1'000'001, sample(), {}, 3);
  CHECK(names_in(folder.path).size() == 4);
}

TEST_CASE("the best checkpoint stays, and is found by its name") {
  const ScratchFolder run;
  const fs::path folder = run / "checkpoints";
  const auto save = [&](int64_t step, double score, const char* of, int generations = 1) {
    return save_checkpoint(folder, step, sample(static_cast<int>(step)), {{score_key, score_words(score, of)}},
                           generations);
  };
  for (const auto& [step, score] : std::map<int64_t, double>{{1, -9}, {2, 71.25}, {3, 1e-5}, {4, 8}})
    save(step, score, "accuracy of nearest neighbours");
  CHECK(names_in(folder) == Names{"step-000002.safetensors", "step-000004.safetensors"});
  for (const fs::path& path : {run / "best", folder / "best"}) {
    CHECK(may_be_checkpoint(path));
    const Latest best = checkpoint_at(path);
    CHECK(best.step == 2);
    CHECK(holds(*best.file, sample(2)));
  }
  for (const fs::path& path : {run / "last", folder / "last", run.path, folder, folder / "step-000004.safetensors"})
    CHECK(checkpoint_at(path).step == 4);
  save(5, 71.25, "accuracy of nearest neighbours");  // the later of equal ones
  CHECK(names_in(folder) == Names{"step-000005.safetensors"});
  save(6, -3, "loss", 2);  // another kind: scores cannot be compared
  CHECK(checkpoint_at(run / "best").step == 6);
  const fs::path good = save(7, -1, "loss", 3);
  damage(good, "scalar");
  const Latest sound = checkpoint_at(run / "best");
  CHECK(sound.step == 6);
  CHECK(sound.damaged.size() == 1);
  put(folder / "best", "a file of that name is that file");
  CHECK_THROWS_AS(checkpoint_at(folder / "best"), MalformedInput);
}

TEST_CASE("what has no score, or one that is no number, is never the best") {
  const ScratchFolder folder;
  for (const char* score : {"", "nan loss", "inf loss", "high"})
    save_checkpoint(folder.path, 1, sample(), {{score_key, score}});
  save_checkpoint(folder.path, 2, sample(), {});
  CHECK_THROWS_WITH(checkpoint_at(folder / "best"), Contains("no sound checkpoint with a score is in it"));
  CHECK_THROWS_AS(checkpoint_at(folder / "best"), MissingInput);
  CHECK_THROWS_WITH(checkpoint_at(folder / "none" / "best"), Contains("no sound checkpoint"));
  CHECK_FALSE(may_be_checkpoint(folder / "none" / "best"));
}

TEST_CASE("a checkpoint of the same step can be saved again") {
  const ScratchFolder folder;
  save_checkpoint(folder.path, 3, sample(1), {});
  save_checkpoint(folder.path, 3, sample(2), {});
  CHECK(names_in(folder.path) == Names{"step-000003.safetensors"});
  CHECK(holds(*latest_checkpoint(folder.path).file, sample(2)));
}

TEST_CASE("a file that only looks like a checkpoint is left alone") {
  const ScratchFolder folder;
  const Names others = {"step-.safetensors",       "step-000009.safetensors.bak", "step-0000000009.safetensors",
                        "step-00009x.safetensors", "step-9.safetensors",          "xstep-000009.safetensors"};
  for (const std::string& name : others) put(folder / name, "x");
  for (const int64_t step : {1, 2, 3}) save_checkpoint(folder.path, step, sample(), {});
  for (const std::string& name : others) CHECK(fs::exists(folder / name));
  const Latest latest = latest_checkpoint(folder.path);
  CHECK(latest.step == 3);
  CHECK(latest.damaged.empty());
}

TEST_CASE("a damaged checkpoint is reported by file, tensor and offset, and the one before it is the latest") {
  const ScratchFolder folder;
  save_checkpoint(folder.path, 1, sample(1), {});
  const fs::path second = save_checkpoint(folder.path, 2, sample(2), {});
  const size_t at = damage(second, "scalar");
  const Latest latest = latest_checkpoint(folder.path);
  CHECK(latest.step == 1);
  CHECK(holds(*latest.file, sample(1)));
  REQUIRE(latest.damaged.size() == 1);
  CHECK(latest.damaged[0] == second.string() + ": tensor \"scalar\", bytes " + std::to_string(at) + " to " +
                                 std::to_string(at + 8) + ", does not have its checksum; the file is damaged");
  CHECK_THROWS_WITH(open_checkpoint(second), latest.damaged[0]);
  CHECK_THROWS_WITH(SafetensorsFile(second).read("scalar"), latest.damaged[0]);
  CHECK_NOTHROW(SafetensorsFile(second).read("bytes"));
}

TEST_CASE("if every checkpoint is damaged there is no latest one, and each is reported") {
  const ScratchFolder folder;
  fs::resize_file(save_checkpoint(folder.path, 1, sample(1), {}), 500);
  fs::resize_file(save_checkpoint(folder.path, 2, sample(2), {}), 0);
  const Latest latest = latest_checkpoint(folder.path);
  CHECK_FALSE(latest.file);
  REQUIRE(latest.damaged.size() == 2);
  CHECK_THAT(latest.damaged[0], Contains("step-000002.safetensors: not a safetensors file: only 0 bytes"));
  CHECK_THAT(latest.damaged[1], Contains("step-000001.safetensors: a header of"));
}

TEST_CASE("a checkpoint with another step's file name is not the latest") {
  const ScratchFolder folder;
  fs::copy(save_checkpoint(folder.path, 1, sample(), {}), folder / "step-000005.safetensors");
  const Latest latest = latest_checkpoint(folder.path);
  CHECK(latest.step == 1);
  REQUIRE(latest.damaged.size() == 1);
  CHECK_THAT(latest.damaged[0], Contains("step-000005.safetensors: holds step 1"));
}

TEST_CASE("a file without checksums is not a checkpoint") {
  CHECK_THROWS_WITH(open_checkpoint(std::string(WEFT_TEST_FILES) + "/python.safetensors"),
                    Contains("has no checksums"));
}

TEST_CASE("an open checkpoint stays readable while others replace it") {
  const ScratchFolder folder;
  save_checkpoint(folder.path, 1, sample(1), {});
  const Latest latest = latest_checkpoint(folder.path);
  save_checkpoint(folder.path, 1, sample(9), {});
  for (const int64_t step : {2, 3}) save_checkpoint(folder.path, step, sample(2), {});
  CHECK(holds(*latest.file, sample(1)));
}

TEST_CASE("saving a step before that of a sound checkpoint is refused") {
  const ScratchFolder folder;
  save_checkpoint(folder.path, 120, sample(), {});
  CHECK_THROWS_WITH(save_checkpoint(folder.path, 60, sample(), {}), Contains("already holds step 120"));
  CHECK(names_in(folder.path) == Names{"step-000120.safetensors"});
  CHECK_THROWS_WITH(save_checkpoint(folder.path, -1, sample(), {}), Contains("step -1"));
  CHECK_THROWS_WITH(save_checkpoint(folder.path, 130, sample(), {{"step", "7"}}), Contains("the metadata say 7"));
}

TEST_CASE("saving continues from an earlier checkpoint after a fallback to it") {
  const ScratchFolder folder;
  save_checkpoint(folder.path, 100, sample(1), {});
  damage(save_checkpoint(folder.path, 120, sample(2), {}), "bytes");
  save_checkpoint(folder.path, 110, sample(3), {});
  CHECK(names_in(folder.path) ==
        Names{"step-000100.safetensors", "step-000110.safetensors", "step-000120.safetensors.damaged"});
  CHECK(latest_checkpoint(folder.path).step == 110);
  CHECK(latest_checkpoint(folder.path).damaged.empty());
}

TEST_CASE("temporary files of killed writers are removed, and those of live writers are kept") {
  const ScratchFolder folder;
  put(folder / "step-000001.safetensors.17-0.weft-tmp", "half");
  const fs::path busy = folder / "step-000002.safetensors.18-0.weft-tmp";
  put(busy, "half");
  const Descriptor writer(open(busy.c_str(), O_WRONLY));
  REQUIRE(flock(writer.number(), LOCK_EX) == 0);
  save_checkpoint(folder.path, 3, sample(), {});
  CHECK(names_in(folder.path) == Names{busy.filename().string(), "step-000003.safetensors"});
}

TEST_CASE("loading fills tensors in place, so that views of their memory see it") {
  const ScratchFolder folder;
  const Tensor arena = Tensor::zeros({10});
  const Tensor weight = arena.slice(2, 8).reshape({2, 3});
  save_checkpoint(folder.path, 1, NamedTensors{{"w", Tensor::from({2, 3}, {1, 2, 3, 4, 5, 6})}}, {});
  load_checkpoint(*latest_checkpoint(folder.path).file, NamedTensors{{"w", weight}});
  CHECK(arena.values() == std::vector<double>{0, 0, 1, 2, 3, 4, 5, 6, 0, 0});
  CHECK(weight.version() > 0);  // a tape that needs the old values will notice
}

TEST_CASE("a checkpoint can be saved from and loaded to any device") {
  for (const Device from : {Device::cpu, Device::cuda}) {
    for (const Device to : {Device::cpu, Device::cuda}) {
      if (!available(from) || !available(to)) continue;
      const ScratchFolder folder;
      NamedTensors state = sample(1), places;
      for (auto& [name, tensor] : state) {
        places.push_back({name, Tensor(tensor.shape(), tensor.dtype(), to)});
        tensor = tensor.to(from);
      }
      save_checkpoint(folder.path, 1, state, {});
      load_checkpoint(*latest_checkpoint(folder.path).file, places);
      const NamedTensors expected = sample(1);
      for (size_t i = 0; i < places.size(); ++i) CHECK(same_bits(places[i].tensor.to(Device::cpu), expected[i].tensor));
    }
  }
}

TEST_CASE("loading into another model is refused with one error that lists all differences, and changes nothing") {
  const ScratchFolder folder;
  const auto f32 = [](const Shape& shape) { return Tensor::full(shape, 7); };
  const NamedTensors saved = {{"same", f32({2})}, {"shape", f32({2, 3})}, {"type", f32({4})}, {"old", f32({1})}};
  const fs::path file = save_checkpoint(folder.path, 1, saved, {});
  const NamedTensors places = {{"same", Tensor::zeros({2})},
                               {"shape", Tensor::zeros({3, 2})},
                               {"type", Tensor::zeros({4}, DType::bf16)},
                               {"new", Tensor::zeros({1})}};
  const SafetensorsFile opened = open_checkpoint(file);
  CHECK_THROWS_WITH(load_checkpoint(opened, places), file.string() +
                                                         " is a checkpoint of another model:"
                                                         "\n  shape: is f32 (2, 3) in the file, not f32 (3, 2)"
                                                         "\n  type: is f32 (4) in the file, not bf16 (4)"
                                                         "\n  new: is missing in the file"
                                                         "\n  old: is in the file, but not asked for");
  CHECK(places[0].tensor.values() == std::vector<double>{0, 0});
}

TEST_CASE("a part of a checkpoint can be loaded on request") {
  const ScratchFolder folder;
  save_checkpoint(folder.path, 1, sample(), {});
  const Latest latest = latest_checkpoint(folder.path);
  const NamedTensors part = {{"half", Tensor::zeros({3, 1}, DType::bf16)}};
  CHECK_THROWS_AS(load_checkpoint(*latest.file, part), Error);
  load_checkpoint(*latest.file, part, Surplus::ignored);
  CHECK(same_bits(part[0].tensor, sample()[1].tensor));
  CHECK_THROWS_WITH(load_checkpoint(*latest.file, NamedTensors{{"half", Tensor()}}), Contains("\"half\" is undefined"));
  CHECK_THROWS_WITH(load_checkpoint(*latest.file, NamedTensors{part[0], part[0]}),
                    Contains("two places are called half"));
}

}  // namespace
}  // namespace weft
