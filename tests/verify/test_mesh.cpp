// SPDX-License-Identifier: Apache-2.0
// The verifier against jobs whose ranks are a mesh: what is right is called right, and every mistake by its name.
#include <random>

#include "tests/support/catch.h"
#include "tests/verify/planted_mesh.h"

using namespace weft;
using namespace weft::planted;
using verify::Layout;
using verify::Mesh;
using verify::Outcome;
using verify::Verdict;

namespace {

const Mesh rectangle{{{"dp", 3}, {"tp", 2}}}, line{{{"tp", 5}}}, cube{{{"dp", 2}, {"cp", 2}, {"tp", 2}}};

std::string found(const Verdict& verdict) {
  if (!verdict.best) return "unknown";
  return verdict.best->signature->id + (verdict.best->variant.empty() ? "" : ": " + verdict.best->variant);
}

void check_only(const Verdict& verdict, const std::string& expected) {
  CHECK(found(verdict) == expected);
  CHECK(verdict.outcome == (expected == "S0" ? Outcome::correct : Outcome::wrong));
  INFO((verdict.same_as_best.empty() ? "" : verdict.same_as_best[0]));
  CHECK(verdict.same_as_best.empty());
  if (verdict.runner_up) CHECK(verdict.runner_up->error > verify::limit);
}

// A framework that takes the gradient for placed in another way than it is.
Framework acting_on(const Mesh& mesh, const Layout& layout) {
  return [=](Groups& groups, const std::vector<Tensor>& local) { return reduced(mesh, layout, groups, sum_of(local)); };
}

struct Lapse {
  Mesh mesh;
  const char *layout, *acted_on, *found;
};
const Lapse lapses[] = {
    {rectangle, "Partial(avg) Partial()", "Partial(avg) Partial()", "S0"},
    {rectangle, "Partial(avg) Partial()", "Partial(avg) Replicate()", "S29: over tp"},
    {rectangle, "Partial(avg) Shard(1)", "Replicate() Shard(1)", "S22"},
    {rectangle, "Partial(avg) Shard(0)", "Partial() Shard(0)", "S8"},
    {line, "Partial()", "Replicate()", "S29: over tp"},
    {line, "Shard(0)", "Shard(0)", "S0"},
    {line, "Partial(avg)", "Replicate()", "S22"},
    {line, "Partial()", "Partial(avg)", "S30: divided by the size of tp"},
    {cube, "Partial(avg) Partial(avg) Partial()", "Partial(avg) Partial(avg) Replicate()", "S29: over tp"},
    {cube, "Partial(avg) Partial() Partial()", "Partial(avg) Replicate() Partial()", "S29: over cp"},
    {cube, "Partial(avg) Partial(avg) Shard(0)", "Partial(avg) Replicate() Shard(0)", "S22: over cp"},
    {cube, "Partial(avg) Partial(avg) Replicate()", "Replicate() Partial(avg) Replicate()", "S22: over dp"},
    {cube, "Partial(avg) Partial(avg) Shard(1)", "Partial() Partial() Shard(1)", "S8"},
};

}  // namespace

TEST_CASE("an axis that is left out, or summed where it is to be averaged, is named") {
  for (const Lapse& lapse : lapses)
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Planted planted{lapse.mesh, layout_of(lapse.mesh, lapse.layout), {7, 5}, dtype};
      const verify::Dump dump =
          dump_of(lapse.mesh, {parameter("w", planted, acting_on(lapse.mesh, layout_of(lapse.mesh, lapse.acted_on)))});
      INFO(lapse.layout << " taken for " << lapse.acted_on << " in " << text(dtype));
      check_only(verify::verdict(dump.parameters[0], dump), lapse.found);
    }
}

