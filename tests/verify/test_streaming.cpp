// SPDX-License-Identifier: Apache-2.0
// Gradients that are too large to be held, and are read a range at a time: the verdict is that of gradients in memory.
#include <random>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tests/verify/planted_mesh.h"
#include "tools/weft/verdict/compare.h"
#include "tools/weft/verdict/streamed_verdict.h"
#include "weft/data/files/checksum.h"
#include "weft/data/files/safetensors.h"

using namespace weft;
using namespace weft::planted;
using verify::Matrix;
using verify::Mesh;
using verify::Outcome;
using verify::Verdict;

namespace test_streaming {

struct Job {
  Mesh mesh;
  const char *local, *reduced, *acted_on;  // placements; the last are those of a wrong framework
};
const Mesh one{{{"dp", 1}}}, two{{{"dp", 2}}}, three{{{"dp", 3}}}, five{{{"dp", 5}}}, six{{{"dp", 3}, {"tp", 2}}};
const Job jobs[] = {
    {one, "Partial(avg)", "Replicate()", "Partial()"},
    {two, "Partial(avg)", "Replicate()", "Partial()"},
    {three, "Partial()", "Replicate()", "Replicate()"},
    {five, "Partial(avg)", "Shard(0)", "Partial()"},  // uneven, and empty on the last rank
    {three, "Partial(avg)", "Shard(1)", "Partial()"},
    {five, "Partial(avg)", "Flat()", "Partial()"},
    {six, "Partial(avg) Partial()", "Replicate() Replicate()", "Partial(avg) Replicate()"},
    {six, "Partial(avg) Shard(1)", "Shard(0) Shard(1)", "Partial() Shard(1)"},
    {six, "Partial(avg) Shard(0)", "Replicate() Replicate()", "Partial() Shard(0)"},
    {six, "Partial(avg) Replicate()", "Replicate() Replicate()", "Partial() Replicate()"},
};

Framework acting_as(const Job& job, const char* placements) {
  const verify::Layout layout = planted::layout_of(job.mesh, placements, job.reduced);
  return [=](Groups& groups, const std::vector<Tensor>& local) {
    return reduced(job.mesh, layout, groups, sum_of(local));
  };
}

TEST_CASE("gradients that stay in their files get the numbers of those that are held") {
  for (const Job& job : jobs)
    for (const bool right : {true, false})
      for (const DType dtype : {DType::f32, DType::f64})
        for (const int uses : {0, 2}) {
          if (!right && job.mesh.ranks() == 1) continue;
          Planted planted{job.mesh, planted::layout_of(job.mesh, job.local, job.reduced), {8, 7}, dtype, 2, uses};
          if (uses == 2) planted.uses = {"embedding", "head"};
          verify::Dump dump;
          dump.mesh = job.mesh;
          dump.ranks = job.mesh.ranks();
          dump.parameters = {parameter("w", planted, acting_as(job, right ? job.local : job.acted_on))};
          const ScratchFolder folder;
          write_dump(folder.path, dump, dtype);
          const verify::Dump held = verify::read_dump(folder.path), stored = verify::read_dump(folder.path, 0);
          REQUIRE(stored.parameters[0].stored);
          CHECK(stored.parameters[0].reduced.empty());
          const std::vector<verify::Comparison> expected = verify::verdict(held.parameters[0], held).table;
          const std::vector<verify::StreamedRank> ranks = verify::streamed(*stored.parameters[0].stored, stored);
          REQUIRE(ranks.size() == expected.size());
          for (size_t r = 0; r < ranks.size(); ++r) {
            const verify::Comparison& found = ranks[r].comparison();
            INFO(job.mesh.text() << ", " << job.local << " to " << job.reduced << ", " << right << ", rank " << r);
            CHECK(found.tensor == expected[r].tensor);
            CHECK(found.elements == expected[r].elements);
            CHECK(found.cosine == Approx(expected[r].cosine));
            CHECK(found.ratio == Approx(expected[r].ratio));
            CHECK((found.error > verify::limit) == (expected[r].error > verify::limit));
            if (right) continue;
            CHECK(found.worst_element == expected[r].worst_element);
            CHECK(found.dumped == expected[r].dumped);
            CHECK(found.expected == Approx(expected[r].expected));
            const double ratio = found.error / expected[r].error;  // to what four samples say
            if (expected[r].error > verify::limit) CHECK((ratio > 0.5 && ratio < 3));
          }
          CHECK(verify::verdict(stored.parameters[0], stored).outcome == (right ? Outcome::correct : Outcome::wrong));
        }
}

// A matrix that is right to rounding, and what `mistake` makes of it, tile by tile.
struct Judged {
  int64_t rows, columns;
  std::mt19937_64 random{7};
  static constexpr double epsilon = 0x1p-8;

