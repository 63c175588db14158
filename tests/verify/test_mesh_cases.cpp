// SPDX-License-Identifier: Apache-2.0
// Parallel layers, computed by the engine: their gradients are those of one process, the verifier calls them correct,
// and it names what users of other libraries have reported of such layers, planted here.
#include <mutex>

#include "tests/support/catch.h"
#include "tests/verify/mesh_cases.h"
#include "weft/collectives/run_ranks.h"

using namespace weft;
using namespace weft::planted;
using verify::Layout;
using verify::Outcome;
using verify::Verdict;

namespace {

constexpr int passes = 2;

// What a framework does with a gradient of this name: it acts on the layout that `change` leaves.
using Change = std::function<void(const std::string& name, Layout&)>;
// Whether it adds the gradient of this use of a parameter in this micro-batch.
using Takes = std::function<bool(const std::string& name, int micro_batch)>;
// What it makes of the result.
using Finish = std::function<Var(const std::string& name, const Var& gradient)>;
struct Job {
  Change change = {};
  Takes takes = {};
  Finish finish = {};
};

Layout layout_of(const verify::Mesh& mesh, const NamedGradient& gradient) {
  Layout layout = planted::layout_of(mesh, gradient.layout);
  if (gradient.averaged) layout.averaged = {mesh.axes.size() - 1};
  return layout;
}

verify::ParameterEvidence& parameter_of(verify::Dump& dump, const NamedGradient& gradient) {
  const std::string name = gradient.name.substr(0, gradient.name.find('@'));
  for (verify::ParameterEvidence& p : dump.parameters)
    if (p.name == name) return p;
  verify::ParameterEvidence& p = dump.parameters.emplace_back();
  const auto ranks = static_cast<size_t>(dump.ranks);
  p.name = name;
  p.layout = layout_of(*dump.mesh, gradient);
  if (gradient.gradient.dtype() == DType::f32) p.precision = {"f32", 0x1p-23};
  p.local.resize(ranks), p.reduced.resize(ranks), p.local_shapes.resize(ranks), p.reduced_shapes.resize(ranks);
  return p;
}

// Adds what one rank has to a dump.
void record(verify::Dump& dump, size_t rank, const std::vector<NamedGradient>& gradients, size_t k) {
  for (const NamedGradient& each : gradients) {
    verify::ParameterEvidence& p = parameter_of(dump, each);
    p.local_shapes[rank] = each.gradient.shape();
    p.local[rank].resize(passes);
    verify::Matrix& sum = p.local[rank][k];
    sum = sum.rows() == 0 ? flat(each.gradient) : verify::Matrix(sum + flat(each.gradient));
    const size_t at = each.name.find('@');
    if (at == std::string::npos) continue;
    auto& use = p.uses[each.name.substr(at + 1)];
    use.resize(static_cast<size_t>(dump.ranks));
    use[rank].push_back(flat(each.gradient));
  }
}

verify::Dump dump_of(const MeshCase& layer, const Job& job = {}, DType dtype = DType::f64) {
  verify::Dump dump;
  dump.mesh = layer.mesh;
  dump.ranks = layer.mesh.ranks();
  std::mutex mutex;
  run_ranks(dump.ranks, [&](Communicator& world) {
    Groups groups(world, layer.mesh);
    const auto rank = static_cast<size_t>(number(world));
    std::map<std::string, Tensor> sums;
    std::map<std::string, Layout> acted_on;
    for (int k = 0; k < passes; ++k) {
      std::vector<NamedGradient> gradients = layer.on_rank(groups, k);
      for (NamedGradient& each : gradients) {
        each.gradient = each.gradient.to(dtype);
        const std::string name = each.name.substr(0, each.name.find('@'));
        Layout& layout = acted_on[name] = layout_of(layer.mesh, each);
        if (job.change) job.change(name, layout);
        if (job.takes && !job.takes(each.name, k)) continue;
        Tensor& sum = sums[name];
        sum = sum.defined() ? (Var(sum) + each.gradient).value() : each.gradient;
      }
      const std::lock_guard lock(mutex);
      record(dump, rank, gradients, static_cast<size_t>(k));
    }
    for (const auto& [name, sum] : sums) {
      Tensor result = reduced(layer.mesh, acted_on[name], groups, sum);
      if (job.finish) result = job.finish(name, result).value();
      const std::lock_guard lock(mutex);
      verify::ParameterEvidence& p = parameter_of(dump, {name, ""});
      p.reduced[rank] = flat(result);
      p.reduced_shapes[rank] = result.shape();
    }
  });
  return dump;
}

std::string found(const Verdict& verdict) {
  if (!verdict.best) return "unknown";
  return verdict.best->signature->id + (verdict.best->variant.empty() ? "" : ": " + verdict.best->variant);
}
std::map<std::string, std::string> found(const verify::Dump& dump) {
  std::map<std::string, std::string> all;
  for (const Verdict& verdict : verify::verdicts(dump)) {
    CHECK(verdict.same_as_best.empty());
    all[verdict.subject] = found(verdict);
  }
  return all;
}

double norm_of(const verify::Dump& dump, const std::function<double(const verify::ParameterEvidence&)>& count) {
  double sum = 0;
  for (const verify::ParameterEvidence& p : dump.parameters) {
    double copies = 1;
    for (size_t axis = 0; axis < dump.mesh->axes.size(); ++axis)
      if (p.layout->reduced[axis] == verify::Placement()) copies *= dump.mesh->axes[axis].size;
    for (const verify::Matrix& m : p.reduced) sum += count(p) * m.squaredNorm() / copies;
  }
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("gradients of parallel layers are those of one process, and are called correct") {
  for (const MeshCase& layer : mesh_cases()) {
    INFO(layer.name);
    const verify::Dump dump = dump_of(layer, {.change = [](const std::string&, Layout& layout) {
                                        for (verify::Placement& each : layout.reduced) each = {};  // the whole
                                      }});
    std::map<std::string, Tensor> alone;
    for (int k = 0; k < passes; ++k)
      for (const NamedGradient& each : layer.alone(layer.mesh, k)) {
        Tensor& sum = alone[each.name];
        sum = sum.defined() ? (Var(sum) + each.gradient).value() : each.gradient;
      }
    CHECK(dump.parameters.size() == alone.size());
    for (const verify::ParameterEvidence& p : dump.parameters)
      for (const verify::Matrix& whole : p.reduced) {
        INFO(p.name);
        REQUIRE(whole.size() == alone.at(p.name).size());
        CHECK((whole - flat(alone.at(p.name))).norm() < 1e-12 * (1 + whole.norm()));
      }
    for (const DType dtype : {DType::f64, DType::f32})
      for (const auto& [subject, what] : found(dump_of(layer, {}, dtype))) {
        INFO(subject << " in " << text(dtype));
        CHECK(what == "S0");
      }
  }
}

namespace {

struct Report {
  const char *thread, *layer, *parameter, *axis, *taken_for, *found;
};
const Report reports[] = {
    {"NeMo-RL 3716", "norm in a sequence region", "norm.gamma", "tp", "Replicate()", "S29: over tp"},
    {"Megatron-LM 7452 (11)", "heads", "norm", "tp", "Replicate()", "S29: over tp"},
    {"Megatron-LM 1446", "norm in a sequence region", "norm.beta", "tp", "Replicate()", "S29: over tp"},
    {"torchtitan 1373", "ring of three", "keys", "cp", "Replicate()", "S29: over cp"},
    {"VeOmni 1059", "ring of four", "values", "cp", "Replicate()", "S29: over cp"},
    {"verl 7493", "ring of two", "queries", "dp", "Replicate()", "S22"},
    {"verl 7493", "columns and rows", "first.weight", "dp", "Replicate()", "S22"},
};

}  // namespace

TEST_CASE("axes that other libraries have left out are named") {
  for (const Report& report : reports)
    for (const DType dtype : {DType::f64, DType::f32}) {
      const MeshCase& layer = mesh_case(report.layer);
      INFO(report.thread << ": " << report.layer << " in " << text(dtype));
      const auto change = [&](const std::string& name, Layout& layout) {
        if (name == report.parameter)
          layout.local[layer.mesh.axis(report.axis)] = verify::placement_named(report.taken_for);
      };
      for (const auto& [subject, what] : found(dump_of(layer, {.change = change}, dtype)))
        CHECK(what == (subject == "parameter '" + std::string(report.parameter) + "'" ? report.found : "S0"));
    }
}

TEST_CASE("a factor that a reducer gives to everything is named: PyTorch 162338, JAX 36886") {
  for (const char* name : {"columns and rows", "vocabulary", "heads"}) {
    const MeshCase& layer = mesh_case(name);
    const int ranks = layer.mesh.axes[0].size;
    const auto sums = [](const std::string&, Layout& layout) {
      layout.local[0] = verify::placement_named("Partial()");
    };
    // Of a loss that is the sum over ranks, on every rank: each counts all of them.
    const auto again = [&](const std::string&, const Var& gradient) { return gradient * ranks; };
    for (const Job& job : {Job{.change = sums}, Job{.finish = again}})
      for (const auto& [subject, what] : found(dump_of(layer, job))) {
        INFO(name << ": " << subject);
        CHECK(what == "S8");
      }
  }
}

TEST_CASE("a divisor that counts elements, and a backward that overwrites: torchcomms 287, DeepSpeed 7718") {
  const auto divided = [](const std::string& name, const Var& gradient) {
    return name == "dense" ? gradient / static_cast<double>(gradient.value().size()) : gradient;
  };
  const auto last = [](const std::string& name, int micro_batch) { return name != "dense" || micro_batch == 1; };
  for (const auto& [job, expected] :
       {std::pair(Job{.finish = divided}, "S33: by the number of elements"), std::pair(Job{.takes = last}, "S15")}) {
    const auto all = found(dump_of(mesh_case("experts"), job));
    CHECK(all.at("parameter 'dense'") == expected);
    CHECK(all.at("parameter 'expert'") == "S0");
  }
}

TEST_CASE("what is gathered or divided over the group of another axis is named: Megatron-LM 7452 (4, 6, 7)") {
  struct Collective {
    const char *what, *local, *reduced, *acted_on, *made;
  };
  const Collective all[] = {
      {"(4) chunks of a saved activation", "V Shard(0)", "V Replicate()", "Shard(0) V", "Replicate() V"},
      {"(6) the input of cross attention", "V Shard(1)", "V Replicate()", "Shard(1) V", "Replicate() V"},
      {"(7) embeddings of a sequence", "V Replicate()", "V Shard(0)", "Replicate() V", "Shard(0) V"},
  };
  for (const verify::Mesh& mesh : {verify::Mesh{{{"dp", 2}, {"tp", 2}}}, verify::Mesh{{{"dp", 3}, {"tp", 3}}}})
    for (const Collective& each : all)
      for (const DType dtype : {DType::f64, DType::f32}) {
        INFO(each.what << " on " << mesh.text() << " in " << text(dtype));
        const int64_t rows = 2 * mesh.axes[0].size;
        Planted planted{mesh, layout_of(mesh, each.local, each.reduced), {rows, rows}, dtype, 1};
        const Layout wrong = layout_of(mesh, each.acted_on, each.made);
        const auto judged = [&](const verify::ParameterEvidence& p) {
          verify::Dump dump;
          dump.mesh = mesh;
          dump.ranks = mesh.ranks();
          dump.parameters = {p};
          return found(verify::verdict(dump.parameters[0], dump));
        };
        CHECK(judged(correct_parameter("x", planted)) == "S0");
        CHECK(judged(parameter("x", planted, [&](Groups& groups, const std::vector<Tensor>& local) {
                return reduced(mesh, wrong, groups, local[0]);
              })) == "S34: over dp instead of tp");
      }
}

TEST_CASE("experts that are not divided by the ranks that share them are named: Megatron-LM 5956, PyTorch 160285") {
  const verify::Dump dump =
      dump_of(mesh_case("experts"), {.change = [](const std::string&, Layout& layout) { layout.averaged = {}; }});
  const auto all = found(dump);
  CHECK(all.at("parameter 'dense'") == "S0");
  CHECK(all.at("parameter 'expert'") == "S30: Shard(0) over ep 2x, data parallel 1x");
}

TEST_CASE("a gradient that every rank has, but which is summed over them, is named: tt-metal 31748") {
  const verify::Dump dump =
      dump_of(mesh_case("columns and rows of five ranks"), {.change = [](const std::string& name, Layout& layout) {
                if (name == "second.bias") layout.local[1] = verify::placement_named("Partial()");
              }});
  const auto all = found(dump);
  CHECK(all.at("parameter 'second.bias'").starts_with("S30: "));
  CHECK(all.at("parameter 'second.weight'") == "S0");
}

TEST_CASE("a use of a tied table that is lost is named: DeepSpeed 8224") {
  for (const char* layer : {"vocabulary", "vocabulary on three ranks"})
    for (const std::string lost : {"embedding", "head"}) {
      const verify::Dump dump =
          dump_of(mesh_case(layer), {.takes = [&](const std::string& name, int) { return name != "table@" + lost; }});
      CHECK(found(dump).at("parameter 'table'") == "S32: without " + lost);
    }
}

TEST_CASE("parameters that count more than once in the norm are named: NeMo-RL 3788, TransformerEngine-ROCm 715") {
  verify::Dump dump = dump_of(mesh_case("norm in a sequence region"));
  for (verify::ParameterEvidence& p : dump_of(mesh_case("columns and rows")).parameters) dump.parameters.push_back(p);
  const auto named = [&](const std::function<double(const verify::ParameterEvidence&)>& count) {
    dump.norm.emplace();
    dump.norm->by_rank.assign(6, norm_of(dump, count));
    return found(dump).at("the norm of all gradients");
  };
  const auto replicated = [](const verify::ParameterEvidence& p) {
    return p.layout->reduced[1] == verify::Placement();
  };
  CHECK(named([](const auto&) { return 1; }) == "S0");
  CHECK(named([&](const auto& p) { return replicated(p) ? 2 : 1; }) == "S31: replicated over tp: counted 2 times");
  CHECK(named([&](const auto& p) { return replicated(p) ? 1 : 2; }) == "S31: sharded over tp: counted 2 times");
}

TEST_CASE("shards that are taken for copies are missing in the norm: Megatron-LM 7452 (8), 5916") {
  verify::Dump dump = dump_of(mesh_case("heads"));
  for (verify::ParameterEvidence& p : dump.parameters) p.layout->label = p.name;
  const verify::Mesh& mesh = *dump.mesh;
  double all = 0, taken = 0;
  for (const verify::ParameterEvidence& p : dump.parameters)
    for (int r = 0; r < mesh.ranks(); ++r) {
      const double copies = p.layout->reduced[1] == verify::Placement() ? 2 : 1;
      const double squares = p.reduced[static_cast<size_t>(r)].squaredNorm() / (3 * copies);
      all += squares;
      if (p.name != "sinks" || mesh.coordinate(1, r) == 0) taken += squares;
    }
  const auto named = [&](double squares) {
    dump.norm.emplace();
    dump.norm->by_rank.assign(6, std::sqrt(squares));
    return found(dump).at("the norm of all gradients");
  };
  CHECK(named(all) == "S0");
  CHECK(named(taken) == "S31: class sinks: only the first shard over tp counts");
}
