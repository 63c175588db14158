// SPDX-License-Identifier: Apache-2.0
// Public reports of wrong gradients on meshes of ranks, each as what a framework writes that acts by real collectives
// on a wrong layout, and what is said of each. The numbers are those of a list of the years 2025 and 2026.
#include "tests/support/catch.h"
#include "tests/verify/planted_mesh.h"

using namespace weft;
using namespace weft::planted;
using verify::Layout;
using verify::Mesh;
using verify::Verdict;

namespace test_mesh_reports {

struct Report {
  int number;
  const char *thread, *axis, *layout, *acted_on;  // of dp and this axis
  double factor;                                  // of the result; 0: it is lost
  const char* said;
};
const Report reports[] = {
    {12, "Automodel 1260: a backward that slices and does not sum", "cp", "Partial(avg) Partial()",
     "Partial(avg) Replicate()", 1, "S29 (over cp)"},
    {14, "torchtitan 2387: a router's gradient", "tp", "Partial(avg) Partial()", "Partial(avg) Replicate()", 1,
     "S29 (over tp)"},
    {15, "torchtitan 1878: the gradient at the input of experts", "ep", "V Partial()", "V Replicate()", 1,
     "S29 (over ep)"},
    {18, "torchtitan 2106: a replicated bias in a partial sum", "tp", "Partial(avg) Replicate()",
     "Partial(avg) Partial()", 1, "S30 (multiplied by the size of tp)"},
    {20, "transformers 48205: a router's terms of ranks of experts", "ep", "Partial(avg) Partial()",
     "Partial(avg) Replicate()", 1, "S29 (over ep)"},
    {22, "transformers 45994: a loss times all processes", "tp", "Partial(avg) Replicate()", "Partial(avg) Replicate()",
     2, "S30 (multiplied by the size of tp)"},
    {27, "mcore-bridge 173: a replicated factor of an adapter", "tp", "Partial(avg) Partial()",
     "Partial(avg) Replicate()", 1, "S29 (over tp)"},
    {28, "Megatron-Bridge 5634: an adapter that is replicated where its base is partial", "tp",
     "Partial(avg) Partial()", "Partial(avg) Partial(avg)", 1, "S30 (divided by the size of tp)"},
    {28, "Megatron-Bridge 5634: an adapter that is detached", "tp", "Partial(avg) Partial()", "Partial(avg) Partial()",
     0, "S18"},
    {34, "pytorch 172932: a Partial that is reduced again", "tp", "Partial(avg) Partial()", "Partial(avg) Partial()", 2,
     "S30 (multiplied by the size of tp)"},
    {39, "autoparallel 517: a Partial made Replicate, and reduced again", "cp", "Partial(avg) Partial(avg)",
     "Partial(avg) Partial()", 1, "S8 (over cp)"},
    {44, "SkyRL 1420: a factor of context parallelism is missing", "cp", "Partial(avg) Partial(avg)",
     "Partial(avg) Partial(avg)", 0.5, "S9 (over cp)"},
    {45, "SkyRL 1751: a factor of context parallelism comes twice", "cp", "Partial(avg) Partial(avg)",
     "Partial(avg) Partial(avg)", 2, "S8 (over cp)"},
    {47, "VeOmni 338: data parallel ranks for those of sequences, too", "sp", "Partial(avg) Partial(avg)",
     "Partial(avg) Partial(avg)", 0.5, "S9 (over sp)"},
    {47, "VeOmni 1120: no sum in the backward of a gather", "sp", "Partial(avg) Partial()", "Partial(avg) Replicate()",
     1, "S29 (over sp)"},
    {55, "ace 995: ranks of one picture are never summed", "space", "Partial(avg) Partial()",
     "Partial(avg) Replicate()", 1, "S29 (over space)"},
};

std::string said(const Verdict& verdict) {
  if (verdict.described) return verdict.described->text;
  return verdict.best ? verify::title(*verdict.best->signature, verdict.best->variant) : "unknown";
}

Framework acting_on(const Mesh& mesh, const Layout& layout, double factor = 1) {
  return [=](Groups& groups, const std::vector<Tensor>& local) {
    return (Var(reduced(mesh, layout, groups, sum_of(local))) * factor).value();
  };
}

TEST_CASE("public reports of axes that are left out, or count more than once, have their cause",
          "[test_mesh_reports]") {
  for (const Report& report : reports)
    for (const int data : {3, 5})
      for (int seed = 1; seed <= 6; ++seed) {
        const DType dtype = seed % 2 ? DType::f32 : DType::bf16;
        const Mesh mesh{{{"dp", data}, {report.axis, 2}}};
        const Planted planted{mesh, layout_of(mesh, report.layout), {8, 10}, dtype, 2, seed};
        const verify::Dump dump =
            dump_of(mesh, {parameter("w", planted, acting_on(mesh, layout_of(mesh, report.acted_on), report.factor))});
        INFO(report.number << ", " << report.thread << " on " << mesh.text() << ", seed " << seed);
        CHECK(said(verify::verdict(dump.parameters[0], dump)) == report.said);
      }
}

TEST_CASE("replicas that are out of step are told by their hashes: Automodel 3822 (13)", "[test_mesh_reports]") {
  const Mesh mesh{{{"dp", 3}, {"tp", 2}}};
  const Planted planted{mesh, layout_of(mesh, "Partial(avg) Replicate()"), {8, 10}, DType::f32};
  verify::Dump dump = dump_of(mesh, {correct_parameter("w", planted)});
  dump.parameters[0].hashes = {"a", "a", "a", "b", "a", "a"};
  CHECK(said(verify::verdict(dump.parameters[0], dump)) == "S26 (the hashes of the parameter differ between ranks)");
}

TEST_CASE("experts that count every rank are named by their class: pytorch 167178 (33)", "[test_mesh_reports]") {
  for (const int data : {3, 5}) {
    const Mesh mesh{{{"dp", data}, {"ep", 2}}};
    const auto planted = [&](const char* layout) {
      return Planted{mesh, layout_of(mesh, layout), {8, 10}, DType::f32};
    };
    const Layout experts = layout_of(mesh, "Partial(avg) Shard(0)"), sums = layout_of(mesh, "Partial() Shard(0)");
    verify::Dump dump = dump_of(mesh, {correct_parameter("dense", planted("Partial(avg) Partial(avg)")),
                                       parameter("experts", planted("Partial(avg) Shard(0)"), acting_on(mesh, sums))});
    const std::vector<Verdict> verdicts = verify::verdicts(dump);
    CHECK(said(verdicts[0]) == "S0");
    CHECK(said(verdicts[1]).starts_with("S30 ("));
  }
}

TEST_CASE("memory that an inductor has not written is named: pytorch 193061 (37)", "[test_mesh_reports]") {
  const Mesh mesh{{{"dp", 3}, {"tp", 2}}};
  verify::ParameterEvidence p =
      correct_parameter("w", {mesh, layout_of(mesh, "Partial(avg) Partial()"), {8, 10}, DType::f32});
  p.again = p.reduced;
  p.reduced[2].leftCols(10).setConstant(1e30), p.again[2].leftCols(10).setConstant(-2e28);
  const verify::Dump dump = dump_of(mesh, {p});
  CHECK(said(verify::verdict(dump.parameters[0], dump)) == "S27");
}

TEST_CASE("norms of slices, and of all replicas, are named: pytorch 170862 (36), VeOmni 184 (48)",
          "[test_mesh_reports]") {
  for (const int data : {3, 5}) {
    const Mesh mesh{{{"replicas", 2}, {"shards", data}}};
    const Planted planted{
        mesh, layout_of(mesh, "Partial(avg) Partial(avg)", "Replicate() Shard(0)"), {16, 10}, DType::f32};
    verify::Dump dump = dump_of(mesh, {correct_parameter("w", planted)});
    double all = 0;
    std::vector<double> own;
    for (const verify::Matrix& slice : dump.parameters[0].reduced) {
      own.push_back(static_cast<float>(slice.norm()));
      all += slice.squaredNorm();
    }
    const auto named = [&](std::vector<double> by_rank) {
      dump.norm = {std::move(by_rank), {"f32", 0x1p-23}};
      return said(verify::verdict(*dump.norm, dump));
    };
    const auto everywhere = [&](double norm) {
      return std::vector<double>(static_cast<size_t>(dump.ranks), static_cast<float>(norm));
    };
    CHECK(named(everywhere(std::sqrt(all / 2))) == "S0");
    CHECK(named(own) == "S31 (sharded over shards: only the own shard counts)");
    CHECK(named(everywhere(std::sqrt(all))) == "S31 (every rank's copy counts)");
  }
}

TEST_CASE("tiles of a gradient that two axes divide are told by where they are", "[test_mesh_reports]") {
  struct Place {
    std::string said;
    std::function<std::pair<int, int>(int row, int column, int rows, int columns)> from;
  };
  const Place places[] = {
      {"each rank has the slice of the rank 1 after it over dp",
       [](int i, int j, int rows, int) {
         return std::pair{(i + 1) % rows, j};
       }},
      {"the slice of the rank 1 after it over tp",
       [](int i, int j, int, int columns) {
         return std::pair{i, (j + 1) % columns};
       }},
      {"every rank has the first slice over dp",
       [](int, int j, int, int) {
         return std::pair{0, j};
       }},
      {"ranks have the slices in reverse order over dp",
       [](int i, int j, int rows, int) {
         return std::pair{rows - 1 - i, j};
       }},
      {"the slices of dp and tp have changed places",
       [](int i, int j, int, int) {
         return std::pair{j, i};
       }},
  };
  for (const int data : {3, 5})
    for (const int size : {2, 3})
      for (const Place& place : places) {
        if (size != data && place.said.starts_with("the slices of")) continue;
        const Mesh mesh{{{"dp", data}, {"tp", size}}};
        const Planted planted{
            mesh, layout_of(mesh, "Partial(avg) Partial()", "Shard(0) Shard(1)"), {2 * data, 4 * size}, DType::f32};
        const Layout whole = layout_of(mesh, "Partial(avg) Partial()");
        const auto framework = [&](Groups& groups, const std::vector<Tensor>& local) {
          const auto [i, j] = place.from(groups.coordinate(0), groups.coordinate(1), data, size);
          const Var all = reduced(mesh, whole, groups, sum_of(local));
          return slice(slice(all, 0, 2 * i, 2 * i + 2), 1, 4 * j, 4 * j + 4).value().clone();
        };
        const verify::Dump dump = dump_of(mesh, {parameter("w", planted, framework)});
        INFO(place.said << " on " << mesh.text());
        CHECK(said(verify::verdict(dump.parameters[0], dump)).find(place.said) != std::string::npos);
      }
}

}  // namespace test_mesh_reports
