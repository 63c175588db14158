// SPDX-License-Identifier: Apache-2.0
#include "tools/web/program.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "weft/engine/tensor/error.h"

namespace weft::web {
namespace {

constexpr size_t most_characters = 8000;
constexpr int most_nested = 60;

class Line {
 public:
  Line(const std::string& text, Program& program, int& literals)
      : text_(text), program_(program), literals_(literals) {}

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool ended() {
    skip();
    return at_ == text_.size();
  }
  bool next_is(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) { require(take(c), "'", c, "' is expected ", here()); }
  void expect_end() { require(ended(), "this is one too many: ", here()); }
  std::string here() { return ended() ? "at the end of the line" : "before '" + text_.substr(at_) + "'"; }

  bool next_is_name() {
    skip();
    return at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]));
  }
  std::string name() {
    require(next_is_name(), "a name is expected ", here());
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  bool take_word(const char* word) {
    skip();
    const size_t before = at_;
    if (next_is_name() && name() == word) return true;
    at_ = before;
    return false;
  }

  Expression expression() {
    require(++nested_ <= most_nested, "there are too many parentheses");
    Expression left = product();
    while (next_is('+') || next_is('-')) left = operation(std::move(left), [&] { return product(); });
    --nested_;
    return left;
  }

 private:
  template <class F> Expression operation(Expression left, const F& right) {
    const std::string name(1, text_[at_++]);
    Expression made{Expression::Kind::call, name};
    made.arguments.push_back(std::move(left));
    made.arguments.push_back(right());
    return made;
  }
  Expression product() {
    Expression left = factor();
    while (next_is('*') || next_is('/')) left = operation(std::move(left), [&] { return factor(); });
    return left;
  }
  Expression factor() {
    if (take('-')) {
      require(++nested_ <= most_nested, "there are too many signs");
      Expression made{Expression::Kind::call, "neg"};
      made.arguments.push_back(factor());
      --nested_;
      return made;
    }
    Expression base = atom();
    return next_is('^') ? operation(std::move(base), [&] { return factor(); }) : base;
  }
  Expression atom() {
    if (take('(')) {
      Expression inside = expression();
      expect(')');
      return inside;
    }
    if (next_is('[') || next_is('{')) return literal();
    if (!next_is_name()) {
      Expression made{Expression::Kind::number};
      made.number = number();
      return made;
    }
    Expression made{Expression::Kind::name, name()};
    if (made.text == "leaf" || made.text == "parameter") {
      made.kind = Expression::Kind::call;
      made.arguments.push_back(literal());
      require(made.text == "leaf" || made.arguments[0].literal.size() == 1,
              "a parameter is the same on all ranks; a leaf may have a value for each");
      return made;
    }
    if (take('[')) {
      const size_t end = text_.find(']', at_);
      require(end != std::string::npos, "']' is expected after the name of a mistake");
      made.mistake = text_.substr(at_, end - at_);
      at_ = end + 1;
      require(next_is('('), "'(' is expected ", here());
    }
    if (!take('(')) return made;
    made.kind = Expression::Kind::call;
    while (!take(')')) {
      if (!made.arguments.empty()) expect(',');
      made.arguments.push_back(expression());
    }
    return made;
  }

  double number() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.')) ++at_;
    const std::string digits = text_.substr(begin, at_ - begin);
    if (digits.empty() || digits.size() > 17 || std::count(digits.begin(), digits.end(), '.') > 1 || digits == ".") {
      at_ = begin;
      require(false, "a value is expected ", here());
    }
    return std::stod(digits);
  }
  double signed_number() { return take('-') ? -number() : number(); }

  Expression literal() {
    Expression made{Expression::Kind::literal};
    made.place = literals_++;
    if (take('{')) {
      do made.literal.push_back(one_value());
      while (take('|'));
      expect('}');
      const int ranks = static_cast<int>(made.literal.size());
      require(program_.ranks == 0 || program_.ranks == ranks, "these braces have values for ", ranks,
              " ranks, others for ", program_.ranks);
      program_.ranks = ranks;
    } else {
      made.literal.push_back(one_value());
    }
    return made;
  }
  Literal one_value() {
    Literal made;
    if (!next_is('[')) {
      made.values = {signed_number()};
      return made;
    }
    expect('[');
    made.shape = {0};
    while (!take(']')) {
      if (made.shape[0]++ > 0) take(',');
      require(std::ssize(made.values) < most_values, "more than ", most_values, " values");
      if (!next_is('[')) {
        require(made.shape.size() == 1, "rows beside numbers");
        made.values.push_back(signed_number());
        continue;
      }
      const Literal row = one_value();
      require(row.shape.size() == 1, "a value has at most two axes");
      require(made.shape[0] == 1 || (made.shape.size() == 2 && made.shape[1] == row.shape[0]),
              "rows of different lengths");
      made.shape = {made.shape[0], row.shape[0]};
      made.values.insert(made.values.end(), row.values.begin(), row.values.end());
    }
    return made;
  }

  const std::string& text_;
  Program& program_;
  int& literals_;
  size_t at_ = 0;
  int nested_ = 0;
};

void add_definition(Line& line, Program& program) {
  Definition made{line.name(), {}, {}};
  line.expect('(');
  do made.arguments.push_back(line.name());
  while (line.take(','));
  line.expect(')');
  line.expect('=');
  made.value = line.expression();
  program.definitions.push_back(std::move(made));
}

void add_pullback(Line& line, Program& program) {
  require(!program.definitions.empty(), "a pullback belongs below a definition");
  Definition& of = program.definitions.back();
  const std::string name = line.name();
  require(std::count(of.arguments.begin(), of.arguments.end(), name), of.name, " has no argument '", name, "'");
  for (const auto& [other, pullback] : of.pullbacks)
    require(other != name, of.name, " has two pullbacks to '", name, "'");
  line.expect(':');
  of.pullbacks.emplace_back(name, line.expression());
}

void add_line(const std::string& text, int number, Program& program, int& literals) {
  Line line(text, program, literals);
  if (line.ended()) return;
  if (line.take_word("define")) {
    add_definition(line, program);
  } else if (line.take_word("to")) {
    add_pullback(line, program);
  } else if (line.take_word("backward")) {
    program.statements.push_back({Statement::Kind::backward, number, line.name()});
  } else if (line.take_word("sum")) {
    require(line.take_word("gradients"), "'sum gradients' sums them over ranks; a value is 'name = sum(x)'");
    program.statements.push_back({Statement::Kind::sum_gradients, number});
  } else {
    Statement made{Statement::Kind::assign, number, line.name()};
    require(made.name != "rank" && made.name != "W", "'", made.name, "' has a meaning already");
    line.expect('=');
    made.value.push_back(line.expression());
    program.statements.push_back(std::move(made));
  }
  line.expect_end();
}

}  // namespace

Program parse(const std::string& text) {
  require(text.size() <= most_characters, "a program has at most ", most_characters, " characters");
  Program program;
  std::istringstream lines(text);
  int number = 0, literals = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      add_line(line.substr(0, line.find('#')), number, program, literals);
    } catch (const Error& error) {
      throw Error("line " + weft::text(number) + ": " + error.what());
    }
  }
  require(program.ranks <= 5, "at most 5 ranks, not ", program.ranks);
  return program;
}

}  // namespace weft::web
