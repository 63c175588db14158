// SPDX-License-Identifier: Apache-2.0
// Jobs on a mesh as folders: written, read, and judged; and what is said of manifests that cannot be right.
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tests/verify/planted_mesh.h"
#include "tools/weft/dump/roles.h"
#include "tools/weft/verdict/print.h"
#include "weft/data/files/safetensors.h"

using namespace weft;
using namespace weft::planted;
using verify::Layout;
using verify::Mesh;

namespace {

const Mesh mesh{{{"dp", 3}, {"tp", 2}}};

verify::Dump dump_of(std::vector<verify::ParameterEvidence> parameters) {
  verify::Dump dump;
  dump.mesh = mesh;
  dump.ranks = mesh.ranks();
  dump.parameters = std::move(parameters);
  return dump;
}

Framework acting_on(const Layout& layout) {
  return [=](Groups& groups, const std::vector<Tensor>& local) { return reduced(mesh, layout, groups, sum_of(local)); };
}

std::vector<std::string> found(const verify::Dump& dump) {
  std::vector<std::string> ids;
  for (const verify::Verdict& verdict : verify::verdicts(dump))
    ids.push_back(verdict.best ? verdict.best->signature->id : "unknown");
  return ids;
}

}  // namespace

TEST_CASE("a name of a local gradient may end in its micro-batch, and in the use that it is of") {
  const auto read = [](const std::string& name) {
    const verify::Role role = verify::role_by_name(name, nullptr);
    CHECK(role.kind == verify::Role::Kind::local_gradient);
    return std::tuple(role.of, role.micro_batch, role.use);
  };
  const auto expected = [](const char* of, size_t micro_batch, const char* use = "") {
    return std::tuple<std::string, size_t, std::string>(of, micro_batch, use);
  };
  CHECK(read("local/encoder/bias") == expected("encoder/bias", 0));
  CHECK(read("local/encoder/bias/12") == expected("encoder/bias", 12));
  CHECK(read("local/encoder/123456") == expected("encoder", 123456));
  CHECK(read("local/encoder/1234567") == expected("encoder/1234567", 0));
  CHECK(read("local/encoder/") == expected("encoder/", 0));
  CHECK(read("local/12") == expected("12", 0));
  CHECK(read("local/w@head/3") == expected("w", 3, "head"));
}

TEST_CASE("a local gradient that a manifest names is of the first micro-batch unless it says another") {
  const ScratchFolder folder;
  const auto pair = [](double a, double b) { return Tensor::from({2}, {a, b}, DType::f64); };
  for (const int r : {0, 1}) {
    const std::vector<NamedTensor> tensors = {{"mine", r == 0 ? pair(1, 20) : pair(300, 4000)},
                                              {"all", pair(301, 4020)}};
    write_safetensors(folder / ("rank" + std::to_string(r) + ".safetensors"), tensors, {});
  }
  std::ofstream(folder / "manifest.json") << R"({"weft_manifest": 1, "reducer": "sum", "tensors": {
      "mine": {"role": "local_gradient", "of": "w"}, "all": {"role": "reduced_gradient", "of": "w"}}})";
  const verify::Dump dump = verify::read_dump(folder.path);
  REQUIRE(dump.parameters.size() == 1);
  CHECK(verify::overall(verify::verdicts(dump)) == verify::Outcome::correct);
}

