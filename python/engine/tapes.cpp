// SPDX-License-Identifier: Apache-2.0
// Vars, tapes and gradients.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>

#include <map>
#include <mutex>

#include "python/engine/casters.h"
#include "python/engine/engine.h"
#include "python/engine/rank_scope.h"
#include "weft/collectives/checks/print_tapes.h"
#include "weft/collectives/checks/tape_log.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/gradients.h"
#include "weft/engine/tape/op.h"
#include "weft/engine/tape/record.h"

namespace weft::python {
namespace {

using Aside = nb::gil_scoped_release;

void add_operators(nb::class_<Var>& var) {
  var.def("__neg__", [](const Var& a) { return neg(a); });
  // Numbers come first: what is both, such as a scalar of NumPy, is a number.
  const auto binary = [&]<class Op>(const char* name, const char* reflected, Op op) {
    var.def(
        name, [op](const Var& a, double b) { return op(a, b); }, nb::is_operator());
    var.def(
        name, [op](const Var& a, const Var& b) { return op(a, b); }, nb::is_operator());
    var.def(
        reflected, [op](const Var& b, double a) { return op(a, b); }, nb::is_operator());
    var.def(
        reflected, [op](const Var& b, const Var& a) { return op(a, b); }, nb::is_operator());
  };
  binary("__add__", "__radd__", std::plus<>());
  binary("__sub__", "__rsub__", std::minus<>());
  binary("__mul__", "__rmul__", std::multiplies<>());
  binary("__truediv__", "__rtruediv__", std::divides<>());
  var.def(
      "__pow__", [](const Var& a, double b) { return pow(a, b); }, nb::is_operator());
  var.def(
      "__pow__", [](const Var& a, const Var& b) { return pow(a, b); }, nb::is_operator());
}

// An Op by its name, for good: tapes refer to it. Its pullbacks may have collectives, so they always run.
const Op& op_named(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, Op> ops;
  const std::lock_guard lock(mutex);
  return ops.try_emplace(name, name, std::vector<Sample>(), Algebra::nonlinear, Replay::always).first->second;
}

using Pullbacks = std::vector<std::function<Var(Var)>>;

Var recorded(const std::string& name, const Tensor& value, const Vars& inputs, const Pullbacks& pullbacks) {
  require(pullbacks.size() <= inputs.size(), name, ": ", pullbacks.size(), " pullbacks of ", inputs.size(), " inputs");
  std::vector<const Var*> all;
  for (const Var& input : inputs) all.push_back(&input);
  Recording node(op_named(name), value, all, pullbacks.size());
  for (size_t i = 0; i < pullbacks.size(); ++i) node.add(inputs[i], std::function(pullbacks[i]));
  return node.finish();
}

void add_vars(nb::module_& module) {
  nb::class_<Var> var(
      module, "Var",
      "A Tensor in a computation: the inputs and results of ops. A Tensor or an array becomes a constant "
      "of unknown placement where a Var is needed.");
  var.def(nb::init_implicit<Tensor>())
      .def("__init__", [](Var* self, nb::ndarray<nb::ro> array) { new (self) Var(tensor_of(nb::cast(array))); })
      .def_prop_ro(
          "value", [](const Var& x) { return x.value(); }, "The Tensor.")
      .def_prop_ro("shape", &Var::shape)
      .def_prop_ro("dtype", &Var::dtype)
      .def_prop_ro("size", &Var::size)
      .def_prop_ro("tracked", &Var::tracked, "Whether gradients can flow to it.")
      .def(
          "item", [](const Var& x) { return x.value().item(); }, "The value of one element.")
      .def(
          "numpy", [](const Var& x) { return nb::cast(x.value()).attr("numpy")(); },
          "The values, as those of a Tensor.")
      .def(
          "__array__",
          [](const Var& x, nb::object dtype, nb::object) { return nb::cast(x.value()).attr("__array__")(dtype); },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__repr__", [](const Var& x) { return text(x.value()) + (x.tracked() ? ", tracked" : ""); });
  add_operators(var);
  var.attr("__array_ufunc__") = nb::none();  // array + var is Var's
  nb::implicitly_convertible<nb::ndarray<nb::ro>, Var>();
}

void add_parameters(nb::module_& module) {
  nb::class_<Parameter>(module, "Parameter", "A trainable tensor. Its identity is the object's.")
      .def(
          "__init__",
          [](Parameter* self, const std::string& name, nb::object value, std::optional<DType> dtype) {
            new (self) Parameter(name, tensor_of(value, dtype));
          },
          nb::arg("name"), nb::arg("value"), nb::arg("dtype") = nb::none())
      .def_ro("name", &Parameter::name)
      .def_prop_rw(
          "value", [](const Parameter& p) { return p.value; },
          [](Parameter& p, nb::object value) { p.value.copy_from(tensor_of(value, p.value.dtype())); },
          "Setting it writes the new values in place; tapes that need the old ones say so.")
      .def("__repr__", [](const Parameter& p) { return "Parameter '" + p.name + "' " + text(p.value); });
  nb::class_<HookHandle>(module, "HookHandle").def("remove", &HookHandle::remove, "Removes the hook.");
  nb::class_<Gradients>(
      module, "Gradients",
      "What backward accumulates, over any number of losses, passes and tapes. gradients[x] is that of a "
      "leaf or of a Parameter, or None if no backward has met it.")
      .def(nb::init<>())
      .def("__getitem__",
           [](const Gradients& g, const Parameter& p) { return g.has(p) ? std::optional(g[p]) : std::nullopt; })
      .def("__getitem__",
           [](const Gradients& g, const Var& leaf) { return g.has(leaf) ? std::optional(g[leaf]) : std::nullopt; })
      .def("__contains__", [](const Gradients& g, const Parameter& p) { return g.has(p); })
      .def("__contains__", [](const Gradients& g, const Var& leaf) { return g.has(leaf); })
      .def(
          "after_accumulate",
          [](Gradients& g, std::function<void(nb::object, const Tensor&)> hook) {
            return g.after_accumulate([hook = std::move(hook)](const Parameter& parameter, const Tensor& sum) {
              const nb::gil_scoped_acquire acquired;
              hook(nb::cast(parameter, nb::rv_policy::reference), sum);  // the object itself
            });
          },
          nb::arg("hook"),
          "hook(parameter, sum) is called once per backward for every parameter in it, when its last contribution has "
          "been added.")
      .def("clear", &Gradients::clear, "Forgets the gradients, but not the hooks.");
}

}  // namespace

void add_tapes(nb::module_& module) {
  add_vars(module);
  add_parameters(module);
  nb::class_<Tape>(module, "Tape", nb::is_weak_referenceable(),
                   "The list of operations of a program, in their order; backward walks it from the end. `print(tape)` "
                   "shows its nodes, their values and, after a walk, their cotangents. It ends with its rank.")
      .def("__init__",
           [](nb::pointer_and_handle<Tape> self) {
             new (self.p) Tape();
             self.p->own(std::make_unique<TapeLog>(*self.p));  // so that it can be printed with values
             if (RankScope::current()) RankScope::current()->add(self.h);
           })
      .def(
          "constant", [](Tape& t, nb::object value) { return t.constant(tensor_of(value)); }, nb::arg("value"),
          "A rank's own data. No gradient flows to it.")
      .def(
          "watch", [](Tape& t, const Parameter& p) { return t.watch(p); }, nb::arg("parameter"), nb::keep_alive<1, 2>(),
          "The leaf of a parameter, which is equal on all ranks: the same one each time.")
      .def(
          "watch", [](Tape& t, nb::object value) { return t.watch(tensor_of(value)); }, nb::arg("value"),
          "A new leaf of a rank's own values: backward adds its gradient to gradients[leaf].")
      .def(
          "backward",
          [](Tape& t, const Var& loss, Gradients& into, bool keep) {
            const Aside aside;
            t.backward(loss, into, keep ? Keep::tape : Keep::nothing);
          },
          nb::arg("loss"), nb::arg("into"), nb::arg("keep") = false,
          "Adds the gradients of a scalar, this rank's share, to `into`. This consumes the tape, unless `keep`.")
      .def(
          "backward",
          [](Tape& t, const Var& of, const Tensor& seed, Gradients& into, bool keep) {
            const Aside aside;
            t.backward(of, seed, into, keep ? Keep::tape : Keep::nothing);
          },
          nb::arg("of"), nb::arg("seed"), nb::arg("into"), nb::arg("keep") = false, "The same with a given cotangent.")
      .def(
          "gradient",
          [](Tape& t, const Var& y, const std::vector<Var>& wrt, const std::optional<Var>& seed, bool create) {
            const Aside aside;
            const Graph graph = create ? Graph::create : Graph::none;
            return seed ? t.gradient(y, *seed, wrt, graph) : t.gradient(y, wrt, graph);
          },
          nb::arg("y"), nb::arg("wrt"), nb::arg("seed") = nb::none(), nb::arg("create") = false,
          "The gradients of y with respect to each of `wrt`. It accumulates nothing, and keeps the tape. With `create` "
          "the results are on the tape, too, and can be differentiated again.")
      .def("__len__", &Tape::size)
      .def("__str__", [](const Tape& t) { return text(t); });
  module.def(
      "record", &recorded, nb::arg("name"), nb::arg("value"), nb::arg("inputs"), nb::arg("pullbacks"),
      "An op of your own: records `value`, computed of `inputs`, with pullbacks that map its cotangent to those of "
      "the first inputs; of the others no gradient is taken. Written with ops, a pullback can be differentiated.");
  module.def(
      "checkpoint",
      [](std::function<Var(std::vector<Var>)> f, const Vars& inputs) {
        const Aside aside;
        return checkpoint(
            [f = std::move(f)](std::span<const Var> given) {
              return f({given.begin(), given.end()});
            },
            inputs);
      },
      nb::arg("f"), nb::arg("inputs"),
      "Trades time for memory: runs f(inputs) without saving tensors, and again in backward. Both runs must compute "
      "the "
      "same values.");
  module.def(
      "print_tapes",
      [](const Tape& tape, Communicator& comm) {
        std::string all;
        {
          const Aside aside;
          all = text(tape, comm);
        }
        if (comm.rank() == GroupRank{0})
          nb::print(all.c_str(), nb::str(""));  // where Python prints: in a notebook, too
      },
      nb::arg("tape"), nb::arg("comm"),
      "The tapes of all ranks of a group, side by side. All of them call it, and rank 0 prints.");
}

}  // namespace weft::python
