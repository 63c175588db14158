// SPDX-License-Identifier: Apache-2.0
#pragma once
// What programs of the page can call. Each function is an op, a collective or a conversion of Weft with its own name.
#include <string>
#include <variant>
#include <vector>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft::web {

struct Number {  // not on the tape
  double value;
  bool own = false;  // whether it may differ between ranks
};
using Value = std::variant<Number, Var>;

struct Call {
  const std::string& name;
  const std::string& mistake;  // in place of a collective's adjoint
  const std::vector<Value>& arguments;
  Tape& tape;
  Communicator& comm;

  size_t count() const { return arguments.size(); }
  bool is_number(size_t i) const { return std::holds_alternative<Number>(arguments[i]); }
  const Var& var(size_t i) const;        // an Error if it is a number
  double number(size_t i) const;         // an Error if it is none
  int64_t whole_number(size_t i) const;  // an Error if it is none
};

struct Function {
  const char* name;
  size_t least, most;  // arguments
  Value (*compute)(const Call& call);
  bool collective = false;
};

const Function& function_named(const std::string& name);  // an Error if there is none
const std::vector<Function>& functions();

}  // namespace weft::web