TEST_CASE("a folder of a job on a mesh gets the verdict of what was written") {
  const ScratchFolder scratch;
  const Layout norm = layout_of(mesh, "Partial(avg) Partial()"), column = layout_of(mesh, "Partial(avg) Shard(1)"),
               divided = layout_of(mesh, "Partial(avg) Shard(0)", "Shard(0) Shard(0)");
  Planted tied{mesh, divided, {13, 2}, DType::f32};  // of seven and six rows, three and one on the last rank of dp
  tied.uses = {"embedding", "head"};
  verify::Dump dump =
      dump_of({parameter("norm", {mesh, norm, {6}, DType::f32}, acting_on(layout_of(mesh, "Partial(avg) Replicate()"))),
               correct_parameter("column", {mesh, column, {3, 5}, DType::f32}),
               parameter("tied", tied,
                         [&](Groups& groups, const std::vector<Tensor>& local) {
                           return reduced(mesh, divided, groups, sum_of({local[1], local[3]}));
                         }),
               correct_parameter("absurd", {mesh, column, {3, 5}, DType::f32, 2, 5})});
  dump.parameters[3].again = dump.parameters[3].reduced;
  dump.parameters[3].reduced[4](2) = 1e30;
  dump.norm.emplace();
  dump.norm->by_rank.assign(6, 1.5);
  write_dump(scratch.path, dump, DType::f32);
  const verify::Dump read = verify::read_dump(scratch.path);
  CHECK(found(read) == std::vector<std::string>{"S29", "S0", "S32", "S27", "unknown"});
  const std::string text = verify::text_of(verify::verdicts(read), read);
  CHECK(text.starts_with("6 ranks (dp 3 x tp 2), the reducer takes the mean"));
  CHECK(text.find("signature S29: never summed over an axis (over tp)") != std::string::npos);
  CHECK(text.find("signature S32: a use of the parameter is lost (without embedding)") != std::string::npos);
}

TEST_CASE("ranges of a flattened gradient are read as written, some of them empty") {
  const Layout flat = layout_of(mesh, "Partial(avg) Shard(1)", "Flat() Shard(1)");
  const verify::Dump dump = dump_of({correct_parameter("w", {mesh, flat, {1, 4}, DType::f32}),  // one, one and none
                                     parameter("v", {mesh, flat, {3, 5}, DType::f32, 1},
                                               acting_on(layout_of(mesh, "Partial() Shard(1)", "Flat() Shard(1)")))});
  const ScratchFolder scratch;
  write_dump(scratch.path, dump, DType::f32);
  CHECK(found(verify::read_dump(scratch.path)) == std::vector<std::string>{"S0", "S8"});
}

TEST_CASE("letters, axes by name, and SGLang's dimensions place as DTensor's words do") {
  const verify::ParameterEvidence right = correct_parameter(
                                      "w", {mesh, layout_of(mesh, "Partial(avg) Shard(1)"), {3, 5}, DType::f32}),
                                  norm = correct_parameter(
                                      "norm", {mesh, layout_of(mesh, "Partial(avg) Partial()"), {3, 5}, DType::f32});
  for (const char* entries : {R"J("w": {"local": {"tp": "Shard(dim=1)"}}, "norm": {"local": {"tp": "P"}})J",
                              R"J("w": {"local": "d h[tp]"}, "norm": {"local": "d[tp:partial] h"})J",
                              R"J("w": {"local": {"tp": "V"}}, "norm": {"local": ["Partial(mean)", "Partial(sum)"],
                                 "reduced": ["R", "I"]})J"}) {
    const ScratchFolder scratch;
    write_dump(scratch.path, dump_of({right, norm}), DType::f32);
    std::ofstream(scratch.path / "manifest.json")
        << R"J({"weft_manifest": 1, "mesh": {"names": ["dp", "tp"], "shape": [3, 2]}, "parameters": {)J" << entries
        << "}}";
    INFO(entries);
    CHECK(found(verify::read_dump(scratch.path)) == std::vector<std::string>{"S0", "S0"});
  }
}

