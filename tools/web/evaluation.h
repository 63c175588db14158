// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program on one rank: its values, and, for each backward, the cotangents of all values so far.
#include <deque>
#include <map>

#include "tools/web/functions.h"
#include "tools/web/program.h"

namespace weft::web {

struct Settings {
  uint64_t seed = 0;  // 0: the values that the program says; else random ones of the same shapes
  double shift = 0;   // along a random direction of all leaves and parameters, for differences
};

class Evaluation {
 public:
  Evaluation(const Program& program, const Settings& settings, Tape& tape, Communicator& comm);
  void run();

  struct Leaf {
    std::string name;
    bool parameter;
    Tensor direction;
    Tensor gradient = {};  // of all passes so far; empty before the first
  };
  struct Named {
    std::string name;
    int line;
    Value value;
    Tensor cotangent = {};  // of all passes
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }
  const std::vector<Named>& names() const { return names_; }
  const std::vector<int>& lines_of_nodes() const { return lines_of_nodes_; }
  bool walked() const { return walked_; }
  // The sum over all passes of the sum over ranks of what is differentiated. Equal on all ranks.
  double objective() const { return objective_; }

 private:
  using Scope = std::map<std::string, Value>;
  void run(const Statement& statement);
  void backward(const std::string& name);
  void sum_gradients();
  Value evaluate(const Expression& expression, const Scope& scope);
  Value call(const Expression& expression, const Scope& scope);
  Value apply(const Definition& definition, const std::vector<Value>& arguments);
  Var recorded(const Definition& definition, const std::vector<Value>& arguments);
  struct Inputs;
  Inputs inputs_of(const Definition& definition, const std::vector<Value>& arguments, Tape& tape) const;
  Var tensor_of(const Expression& expression, const Scope& scope, const std::string& what);
  Var leaf(const std::string& kind, const Expression& literal);
  enum class Values { given, drawn_equal, drawn };  // with a seed
  Tensor tensor(const Expression& literal, Values values);
  Tensor drawn(const Shape& shape, const Expression& literal, Values values, uint64_t kind) const;
  const Definition* definition_named(const std::string& name) const;
  bool communicates(const Expression& expression) const;
  Named* find(const std::string& name);

  const Program& program_;
  const Settings settings_;
  Tape* tape_;  // a definition with pullbacks computes its value on another
  Communicator& comm_;
  std::deque<Parameter> parameters_;
  std::vector<Leaf> leaves_;
  std::vector<Named> names_;
  std::vector<int> lines_of_nodes_;
  const std::string* assigned_ = nullptr;  // the name that is about to get its value
  double objective_ = 0;
  int nested_ = 0, calls_ = 0;
  bool walked_ = false;
};

}  // namespace weft::web
