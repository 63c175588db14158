// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/planted_terms.h"

#include "weft/collectives/run_ranks.h"

namespace weft::planted {
namespace {

Parameters watched(Tape& tape, const std::map<std::string, Tensor>& at) {
  Parameters all;
  for (const auto& [name, x] : at) all.emplace(name, tape.watch(x));
  return all;
}

// Calls `add` with each tensor that a rank would write.
class Writer {
 public:
  Writer(const Loss& loss, const Share& share, DType dtype) : loss_(loss), share_(share), dtype_(dtype) {}

  using Add = std::function<void(size_t rank, const std::string& name, const Tensor&)>;
  void write(const Add& add) const {
    add_values(add, "", [&](const auto& value_at) { return one(value_at(loss_.parameters)); });
    for (const auto& parameter : loss_.parameters) {
      const std::string& name = parameter.first;
      const Tensor& x = parameter.second;
      const Tensor along = Tensor::uniform({directions, x.size()}, {name.size()}, -1, 1, DType::f64);
      add(0, "direction/" + name, along);
      add_values(add, "/" + name, [&](const auto& value_at) {
        Tensor values = Tensor::zeros({directions, 4}, DType::f64);
        for (int64_t d = 0; d < directions; ++d)
          for (const auto& [column, by] : {std::pair(0, -step), {1, -step / 2}, {2, step / 2}, {3, step}})
            values.mutate<double>()[4 * d + column] = value_at(moved(name, along, d, by));
        return values;
      });
    }
    for (const auto& [name, gradient] : gradients())
      for (size_t r = 0; r < ranks(); ++r) add(r, "reduced/" + name, gradient.to(dtype_));
  }

  static constexpr double step = 1e-3;

 private:
  static constexpr int64_t directions = 4;
  using Point = std::map<std::string, Tensor>;
  static Tensor one(double x) { return Tensor::full({}, x, DType::f64); }
  size_t ranks() const { return static_cast<size_t>(loss_.mesh.ranks()); }

  Point moved(const std::string& name, const Tensor& along, int64_t direction, double by) const {
    Point at = loss_.parameters;
    Tensor& x = at.at(name) = at.at(name).clone();
    for (int64_t i = 0; i < x.size(); ++i) x.mutate<double>()[i] += by * along.data<double>()[direction * x.size() + i];
    return at;
  }

  double term(const std::string& name, const Point& at) const {
    Tape tape;
    double sum = 0;
    for (const auto& [each, value] : loss_.terms(watched(tape, at)))
      if (name.empty() || name == each) sum += value.value().item();
    return sum;
  }
  std::vector<double> shares(const Point& at) const {
    std::vector<double> all(ranks());
    run_ranks(loss_.mesh.ranks(), [&](Communicator& world) {
      Groups groups(world, loss_.mesh);
      Tape tape;
      all[static_cast<size_t>(number(world))] = share_(groups, watched(tape, at)).value().item();
    });
    return all;
  }
  Point gradients() const {
    std::vector<Point> of_ranks(ranks());
    run_ranks(loss_.mesh.ranks(), [&](Communicator& world) {
      Groups groups(world, loss_.mesh);
      Tape tape;
      const Parameters parameters = watched(tape, loss_.parameters);
      std::vector<Var> all;
      for (const auto& [name, x] : parameters) all.push_back(x);
      const std::vector<Var> found = tape.gradient(share_(groups, parameters), all);
      size_t i = 0;
      for (const auto& [name, x] : parameters)
        of_ranks[static_cast<size_t>(number(world))][name] = world.all_reduce(found[i++].value());
    });
    return of_ranks[0];
  }

  template <class Tabulate> void add_values(const Add& add, const std::string& of, Tabulate tabulate) const {
    Tape tape;
    if (loss_.objective) add(0, "objective" + of, tabulate([&](const Point& at) { return term("", at); }));
    const Terms terms = loss_.terms(watched(tape, loss_.parameters));
    for (const auto& each : terms)
      if (terms.size() > 1)
        add(0, "objective" + of + "@" + each.first, tabulate([&](const Point& at) { return term(each.first, at); }));
    for (size_t r = 0; r < ranks() && !loss_.rows.empty(); ++r)
      add(r, "rank_loss" + of, tabulate([&](const Point& at) { return shares(at)[r]; }));
  }

  const Loss& loss_;
  const Share& share_;
  const DType dtype_;
};

}  // namespace

verify::Dump dump_of(const Loss& loss, const Share& share, DType dtype) {
  verify::Dump dump;
  dump.mesh = loss.mesh;
  dump.ranks = loss.mesh.ranks();
  dump.reducer = verify::Reducer::sum;
  dump.rows = loss.rows;
  verify::ScaleReader reader(Writer::step, std::vector<std::string>(static_cast<size_t>(dump.ranks), "a file"));
  for (const auto& [name, x] : loss.parameters) {
    verify::ParameterEvidence& p = dump.parameters.emplace_back();
    p.name = name;
    if (dtype == DType::f32) p.precision = {"f32", 0x1p-23};
    p.reduced.resize(static_cast<size_t>(dump.ranks));
  }
  Writer(loss, share, dtype).write([&](size_t rank, const std::string& name, const Tensor& x) {
    const verify::Role role = verify::role_by_name(name, nullptr);
    if (verify::ScaleReader::reads(role.kind)) return reader.place(role, x, rank);
    for (verify::ParameterEvidence& p : dump.parameters)
      if (p.name == role.of) p.reduced[rank] = flat(x);
  });
  dump.scale = reader.finish(dump.parameters);
  dump.parameters.clear();
  return dump;
}

}  // namespace weft::planted