TEST_CASE("a reducer that divides its result leaves out an axis all the same") {
  for (const char* target : {"Shard(0) Replicate()", "Shard(1) Replicate()"}) {
    const Layout right = layout_of(rectangle, "Partial(avg) Partial()", target),
                 wrong = layout_of(rectangle, "Partial(avg) Replicate()", target);
    const Planted planted{rectangle, right, {4, 7}};  // two ranks have two rows each, and one has none
    verify::Dump dump = dump_of(rectangle, {parameter("w", planted, acting_on(rectangle, wrong))});
    check_only(verify::verdict(dump.parameters[0], dump), "S29: over tp");
    dump.parameters = {correct_parameter("w", planted)};
    check_only(verify::verdict(dump.parameters[0], dump), "S0");
  }
}

TEST_CASE("a reducer that flattens, and gives each rank a range of the result, leaves out an axis all the same") {
  struct Case {
    const char *local, *reduced, *acted_on, *found;
  };
  const Case all[] = {{"Partial(avg) Partial()", "Flat() Replicate()", "Partial(avg) Partial()", "S0"},
                      {"Partial(avg) Partial()", "Flat() Replicate()", "Partial(avg) Replicate()", "S29: over tp"},
                      {"Partial(avg) Shard(1)", "Flat() Shard(1)", "Partial(avg) Shard(1)", "S0"},
                      {"Partial(avg) Shard(1)", "Flat() Shard(1)", "Partial() Shard(1)", "S8"},
                      {"Partial(avg) Flat()", "Replicate() Replicate()", "Partial(avg) Flat()", "S0"},
                      {"Partial(avg) Flat()", "Replicate() Replicate()", "Partial() Flat()", "S8"}};
  for (const Case& each : all)
    for (const DType dtype : {DType::f64, DType::f32}) {
      INFO(each.local << ", then " << each.reduced << ", taken for " << each.acted_on << " in " << text(dtype));
      const Planted planted{rectangle, layout_of(rectangle, each.local, each.reduced), {4, 7}, dtype};
      const Layout acted_on = layout_of(rectangle, each.acted_on, each.reduced);
      const verify::Dump dump = dump_of(rectangle, {parameter("w", planted, acting_on(rectangle, acted_on))});
      check_only(verify::verdict(dump.parameters[0], dump), each.found);
    }
}

TEST_CASE("copies that differ where they should be equal are named, and equal ones are not suspected") {
  const Planted planted{rectangle, layout_of(rectangle, "Partial(avg) Partial()"), {4, 3}};
  verify::Dump dump = dump_of(
      rectangle, {parameter("w", planted, acting_on(rectangle, layout_of(rectangle, "Partial(avg) Replicate()")))});
  dump.parameters[0].layout = layout_of(rectangle, "Partial(avg) Replicate()");
  check_only(verify::verdict(dump.parameters[0], dump), "S29: over tp");
  dump.parameters = {correct_parameter("w", {rectangle, layout_of(rectangle, "Partial(avg) Replicate()"), {4, 3}})};
  const Verdict verdict = verify::verdict(dump.parameters[0], dump);
  check_only(verdict, "S0");
  CHECK(verdict.blind_to.empty());
}

TEST_CASE("terms of some coordinates of an axis that are missing are named") {
  for (const Mesh& mesh : {rectangle, cube}) {
    const Layout layout =
        layout_of(mesh, mesh.axes.size() == 2 ? "Partial(avg) Shard(0)" : "Partial(avg) Shard(0) Partial()");
    const Planted planted{mesh, layout, {7, 5}};
    const verify::Dump dump =
        dump_of(mesh, {parameter("w", planted, [&](Groups& groups, const std::vector<Tensor>& local) {
                  const double kept = groups.coordinate(0) == 1 ? 0 : 1;
                  return reduced(mesh, layout, groups, (Var(sum_of(local)) * kept).value());
                })});
    check_only(verify::verdict(dump.parameters[0], dump), "S24: without rank 1 of dp");
  }
}

