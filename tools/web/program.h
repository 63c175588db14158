// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program for the page: a few lines that every rank runs on a tape of its own.
//
//   x = leaf {[1] | [2] | [3]}                  each rank's own value; the braces say how many ranks there are
//   w = parameter 2                             the same on all ranks
//   y = all_gather(x)                           any op or collective of functions.h
//   z = all_gather[own slot](x)                 with a mistake of mistakes.h in place of the adjoint
//   loss = sum(y) * w * 10 ^ rank               numbers: rank, W, rows(x), total(n)
//   define hypotenuse(a, b) = sqrt(a * a + b * b)
//     to a: g * a / y                           a pullback: g is the cotangent of the result y
//   backward loss                               is done at the end for `loss` if no line says it
//   sum gradients                               over ranks, as a trainer does after backward
#include <cstdint>
#include <string>
#include <vector>

namespace weft::web {

inline constexpr int64_t most_values = 1000;  // of a tensor on a rank

struct Literal {  // a number, or a list, or a list of lists
  std::vector<int64_t> shape;
  std::vector<double> values;
};

struct Expression {
  enum class Kind { number, name, literal, call };
  Kind kind;
  std::string text = {};     // the name, or that of the function; operators are functions
  std::string mistake = {};  // of a collective
  double number = 0;
  std::vector<Literal> literal = {};  // one for all ranks, or one for each
  int place = 0;                      // of a literal among those of the program
  std::vector<Expression> arguments = {};
};

struct Definition {
  std::string name;
  std::vector<std::string> arguments;
  Expression value;
  std::vector<std::pair<std::string, Expression>> pullbacks = {};  // with respect to these arguments
};

struct Statement {
  enum class Kind { assign, backward, sum_gradients };
  Kind kind;
  int line;  // from 1 on
  std::string name = {};
  std::vector<Expression> value = {};  // one, of an assignment
};

struct Program {
  std::vector<Statement> statements;
  std::vector<Definition> definitions;
  int ranks = 0;  // as the braces say, or 0 if there are none
};

Program parse(const std::string& text);  // an Error that names the line

}  // namespace weft::web
