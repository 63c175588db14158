// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/launch/usual_names.h"

#include <algorithm>
#include <utility>

#include "weft/engine/text/suggestion.h"

namespace weft {
namespace {

// What other programs call it, and what it is called here.
const std::vector<std::pair<std::string, std::string>> usual = {
    {"--arch", "--encoder"},
    {"--model", "--encoder"},
    {"--network", "--encoder"},
    {"--backbone", "--encoder"},
    {"--gpu", "--device cuda"},
    {"--cuda", "--device cuda"},
    {"--cpu", "--device cpu"},
    {"--workers", "--ranks"},
    {"--threads", "--ranks"},
    {"--world-size", "--ranks"},
    {"--precision", "--dtype"},
    {"--amp", "--dtype bf16"},
    {"--bf16", "--dtype bf16"},
    {"--output", "--out"},
    {"--save-dir", "--out"},
    {"--dataset", "--data"},
    {"--ema-decay", "--average"},
    {"--tau", "--temperature"},
    {"--scheduler", "--schedule"},
    {"--max-steps", "--steps"},
    {"--iters", "--steps"},
    {"--iterations", "--steps"},
    {"--image-size", "--size"},
    {"--save-every", "--checkpoint-every"},
    {"--pretrained", "--init"},
    {"--weights", "--init"},
    {"--optim", "--optimizer"},
    {"--queue", "--bank"},
    {"--max-grad-norm", "--clip"},
    {"--criterion", "--loss"},
    {"--profile", "--trace"},
    {"--profiler", "--trace"},
    {"--timeline", "--trace"},
    {"--tapes", "--record-step"},
    {"--record-tape", "--record-step"},
    {"--crop", "--min-area"},
    {"gpu", "cuda"},
    {"fp32", "f32"},
    {"float32", "f32"},
    {"fp64", "f64"},
    {"double", "f64"},
    {"bfloat16", "bf16"},
    {"float16", "bf16"},
    {"fp16", "bf16"},
    {"simclr", "pairs"},
};

}  // namespace

std::string what_was_meant(const std::string& given, const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const auto& [theirs, ours] : usual)
    if (given == theirs && has(ours.substr(0, ours.find(' ')))) return "; did you mean " + ours + "?";
  constexpr size_t clear = 5;  // letters of a beginning that is no chance
  const auto begins = [&](const std::string& name) { return given.size() >= clear && name.rfind(given, 0) == 0; };
  if (std::count_if(names.begin(), names.end(), begins) == 1)
    return "; did you mean " + *std::find_if(names.begin(), names.end(), begins) + "?";
  return suggestion(given, names);
}

}  // namespace weft