TEST_CASE("a factor on one class of parameters is named, and not on the others") {
  struct Case {
    Mesh mesh;
    const char *dense, *experts;
    std::vector<size_t> averaged;
  };
  const Mesh grid{{{"dp", 3}, {"ep", 2}}}, experts_only{{{"ep", 5}}},
      cube_of_experts{{{"dp", 2}, {"ep", 2}, {"tp", 2}}};
  for (const Case& each :
       {Case{grid, "Partial(avg) Partial(avg)", "Partial(avg) Shard(0)", {1}},
        Case{experts_only, "Partial(avg)", "Shard(0)", {0}},
        Case{cube_of_experts, "Partial(avg) Partial(avg) Replicate()", "Partial(avg) Shard(0) Shard(1)", {1}}})
    for (const DType dtype : {DType::f64, DType::f32})
      for (const bool labels : {false, true}) {
        Layout dense = layout_of(each.mesh, each.dense), experts = layout_of(each.mesh, each.experts);
        experts.averaged = each.averaged;
        Layout undivided = experts;
        undivided.averaged = {};
        if (labels) dense.label = "dense", experts.label = "experts";
        std::vector<verify::ParameterEvidence> right, wrong;
        for (int i = 0; i < 3; ++i) {
          const Planted of_dense{each.mesh, dense, {4, 3}, dtype, 2, 2 * i},
              of_experts{each.mesh, experts, {5, 2, 3}, dtype, 2, 2 * i + 1};
          for (auto* all : {&right, &wrong}) all->push_back(correct_parameter("dense." + std::to_string(i), of_dense));
          right.push_back(correct_parameter("expert." + std::to_string(i), of_experts));
          wrong.push_back(parameter("expert." + std::to_string(i), of_experts, acting_on(each.mesh, undivided)));
        }
        for (const Verdict& verdict : verify::verdicts(dump_of(each.mesh, right))) check_only(verdict, "S0");
        const auto size = std::to_string(each.mesh.axes[each.averaged[0]].size);
        for (const Verdict& verdict : verify::verdicts(dump_of(each.mesh, wrong))) {
          if (verdict.subject.starts_with("parameter 'dense")) {
            check_only(verdict, "S0");
          } else {
            CHECK(verdict.best->signature->id == "S30");
            CHECK(verdict.same_as_best.empty());
            if (labels) CHECK(found(verdict) == "S30: dense 1x, experts " + size + "x");
          }
        }
        for (verify::ParameterEvidence& p : wrong)  // nothing of one class: all have the factor
          if (p.name.starts_with("dense"))
            for (verify::Matrix& m : p.reduced) m *= each.mesh.axes[each.averaged[0]].size;
        const std::vector<Verdict> all = verify::verdicts(dump_of(each.mesh, wrong));
        CHECK(all[0].best->signature->id != "S30");
      }
}

namespace {

// `count` says how often the squares of a parameter on rank `of` count in the norm of `rank`.
void add_norm(verify::Dump& dump, DType dtype, const std::function<double(const Layout&, int of, int rank)>& count) {
  dump.norm.emplace();
  dump.norm->precision = dump.parameters[0].precision;
  for (int rank = 0; rank < dump.ranks; ++rank) {
    double sum = 0;
    for (const verify::ParameterEvidence& p : dump.parameters)
      for (int q = 0; q < dump.ranks; ++q)
        sum += count(*p.layout, q, rank) * p.reduced[static_cast<size_t>(q)].squaredNorm();
    dump.norm->by_rank.push_back(dtype == DType::f32 ? static_cast<double>(static_cast<float>(std::sqrt(sum)))
                                                     : std::sqrt(sum));
  }
}

// Whether rank q has the first of equal copies along all axes but these.
bool first_copy(const Mesh& mesh, const Layout& layout, int q, const std::vector<size_t>& but = {}) {
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    if (layout.reduced[axis].kind == verify::Placement::Kind::replicate && mesh.coordinate(axis, q) != 0 &&
        std::ranges::find(but, axis) == but.end())
      return false;
  return true;
}

}  // namespace

