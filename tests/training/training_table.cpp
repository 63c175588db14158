// SPDX-License-Identifier: Apache-2.0
#include "tests/training/training_table.h"

#include <algorithm>

namespace weft {
namespace {

using When = GradientSync::When;
using Options = DataParallel::Options;
using Run = std::function<Weights(const TrainingCase& c, Communicator& comm)>;
using Chosen = std::function<bool(const TrainingCase& c)>;
constexpr double close = 1e-12, to_the_bit = 0;

// The largest differences of the chosen cases, run in each of these ways, from the expected weights.
TrainingRow row(const std::string& name, double limit, const Chosen& chosen, const std::vector<Run>& runs,
                const Run& expected) {
  return {name, limit, [=](Communicator& comm) {
            double largest = 0;
            for (const TrainingCase& c : training_cases()) {
              if (!chosen(c)) continue;
              const Weights right = expected(c, comm);
              for (const Run& run : runs) largest = std::max(largest, difference(run(c, comm), right));
            }
            return worst(largest, comm);
          }};
}

Weights alone(const TrainingCase& c, Communicator&) {
  static const std::vector<Weights> all = [] {
    std::vector<Weights> all;
    for (const TrainingCase& each : training_cases()) all.push_back(trained_alone(each));
    return all;
  }();
  return all[static_cast<size_t>(&c - training_cases().data())];
}

Run with(const Options& options) {
  return [=](const TrainingCase& c, Communicator& comm) { return trained(c, comm, options); };
}
const Run plainly = with({});

std::vector<Run> at_any_time(int stage) {
  std::vector<Run> runs;
  for (const When when : {When::at_finish, When::in_last_pass, When::in_every_pass})
    runs.push_back(with({.stage = stage, .when = when, .bucket = 100}));
  return runs;
}

std::vector<TrainingRow> rows() {
  const auto any = [](const TrainingCase&) { return true; };
  const auto one_pass = [](const TrainingCase& c) { return c.one_pass; };
  const auto in_step = [](const TrainingCase& c) { return c.in_step; };
  const auto layers = [](const TrainingCase& c) { return c.layers; };
  const auto layers_once = [](const TrainingCase& c) { return c.layers && c.one_pass && !c.queries; };
  std::vector<TrainingRow> rows;
  for (const TrainingCase& c : training_cases())
    rows.push_back(row(
        c.name, close, [&c](const TrainingCase& other) { return &other == &c; }, {plainly}, alone));
  rows.push_back(row("ZeRO 1, all of these", close, any, {with({.stage = 1})}, alone));
  rows.push_back(
      row("ZeRO 2, all of these", close, any, {with({.stage = 2, .when = When::in_every_pass, .bucket = 1})}, alone));
  rows.push_back(row("ZeRO 3, those made of layers", close, layers, {trained_in_shards}, alone));
  rows.push_back(row("replicate(), on the tape", close, in_step, {trained_by_tape}, alone));
  rows.push_back(row("bits: any bucket", to_the_bit, any, {with({.bucket = 1}), with({.bucket = 100})}, plainly));
  rows.push_back(row("bits: overlapping or not", to_the_bit, any, at_any_time(0), plainly));
  rows.push_back(row("bits: ZeRO 0 and 1", to_the_bit, any, at_any_time(1), plainly));
  rows.push_back(row("bits: ZeRO 0 and 2, one backward", to_the_bit, one_pass, at_any_time(2), plainly));
  rows.push_back(row("bits: ZeRO 0 and 3, one backward", to_the_bit, layers_once, {trained_in_shards}, plainly));
  rows.push_back(row("bits: replicate(), one backward", to_the_bit, one_pass, {trained_by_tape}, plainly));
  return rows;
}

}  // namespace

const std::vector<TrainingRow>& training_table() {
  static const std::vector<TrainingRow> table = rows();
  return table;
}

}  // namespace weft