  verify::Comparison operator()(const std::function<void(Matrix&)>& mistake = {}) {
    std::normal_distribution<double> normal;
    Matrix truth(rows, columns), dumped(rows, columns), variances(rows, columns);
    for (int64_t i = 0; i < truth.size(); ++i) {
      truth(i) = normal(random);
      variances(i) = std::pow(epsilon * truth(i), 2);
      dumped(i) = truth(i) * (1 + epsilon * normal(random));
    }
    if (mistake) mistake(dumped);
    verify::StreamedRank rank("w", rows, columns, epsilon);
    for (const verify::Tile& tile : verify::tiles_of(rows, columns)) {
      const auto of = [&](const Matrix& x) {
        return verify::StreamedRank::Numbers(x.data() + tile.row * columns + tile.column, tile.rows, tile.columns);
      };
      rank.add(tile, of(dumped), of(truth), of(variances));
    }
    rank.finish();
    resolution = rank.resolution();
    return rank.comparison();
  }
  std::optional<verify::Resolution> resolution = {};
};

const std::pair<int64_t, int64_t> shapes[] = {{1, 40'000}, {40'000, 1}, {3, 20'001}, {5, 16'384},
                                              {300, 150},  {20'001, 2}, {7, 1},      {1, 1}};

TEST_CASE("a mistake in any place of a tensor that is read in tiles is found there") {
  for (const auto& [rows, columns] : shapes) {
    INFO(rows << " x " << columns);
    Judged judged{rows, columns};
    for (int i = 0; i < 3; ++i) CHECK(judged().error <= verify::limit);
    for (const int64_t at : {int64_t{0}, rows * columns / 2, rows * columns - 1}) {
      const verify::Comparison found = judged([at = at](Matrix& x) { x(at) += 100; });
      CHECK(found.error > verify::limit);
      CHECK(found.worst_element == at);
      CHECK(found.dumped - found.expected == Approx(100).margin(1));
      const verify::Comparison infinite = judged([at = at](Matrix& x) { x(at) = std::nan(""); });
      CHECK(std::isinf(infinite.error));
      CHECK(infinite.worst_element == at);
    }
  }
  CHECK(verify::tiles_of(0, 3).empty());
}

TEST_CASE("a row, a column and a factor that are wrong show in tiles where no element does") {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{40, 17'000}, {17'000, 40}, {300, 300}}) {
    INFO(rows << " x " << columns);
    Judged judged{rows, columns};
    const double off = 15 * Judged::epsilon;
    CHECK(judged([&](Matrix& x) { x.row(rows / 3) *= 1 + off; }).error > verify::limit);
    CHECK(judged([&](Matrix& x) { x.row(rows - 1) *= 1 + off; }).error > verify::limit);
    CHECK(judged([&](Matrix& x) { x.col(columns / 3) *= 1 + off; }).error > verify::limit);
    CHECK(judged([&](Matrix& x) { x.col(columns - 1) *= 1 + off; }).error > verify::limit);
    const double factor = judged.resolution->factor, row = judged.resolution->row;
    CHECK(factor < 1.1 * Judged::epsilon);
    for (int i = 0; i < 2; ++i) {
      CHECK(judged([&](Matrix& x) { x *= 1 + 2 * factor; }).error > verify::limit);
      CHECK(judged([&](Matrix& x) { x.row(i % rows) *= 1 + 2 * row; }).error > verify::limit);
      CHECK(judged([&](Matrix& x) { x.row(i % rows) *= 1 + 0.2 * row; }).error <= verify::limit);
    }
  }
}

// Parameters of 8 MB together, which is too much to be held.
struct Large {
  int ranks = 3;
  int64_t rows = 600, columns = 400;
  std::function<void(int rank, Matrix& reduced, Matrix& previous)> mistake = {};
  std::string norm = "";  // what the manifest says more

