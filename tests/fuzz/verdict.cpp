// SPDX-License-Identifier: Apache-2.0
// The numbers of a dump of three ranks, and of a step with its truth: any bits of doubles. Whatever they are, the
// verdicts end, and can be printed.
#include "tools/weft/verdict/verdict.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/fuzz/memory_file.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/verdict/print.h"
#include "weft/data/files/safetensors.h"

namespace weft::fuzz {
namespace {

constexpr int ranks = 3;

// Rank r has r + 1 rows of features. Numbers that `bytes` lacks are 0.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : bytes_(bytes) {}

  Tensor next(const Shape& shape, DType dtype) {
    std::vector<double> values(static_cast<size_t>(shape.size()));
    const std::string_view taken = bytes_.substr(0, values.size() * sizeof(double));
    if (!taken.empty()) std::memcpy(values.data(), taken.data(), taken.size());
    bytes_.remove_prefix(taken.size());
    return Tensor::from(shape, values, dtype);
  }

 private:
  std::string_view bytes_;
};

std::vector<NamedTensor> tensors_of(int rank, Numbers& numbers) {
  std::vector<NamedTensor> all;
  for (const char* name : {"images", "images.grad", "texts", "texts.grad"})
    all.push_back({name, numbers.next({1 + rank, 2}, DType::f32)});
  for (const char* name : {"scale", "scale.grad"}) all.push_back({name, numbers.next({}, DType::f32)});
  for (const char* name : {"local/w/0", "local/w/1", "reduced/w", "previous/w", "again/w"})
    all.push_back({name, numbers.next({2, 2}, DType::bf16)});
  for (const char* name : {"x", "x.grad", "y.grad"})
    all.push_back({std::string("batch_norm/n/") + name, numbers.next({2, 2}, DType::f64)});
  all.push_back({"gradient_norm", numbers.next({}, DType::f64)});
  return all;
}

// Of a step of two micro-batches, and of one that rank 0 has alone.
std::vector<NamedTensor> gradients_of(int rank, Numbers& numbers) {
  std::vector<NamedTensor> all;
  for (const char* name : {"local/w/0", "local/w/1", "reduced/w"})
    all.push_back({name, numbers.next({2, 2}, DType::f32)});
  if (rank == 0)
    for (const char* name : {"local/v/0", "reduced/v"}) all.push_back({name, numbers.next({3}, DType::bf16)});
  return all;
}
std::vector<NamedTensor> truth(Numbers& numbers) {
  std::vector<NamedTensor> all;
  for (const char* name : {"truth/w", "inexact/w/0", "inexact/w/1"})
    all.push_back({name, numbers.next({2, 2}, DType::f32)});
  for (const char* name : {"truth/v", "inexact/v/0"}) all.push_back({name, numbers.next({3}, DType::bf16)});
  return all;
}

void judge(const verify::Dump& dump) {
  const std::vector<verify::Verdict> verdicts = verify::verdicts(dump);
  must(!verdicts.empty(), "there is a verdict");
  must(nlohmann::json::accept(verify::json_of(verdicts, dump)), "programs get JSON");
  must(!verify::text_of(verdicts, dump).empty() && !verify::power_of(verdicts, dump).empty(), "people get a text");
}

void judge_step(Numbers numbers) {
  static const ScratchFolder folder;
  for (int r = 0; r < ranks; ++r)
    write_safetensors(folder / ("rank" + std::to_string(r) + ".safetensors"), gradients_of(r, numbers), {});
  write_safetensors(folder / "truth.safetensors", truth(numbers), {});
  write_safetensors(folder / "mended.safetensors",
                    std::vector<NamedTensor>{{"mended/w", numbers.next({2, 2}, DType::f32)},
                                             {"mended/v", numbers.next({3}, DType::bf16)}},
                    {});
  std::ofstream(folder / "manifest.json")
      << R"({"weft_manifest":1,"rows":[2,1,3],"counts":{"tokens":[[4,5],[6,7],[8,9]]},)"
      << R"("truth":{"files":["truth.safetensors"],"mended":{"collectives":["all_gather at a.py:3"],)"
      << R"("files":["mended.safetensors","mended.safetensors","mended.safetensors"]}}})";
  judge(verify::read_dump(folder.path));
}

}  // namespace

void read(std::string_view bytes) {
  judge_step(Numbers(bytes));
  static const ScratchFolder folder;
  static const MemoryFile files[ranks];
  Numbers numbers(bytes);
  verify::NamedDump named{.loss = "clip", .files = {}, .reducer = verify::Reducer::mean, .options = {}};
  for (int r = 0; r < ranks; ++r) {
    write_safetensors(folder / "rank", tensors_of(r, numbers), {});
    files[r].hold(contents(folder / "rank"));
    named.files.push_back(files[r].path());
  }
  judge(verify::read_dump(named));
}

}  // namespace weft::fuzz