TEST_CASE("a single element and zeros have no factor, since they are a multiple of anything") {
  const auto factor = [](const Shape& whole, double by) {
    verify::ParameterEvidence planted = correct_parameter("w", {line, layout_of(line, "Partial(avg)"), whole});
    for (verify::Matrix& m : planted.reduced) m *= by;
    return verify::verdict(planted, dump_of(line, {planted})).factor;
  };
  CHECK(factor({4, 3}, 2).value_or(0) == Approx(2));
  CHECK_FALSE(factor({1}, 2));
  CHECK_FALSE(factor({4, 3}, 0));
}

TEST_CASE("what counts more or less than once in the norm of all gradients is named") {
  struct Kind {
    Mesh mesh;
    std::vector<std::string> layouts;
    size_t axis;  // of tensor parallelism
  };
  for (const Kind& kind :
       {Kind{rectangle, {"Partial(avg) Partial()", "Partial(avg) Shard(1)", "Partial(avg) Shard(0)"}, 1},
        Kind{line, {"Partial()", "Shard(0)", "Shard(1)"}, 0},
        Kind{cube, {"Partial(avg) Partial() Partial()", "Partial(avg) Partial(avg) Shard(1)"}, 2}})
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Mesh& mesh = kind.mesh;
      const std::vector<std::string>& layouts = kind.layouts;
      const size_t axis = kind.axis;
      const auto named = [&](const auto& count) {
        verify::Dump dump = dump_of(mesh, {});
        for (size_t i = 0; i < layouts.size(); ++i)
          dump.parameters.push_back(correct_parameter(
              "w" + std::to_string(i), {mesh, layout_of(mesh, layouts[i]), {5, 4}, dtype, 2, static_cast<int>(i)}));
        add_norm(dump, dtype, count);
        for (const verify::ParameterEvidence& p : dump.parameters) check_only(verify::verdict(p, dump), "S0");
        return verify::verdict(*dump.norm, dump);
      };
      const std::string size = std::to_string(mesh.axes[axis].size);
      check_only(named([&](const Layout& layout, int q, int) { return first_copy(mesh, layout, q); }), "S0");
      const bool same_as_all = mesh.axes.size() == 1;  // the only axis: every copy counts
      check_only(named([&](const Layout& layout, int q, int) { return first_copy(mesh, layout, q, {axis}); }),
                 same_as_all ? "S31: every rank's copy counts" : "S31: replicated over tp: counted " + size + " times");
      check_only(named([&](const Layout& layout, int q, int rank) {
                   const bool sharded = layout.reduced[axis].kind == verify::Placement::Kind::shard;
                   return first_copy(mesh, layout, q) &&
                          (!sharded || mesh.coordinate(axis, q) == mesh.coordinate(axis, rank));
                 }),
                 "S31: sharded over tp: only the own shard counts");
      check_only(named([&](const Layout&, int, int) { return 1; }), "S31: every rank's copy counts");
      const Layout first = layout_of(mesh, layouts[0]);
      check_only(named([&](const Layout& layout, int q, int) {
                   return first_copy(mesh, layout, q) && layout.local != first.local;
                 }),
                 "S31: class " + verify::class_of(first, mesh) + ": left out");
    }
}