  std::vector<Verdict> verdicts() const {
    const ScratchFolder folder;
    const auto drawn = [&](uint64_t seed) { return flat(Tensor::uniform({rows, columns}, {seed}, -1, 1)); };
    const auto tensor = [&](const Matrix& x) {
      Tensor all({rows, columns}, DType::f64);
      std::copy(x.data(), x.data() + x.size(), all.mutate<double>());
      return all.to(DType::f32);
    };
    Matrix mean = Matrix::Zero(1, rows * columns);
    for (int r = 0; r < ranks; ++r) mean += drawn(static_cast<uint64_t>(r)) / ranks;
    for (int r = 0; r < ranks; ++r) {
      Matrix reduced = mean, previous = drawn(1000);
      if (mistake) mistake(r, reduced, previous);
      const std::vector<NamedTensor> tensors = {{"local/w", tensor(drawn(static_cast<uint64_t>(r)))},
                                                {"reduced/w", tensor(reduced)},
                                                {"previous/w", tensor(previous)},
                                                {"gradient_norm", Tensor::full({}, mean.norm(), DType::f32)}};
      write_safetensors(folder / ("rank" + std::to_string(r) + ".safetensors"), tensors, {});
    }
    std::ofstream(folder / "manifest.json") << R"({"weft_manifest": 1})";
    const verify::Dump dump = verify::read_dump(folder.path);
    REQUIRE(dump.parameters[0].stored);
    return verify::verdicts(dump);
  }
  Eigen::Map<Matrix> matrix(Matrix& flat) const { return {flat.data(), rows, columns}; }
};

std::string found(const Verdict& verdict) { return verdict.best ? verdict.best->signature->id : "unknown"; }
bool tells_of_a_part(const Verdict& verdict) {
  return std::ranges::any_of(verdict.remarks,
                             [](const std::string& each) { return each.find("a part of") != each.npos; });
}

TEST_CASE("a large dump is judged, and its norm") {
  for (const int ranks : {2, 3, 5}) {
    const std::vector<Verdict> all = Large{.ranks = ranks}.verdicts();
    REQUIRE(all.size() == 2);
    for (const Verdict& each : all) CHECK(found(each) == "S0");
    CHECK(all[0].table.size() == static_cast<size_t>(ranks));
    CHECK(all[0].resolution->factor < 1e-6);
    CHECK_FALSE(tells_of_a_part(all[0]));
  }
  Large summed;
  summed.mistake = [](int, Matrix& reduced, Matrix&) { reduced *= 3; };
  const std::vector<Verdict> all = summed.verdicts();
  CHECK(found(all[0]) == "S8");
  CHECK(tells_of_a_part(all[0]));
  CHECK(all[0].table[0].ratio == Approx(3));
  CHECK(found(all[1]) == "unknown");  // the norm is that of the mean
}

TEST_CASE("of a large dump, one wrong element or row is found wherever it is") {
  for (const int64_t row : {int64_t{0}, int64_t{123}, int64_t{599}}) {
    Large large;
    large.mistake = [&](int rank, Matrix& reduced, Matrix&) {
      if (rank == 1) large.matrix(reduced)(row, 77) += 1e-3;
    };
    const Verdict verdict = large.verdicts()[0];
    CHECK(verdict.outcome == Outcome::wrong);
    CHECK(found(verdict) == "unknown");
    CHECK(verdict.table[1].worst_element == row * 400 + 77);
    CHECK(verdict.table[0].error <= verify::limit);
  }
}

TEST_CASE("of a large dump, a mistake in a range of rows is named by what is around the worst element") {
  Large large;
  large.mistake = [&](int, Matrix& reduced, Matrix& previous) {
    large.matrix(reduced).bottomRows(250) = 10 * large.matrix(previous).bottomRows(250);
    previous *= 10;
  };
  const Verdict verdict = large.verdicts()[0];
  CHECK(found(verdict) == "S23");
  CHECK(tells_of_a_part(verdict));
}

TEST_CASE("of a large dump whose ranks have the same gradients, mistakes that do not show are listed") {
  Large large{.ranks = 2};
  large.rows = 1000;
  const ScratchFolder folder;
  const Tensor same = Tensor::uniform({1000, 400}, {1}, -1, 1);
  for (const char* rank : {"rank0.safetensors", "rank1.safetensors"})
    write_safetensors(folder / rank, std::vector<NamedTensor>{{"local/w", same}, {"reduced/w", same}}, {});
  std::ofstream(folder / "manifest.json") << R"({"weft_manifest": 1})";
  const Verdict verdict = verify::verdicts(verify::read_dump(folder.path))[0];
  CHECK(verdict.outcome == Outcome::correct);
  CHECK(verdict.blind_to == std::vector<std::string>{"S22"});
  CHECK(tells_of_a_part(verdict));
}

uint16_t half_of(double x) {  // that is not subnormal
  int exponent = 0;
  const auto digits = static_cast<int>(std::nearbyint(std::ldexp(std::frexp(std::abs(x), &exponent), 11)));
  return static_cast<uint16_t>((x < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) + digits - 1024);
}

void write_halves(const std::filesystem::path& path, const std::vector<std::pair<std::string, Matrix>>& tensors) {
  SafetensorsHeader header;
  std::string data;
  for (const auto& [name, values] : tensors) {
    const size_t begin = data.size();
    for (const double x : values.reshaped()) {
      const uint16_t bits = half_of(x);
      data += {static_cast<char>(bits), static_cast<char>(bits >> 8)};
    }
    const std::string bytes = data.substr(begin);
    header.tensors.push_back(
        {name, DType::f32, {values.size()}, begin, data.size(), checksum(bytes.data(), bytes.size()), true});
  }
  const std::string start = text(header);
  const uint64_t length = start.size();
  put(path, std::string(reinterpret_cast<const char*>(&length), sizeof length) + start + data);
}

TEST_CASE("gradients in f16 are judged by its precision, held or not, and compared by it") {
  for (const double factor : {1.0, 1 + 0x1p-7}) {
    const ScratchFolder folder;
    const auto drawn = [](uint64_t r) { return flat(Tensor::uniform({500}, {r}, 0.1, 1, DType::f64)); };
    const Matrix mean = (drawn(0) + drawn(1) + drawn(2)) / 3 * factor;
    for (uint64_t r = 0; r < 3; ++r)
      write_halves(folder / ("rank" + std::to_string(r) + ".safetensors"),
                   {{"local/w", drawn(r)}, {"reduced/w", mean}});
    std::ofstream(folder / "manifest.json") << R"({"weft_manifest": 1})";
    for (const double held : {0.0, verify::max_held_numbers}) {
      const verify::Dump dump = verify::read_dump(folder.path, held);
      CHECK(dump.parameters[0].precision.name == "f16");
      CHECK((verify::overall(verify::verdicts(dump)) == Outcome::correct) == (factor == 1));
      if (held > 0) continue;
      CHECK((verify::streamed(*dump.parameters[0].stored, dump)[0].comparison().error <= verify::limit) ==
            (factor == 1));
    }
    Tensor exact({500}, DType::f64);
    const Matrix right = mean / factor;
    std::copy(right.data(), right.data() + right.size(), exact.mutate<double>());
    write_safetensors(folder / "exact.safetensors", std::vector<NamedTensor>{{"w", exact.to(DType::f32)}}, {});
    write_halves(folder / "halves.safetensors", {{"w", mean}});
    const verify::Difference difference =
        verify::compare(folder / "exact.safetensors", folder / "halves.safetensors", 4);
    CHECK((difference.outcome() == Outcome::correct) == (factor == 1));
  }
}

}  // namespace test_streaming