TEST_CASE("a manifest that cannot be right is refused, and what is wrong is said") {
  const ScratchFolder scratch;
  write_dump(scratch.path, dump_of({correct_parameter("w", {mesh, layout_of(mesh, "Partial(avg) Shard(1)"), {3, 5}})}),
             DType::f64);
  const auto refused = [&](const std::string& of_mesh, const std::string& of_parameter, const std::string& said) {
    std::ofstream(scratch.path / "manifest.json")
        << R"J({"weft_manifest": 1, "mesh": )J" << of_mesh << R"J(, "parameters": {)J" << of_parameter << "}}";
    INFO(of_mesh << " " << of_parameter);
    CHECK_THROWS_WITH(verify::read_dump(scratch.path), Catch::Matchers::Contains(said));
  };
  const std::string good_mesh = R"J({"names": ["dp", "tp"], "shape": [3, 2]})J",
                    good = R"J("w": {"local": ["Partial(avg)", "Shard(1)"]})J";
  const auto placed = [&](const std::string& entry, const std::string& said) {
    refused(good_mesh, R"J("w": )J" + entry, said);
  };
  refused(R"J({"names": ["dp", "tp"], "shape": [3, 4]})J", good,
          "the mesh is dp 3 x tp 4, which is 12 ranks, but there are files of 6");
  refused(R"J({"names": ["dp"], "shape": [3, 2]})J", good, "the mesh has 1 names and 2 sizes");
  refused(R"J({"names": ["dp", "dp"], "shape": [3, 2]})J", good, "two axes of the mesh have the same name");
  refused(R"J({"names": ["dp", "tp"], "shape": [3, 0]})J", good,
          "the number of ranks of the axis 'tp' of the mesh is a whole number from 1 to 65536, not 0");
  refused(R"J({"names": ["dp", ""], "shape": [3, 2]})J", good, "an axis of the mesh has an empty name");
  refused(R"J({"names": ["dp", "tp"], "shape": [65536, 65536]})J", good, "the mesh has more than 65536 ranks");
  refused(R"J({"names": ["dp", "tp"]})J", good, "shape");
  refused(good_mesh, R"J("v": {"local": ["R", "R"]})J", "places the parameter 'v', of which there are no gradients");
  placed(R"J({"local": ["Partial(avg)", "Sharded(1)"]})J", "parameter 'w': 'Sharded(1)' is no placement");
  placed(R"J({"local": ["Partial(avg)", "Shard"]})J", "parameter 'w': 'Shard' is no placement");
  placed(R"J({"local": ["Partial(avg)", "Shard()"]})J", "'Shard()' has no dimension");
  placed(R"J({"local": ["Partial(avg)", "Shard(-1)"]})J", "'Shard(-1)' has no dimension");
  placed(R"J({"local": ["Partial(max)", "Shard(1)"]})J", "'Partial(max)' is no placement of a gradient");
  placed(R"J({"local": ["Partial(avg)"]})J", "parameter 'w': 1 placements, but the mesh has 2 axes");
  placed(R"J({"local": {"cp": "R"}})J", "parameter 'w': the mesh has no axis 'cp': it is dp 3 x tp 2");
  placed(R"J({"local": "h[cp] d"})J", "the mesh has no axis 'cp'");
  placed(R"J({"local": "h[tp d"})J", "a '[' is not closed in 'h[tp'");
  placed(R"J({"local": "h[tp:zigzag] d"})J", "the only qualifier is partial, not 'zigzag'");
  placed(R"J({"local": ["Partial(avg)", "Shard(2)"]})J",
         "the local gradient of 'w' is (3, 3), which has no dimension 2 for its placement Shard(2)");
  placed(R"J({"local": {"tp": "Shard(1)"}, "reduced": {"tp": "Shard(0)"}})J",
         "slices stay as they are, or become whole");
  placed(R"J({"local": {"tp": "Shard(1)"}, "reduced": {"dp": "Partial()"}})J", "nothing is Partial after the reducer");
  placed(R"J({"local": {"tp": "V"}, "reduced": {"tp": "R"}})J", "V has no dimension along which it becomes whole");
  placed(R"J({"local": {"tp": "R"}})J",
         "the gradient of 'w' is (3, 2) on rank 1 and (3, 3) on rank 0, but is Replicate() over tp");
  placed(R"J({"local": {"tp": "Shard(1)"}, "reduced": {"dp": "Shard(0)"}})J",
         "is divided over dp into 9 along dimension 0");
  placed(R"J({"local": {"tp": "Shard(1)"}, "reduced": {"tp": "R"}})J",
         "is (3, 3) on rank 0, but by its placements (3, 5)");
  placed(R"J({"local": {"tp": "Shard(1)"}, "reduced": {"dp": "Flat()"}})J",
         "the reduced gradient of 'w' is (3, 3), but is flattened by its placement Flat()");
  placed(R"J({"local": {"tp": "R"}, "reduced": {"dp": "Flat()", "tp": "Shard(0)"}})J",
         "what is flattened has no other dimension to be divided");
  placed(R"J({"local": {"tp": "Shard(1)"}, "reduced": {"dp": "Flat(3)"}})J", "'Flat(3)' is no placement");
  placed(R"J({"local": {"tp": "Shard(1)"}, "averaged": ["dp"]})J", "'dp' is averaged already");
  placed(R"J({"local": {"tp": "Shard(1)"}, "average": ["tp"]})J", "it has no entry 'average'");
}

TEST_CASE("without divided dimensions only the number of elements counts, as before and after flattening") {
  const ScratchFolder scratch;
  std::ofstream(scratch.path / "manifest.json") << R"J({"weft_manifest": 1})J";
  const Tensor x = data_of(0, {2, 3});
  const std::vector<NamedTensor> tensors = {{"local/w", x}, {"reduced/w", x.reshape({6})}};
  for (const char* rank : {"rank0.safetensors", "rank1.safetensors", "rank2.safetensors"})
    write_safetensors(scratch.path / rank, tensors, {});
  CHECK(found(verify::read_dump(scratch.path)) == std::vector<std::string>{"S0"});
}

TEST_CASE("ranks may be without some uses of a parameter, as stages of a pipeline are") {
  const ScratchFolder scratch;
  std::ofstream(scratch.path / "manifest.json") << R"J({"weft_manifest": 1, "reducer": "sum"})J";
  const Tensor first = data_of(0, {2, 3}), last = data_of(1, {2, 3}), sum = (Var(first) + last).value();
  write_safetensors(scratch.path / "rank0.safetensors",
                    std::vector<NamedTensor>{{"local/w@embedding", first}, {"reduced/w", sum}}, {});
  write_safetensors(scratch.path / "rank1.safetensors",
                    std::vector<NamedTensor>{{"local/w@head", last}, {"reduced/w", sum}}, {});
  CHECK(found(verify::read_dump(scratch.path)) == std::vector<std::string>{"S0"});
}

TEST_CASE("tensors of a job that contradict each other are refused") {
  using Tensors = std::vector<NamedTensor>;
  const auto differ = [](const Tensors& first, const Tensors& last, const std::string& said) {
    const ScratchFolder scratch;
    std::ofstream(scratch.path / "manifest.json") << R"J({"weft_manifest": 1})J";
    write_safetensors(scratch.path / "rank0.safetensors", first, {});
    write_safetensors(scratch.path / "rank1.safetensors", last, {});
    CHECK_THROWS_WITH(verify::read_dump(scratch.path), Catch::Matchers::Contains(said));
  };
  const auto refused = [&](const Tensors& on_each, const std::string& said) { differ(on_each, on_each, said); };
  const Tensor x = data_of(0, {4});
  refused({{"local/w", x}, {"local/w@head", x}, {"reduced/w", x}}, "there are two local gradients of 'w'");
  refused({{"local/w@a", x}, {"local/w@b", data_of(0, {5})}, {"reduced/w", x}}, "there are two local gradients of 'w'");
  refused({{"gradient_norm", x}}, "'gradient_norm' is one number, not (4)");
  refused({{"local/w", x}}, "there is no 'reduced/w'");
  refused({{"local/w", x}, {"reduced/w", data_of(0, {5})}},
          "the gradient of 'w' is (5) on rank 0, but by its placements (4)");
  refused({{"local/w", x}, {"reduced/w", x}, {"again/w", data_of(0, {3})}},
          "the repeated gradient of 'w' has 3 elements, not 4");
  const Tensors right = {{"local/w", x}, {"reduced/w", x}};
  differ(right, {{"local/w/0", x}, {"local/w/1", x}, {"reduced/w", x}},
         "rank1.safetensors: 'w' has local gradients of 2 micro-batches, on rank 0 of 1");
}

TEST_CASE("each rank's norm of all gradients is read from its file") {
  const ScratchFolder scratch;
  std::ofstream(scratch.path / "manifest.json") << R"J({"weft_manifest": 1})J";
  const Tensor x = data_of(0, {4});
  std::vector<double> norms;
  for (const int r : {0, 1, 2}) {
    norms.push_back(1.5 + r);
    const std::vector<NamedTensor> tensors = {
        {"local/w", x}, {"reduced/w", x}, {"gradient_norm", Tensor::full({}, norms.back(), DType::f32)}};
    write_safetensors(scratch.path / ("rank" + std::to_string(r) + ".safetensors"), tensors, {});
  }
  CHECK(verify::read_dump(scratch.path).norm.value().by_rank == norms);
}
