// SPDX-License-Identifier: Apache-2.0
// What a manifest says of an optimizer, and what files hold of its updates.
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/on_ranks.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/verdict/verdict.h"
#include "weft/data/files/safetensors.h"

using namespace weft;
using Catch::Matchers::Contains;

namespace test_update_files {

using Tensors = std::vector<NamedTensor>;

Tensor times(double factor, const Tensor& x) { return (Var(x) * factor).value(); }

void write(const ScratchFolder& folder, const std::string& optimizer, const Tensors& tensors) {
  std::ofstream(folder.path / "manifest.json") << R"J({"weft_manifest": 1, "reducer": "sum")J" << optimizer << "}";
  for (const char* rank : {"rank0.safetensors", "rank1.safetensors", "rank2.safetensors"})
    write_safetensors(folder.path / rank, tensors, {});
}

const std::string sgd = R"J(, "optimizer": {"name": "sgd", "rate": 0.5})J";

TEST_CASE("updates are read from files and held against the gradients of all ranks", "[test_update_files]") {
  const ScratchFolder folder;
  const Tensor x = data_of(0, {4, 3});
  const auto said = [&](const std::string& optimizer, const Tensor& update, const Tensors& more = {}) {
    Tensors tensors = {{"local/w", x}, {"reduced/w", times(3, x)}, {"update/w", update}};
    tensors.insert(tensors.end(), more.begin(), more.end());
    write(folder, optimizer, tensors);
    const verify::Dump dump = verify::read_dump(folder.path);
    const verify::Verdict verdict = verify::verdicts(dump).back();
    CHECK(verdict.subject == "the update of 'w'");
    return verdict.best ? verdict.best->signature->id : "unknown";
  };
  CHECK(said(sgd, times(-1.5, x)) == "S0");
  CHECK(said(sgd, times(-4.5, x)) == "S8");
  const double norm = verify::read_dump(folder.path).parameters[0].local[0][0].norm() * 3;
  CHECK(said(R"J(, "optimizer": {"name": "sgd", "rate": 0.5, "clip": 1})J", times(-1.5 / norm, x)) == "S0");
  CHECK(said(R"J(, "optimizer": {"name": "sgd", "rate": 0.5, "weight_decay": 0.1})J", times(-1.55, x),
             {{"weight/w", x}}) == "S0");
}

TEST_CASE("of a dump that stays in its files no update is judged", "[test_update_files]") {
  const ScratchFolder folder;
  const Tensor x = data_of(0, {4, 3});
  write(folder, sgd, {{"local/w", x}, {"reduced/w", times(3, x)}, {"update/w", times(-1.5, x)}});
  CHECK(verify::overall(verify::verdicts(verify::read_dump(folder.path, 0))) == verify::Outcome::cannot_tell);
}

TEST_CASE("an optimizer or an update that cannot be right is refused", "[test_update_files]") {
  const Tensor x = data_of(0, {4, 3});
  const Tensors gradients = {{"local/w", x}, {"reduced/w", times(3, x)}};
  const auto refused = [&](const std::string& optimizer, Tensors more, const std::string& said) {
    const ScratchFolder folder;
    more.insert(more.end(), gradients.begin(), gradients.end());
    write(folder, optimizer, more);
    CHECK_THROWS_WITH(verify::read_dump(folder.path), Contains(said));
  };
  const auto of = [](const std::string& entries) { return ", \"optimizer\": {" + entries + "}"; };
  refused("", {{"update/w", x}}, "'update/w' needs a section \"optimizer\" in manifest.json");
  refused(sgd, {{"update/w", data_of(0, {5})}}, "'update/w' has 5 elements, not 12");
  refused(sgd, {{"weight/w", x}}, "there is a 'weight/w', but no 'update/w'");
  refused(sgd, {{"update/v", x}, {"reduced/v", x}}, "'v' has an update, but no local gradients");
  refused(sgd, {{"update/w", x}, {"weight/w", data_of(0, {5})}}, "'weight/w' does not have as many elements");
  refused(of(R"J("name": "sgd", "rate": 0.5, "weight_decay": 0.1)J"), {{"update/w", x}}, "needs 'weight/w'");
  refused(of(R"J("name": "sgd")J"), {}, "rate");
  refused(of(R"J("name": "adam", "rate": 0.5)J"), {}, "knows no 'adam'; it knows adamw, muon, sgd");
  refused(of(R"J("name": "sgd", "rate": -1)J"), {}, "rate is from 0 to 1e12, not -1");
  refused(of(R"J("name": "sgd", "rate": 1, "momentum": 0.9)J"), {}, "has no entry 'momentum'");
  refused(of(R"J("name": "muon", "rate": 1, "iterations": 0)J"), {}, "the number of iterations");
  refused(of(R"J("name": "muon", "rate": 1)J"),
          {{"update/v", data_of(0, {5})}, {"local/v", data_of(0, {5})}, {"reduced/v", data_of(0, {5})}},
          "Muon updates matrices, and 'v' is (5)");
}

}  // namespace test_update_files