TEST_CASE("uses of a parameter that are lost are named") {
  for (const Mesh& mesh : {rectangle, line})
    for (const DType dtype : {DType::f64, DType::f32}) {
      Planted planted{
          mesh, layout_of(mesh, mesh.axes.size() == 2 ? "Partial(avg) Shard(0)" : "Partial(avg)"), {6, 4}, dtype};
      planted.uses = {"embedding", "head", "prior"};
      const auto named = [&](std::initializer_list<size_t> kept) {
        const verify::Dump dump =
            dump_of(mesh, {parameter("tied", planted, [&](Groups& groups, const std::vector<Tensor>& local) {
                      std::vector<Tensor> terms;
                      for (size_t i = 0; i < local.size(); ++i)
                        if (std::ranges::find(kept, i % 3) != kept.end()) terms.push_back(local[i]);
                      return reduced(mesh, planted.layout, groups, sum_of(terms));
                    })});
        return verify::verdict(dump.parameters[0], dump);
      };
      check_only(named({0, 1, 2}), "S0");
      check_only(named({0, 2}), "S32: without head");
      check_only(named({1}), "S32: without embedding, prior");
    }
}

TEST_CASE("memory that nothing was written to is named if it differs when the step is repeated") {
  for (const Mesh& mesh : {rectangle, line}) {
    const Planted planted{
        mesh, layout_of(mesh, mesh.axes.size() == 2 ? "Partial(avg) Partial()" : "Partial()"), {8, 9}, DType::f32};
    const auto named = [&](double first, double second) {
      verify::ParameterEvidence p = correct_parameter("w", planted);
      p.again = p.reduced;
      for (int i = 0; i < 7; ++i) p.reduced[1](3 * i) = first * (1 + i), p.again[1](3 * i) = second * (1 + i);
      const verify::Dump dump = dump_of(mesh, {p});
      return verify::verdict(dump.parameters[0], dump);
    };
    check_only(named(1e30, -3e27), "S27");
    check_only(named(std::numeric_limits<double>::quiet_NaN(), 0), "S27");
    CHECK(found(named(1e30, 1e30)) == "unknown");  // some other mistake, which repeats
    const Verdict late = named(0.5, 0.25);
    CHECK(found(late) == "unknown");
    CHECK(late.remarks.at(0).starts_with("repeating the step gave other numbers"));
    verify::ParameterEvidence once = correct_parameter("w", planted);
    once.reduced[0](1) = -1e25;
    const verify::Dump dump = dump_of(mesh, {once});
    CHECK(verify::verdict(once, dump).remarks.at(0).find("again/w") != std::string::npos);
  }
}

TEST_CASE("sums in a lower precision are named by their size, and other small differences are not") {
  struct Job {
    const Mesh& mesh;
    const char* placed;
  };
  for (const Job& job : {Job{rectangle, "Partial(avg) Partial()"}, Job{line, "Partial(avg)"}, Job{line, "Partial()"}})
    for (const std::string low : {"bf16", "f16"}) {
      const Mesh& mesh = job.mesh;
      const Layout layout = layout_of(mesh, job.placed);
      const auto rounded = [&](const Var& x) -> Var {
        if (low == "bf16") return x.value().to(DType::bf16).to(DType::f32);
        Tensor y = x.value().clone();
        for (int64_t i = 0; i < y.size(); ++i)
          y.mutate<float>()[i] = static_cast<float>(static_cast<Eigen::half>(y.mutate<float>()[i]));
        return y;
      };
      // A ring: each rank adds its own to what it is sent, and stores the sum in the lower precision.
      const Framework ring = [&](Groups& groups, const std::vector<Tensor>& local) {
        Tensor x = sum_of(local);
        for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
          const Tensor all = groups[axis].all_gather(x.reshape({1, x.size()}));
          Var sum = slice(all, 0, 0, 1);
          for (int q = 1; q < mesh.axes[axis].size; ++q) sum = rounded(rounded(sum) + slice(all, 0, q, q + 1));
          if (layout.local[axis].kind == verify::Placement::Kind::mean)
            sum = sum / static_cast<double>(mesh.axes[axis].size);
          x = sum.value().clone().reshape(x.shape());
        }
        return x;
      };
      const Framework chain = [&](Groups& groups, const std::vector<Tensor>& local) {
        Var sum = rounded(local[0]);
        for (size_t k = 1; k < local.size(); ++k) sum = rounded(sum + rounded(local[k]));
        return reduced(mesh, layout, groups, sum.value());
      };
      const auto named = [&](const Framework& framework, const Shape& whole = {40, 30}) {
        const verify::Dump dump = dump_of(mesh, {parameter("w", {mesh, layout, whole, DType::f32}, framework)});
        return verify::verdict(dump.parameters[0], dump);
      };
      for (const Framework& framework : {ring, chain}) {
        const Verdict verdict = named(framework);
        CHECK(found(verdict).starts_with("S28: in " + low));
        CHECK((verdict.best && 0 < verdict.best->error && verdict.best->error <= 1));  // of all that rounding can do
        CHECK(verdict.remarks.at(0).starts_with("named by the size"));
        CHECK(found(named(framework, {7, 9})) == "unknown");  // a size is no evidence in so few elements
      }
      const auto off_by = [&](const std::function<Var(const Var&)>& change) {
        return found(named([&](Groups& groups, const std::vector<Tensor>& local) {
          return change(reduced(mesh, layout, groups, sum_of(local))).value();
        }));
      };
      CHECK(off_by([](const Var& x) { return x * 1.004; }) == "unknown");
      CHECK(off_by([](const Var& x) { return x + Tensor::full(x.shape(), 0.002, DType::f32); }) == "unknown");
      CHECK(off_by([](const Var& x) { return x + data_of(3, x.shape(), 77, DType::f32) * 0.003; }) == "unknown");
    }
}

namespace {

Layout random_layout(std::mt19937& random, const Mesh& mesh) {
  using Kind = verify::Placement::Kind;
  Layout layout;
  const bool divides = random() % 2 == 0;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const int dimension = static_cast<int>(random() % 2);
    const verify::Placement all[] = {{}, {Kind::sum}, {Kind::mean, -1, true}, {Kind::shard, dimension}};
    layout.local.push_back(all[random() % 4]);
    layout.reduced.push_back(verify::settled(layout.local)[axis]);
    if (divides && layout.reduced[axis] == verify::Placement()) layout.reduced[axis] = {Kind::shard, dimension};
    if (!layout.local[axis].pending() && random() % 2 == 0) layout.averaged.push_back(axis);
  }
  return layout;
}

}  // namespace

TEST_CASE("hundreds of random jobs on random meshes are called correct") {
  const std::vector<int> meshes[] = {{3, 2}, {5}, {2, 2, 2}, {1, 3}, {2, 3}, {4}};
  std::mt19937 random(12);
  int wrong = 0;
  for (int i = 0; i < 300; ++i) {
    Mesh mesh;
    for (const int size : meshes[random() % std::size(meshes)])
      mesh.axes.push_back({std::string(1, static_cast<char>('a' + mesh.axes.size())), size});
    const DType dtype = random() % 2 == 0 ? DType::f32 : DType::f64;
    const int passes = static_cast<int>(1 + random() % 3);
    verify::Dump dump = dump_of(mesh, {});
    for (int p = 0; p < 3; ++p) {
      const Shape whole = {static_cast<int64_t>(3 + random() % 6), static_cast<int64_t>(1 + random() % 7)};
      Planted planted{mesh, random_layout(random, mesh), whole, dtype, passes, 3 * i + p};
      if (random() % 2 == 0) planted.uses = {"first", "second"};
      dump.parameters.push_back(correct_parameter("w" + std::to_string(p), planted));
    }
    add_norm(dump, dtype, [&](const Layout& layout, int q, int) { return first_copy(mesh, layout, q); });
    for (const Verdict& verdict : verify::verdicts(dump)) {
      INFO("job " << i << " on " << mesh.text() << ", " << verdict.subject << ": " << found(verdict));
      CHECK(verdict.outcome == Outcome::correct);
      wrong += verdict.outcome != Outcome::correct;
    }
  }
  CHECK(wrong == 0);
}
