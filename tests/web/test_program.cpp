// SPDX-License-Identifier: Apache-2.0
// Programs of the page: what they compute, what is refused, and that every mistake in a lesson's answer is noticed.
#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tools/web/outcome.h"
#include "tools/web/requests.h"
#include "tools/web/variants.h"

using namespace weft;
using namespace weft::web;

namespace {

using Json = nlohmann::json;
using Lists = std::vector<std::vector<double>>;

Json ask(const std::string& program, const std::string& right = "") {
  Json request = {{"program", program}};
  if (!right.empty()) request["right"] = right;
  return Json::parse(reply(request.dump()));
}
std::string error(const std::string& program) { return ask(program).value("error", ""); }

Lists part(const Json& reply, const std::string& name, const char* part) {
  INFO(reply.value("error", ""));
  for (const Json& each : reply.at("names"))
    if (each["name"] == name) return each[part];
  FAIL("there is no " << name);
  return {};
}

std::string joined(const Json& lines) {
  std::string text;
  for (const Json& line : lines) text += line.get<std::string>() + '\n';
  return text;
}

struct Writing {  // a step in which a program has to be written
  std::string start, right;
};
std::vector<Writing> writings() {
  std::vector<Writing> all;
  for (const Json& lesson : Json::parse(std::ifstream(WEFT_LESSONS)))
    for (const Json& step : lesson["steps"])
      if (step.contains("right")) all.push_back({joined(step["program"]), joined(step["right"])});
  return all;
}

std::vector<double> gradients(const Outcome& outcome) {
  std::map<std::string, Lists> sorted;
  for (const NamedValues& named : outcome.names)
    if (named.leaf) sorted[named.name] = named.gradients;
  std::vector<double> all;
  for (const auto& [name, lists] : sorted)
    for (const std::vector<double>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}
bool close(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == Approx(y).margin(1e-9); });
}

bool agree(const Json& slopes) {
  const double by_gradients = slopes["gradients"], by_differences = slopes["differences"];
  return std::abs(by_gradients - by_differences) <= 1e-6 * (1 + std::abs(by_differences));
}

}  // namespace

TEST_CASE("a program: what comes back is what one would compute by hand") {
  const Json gather = ask("x = leaf {[1 2] | [] | [3]}\ny = all_gather(x)\nloss = sum(y * y) * 10 ^ rank");
  CHECK(part(gather, "y", "values") == Lists{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}});
  CHECK(part(gather, "x", "cotangents") == Lists{{222, 444}, {}, {666}});
  CHECK(gather["objective"] == 14 * 111);

  CHECK(part(ask("x = leaf {1 | 2 | 3}\ny = shift(x, 1)"), "y", "values") == Lists{{3}, {1}, {2}});

  const Json broken = ask("x = leaf {[1 2] | [] | [3]}\ny = all_gather[own slot](x)\nloss = sum(y * y) * 10 ^ rank");
  CHECK(part(broken, "x", "cotangents") == Lists{{2, 4}, {}, {600}});
  CHECK_FALSE(agree(broken["slopes"]));

  const Json passes =
      ask("w = parameter 5\na = w * {1 | 10}\nb = w * w * {2 | 20}\nbackward a\nbackward b\nsum gradients");
  CHECK(part(passes, "w", "cotangents") == Lists{{21}, {210}});
  CHECK(part(passes, "w", "gradients") == Lists{{231}, {231}});

  const Json own =
      ask("define half(a, b) = a * b\n to a: g * b / 2\nx = leaf {3 | 5}\nz = half(x, 4)\nloss = z * {1 | 10}");
  CHECK(part(own, "z", "values") == Lists{{12}, {20}});
  CHECK(part(own, "x", "cotangents") == Lists{{2}, {20}});
}

TEST_CASE("a program: every function has the gradient of differences, or none") {
  // Each is called with x, a matrix with other values on each rank, as often as it has arguments.
  for (const Function& function : functions()) {
    const std::string name = function.name;
    std::string call = name + "(x";
    for (size_t i = 1; i < function.least; ++i) call += name == "matmul" ? ", transpose(x)" : ", 1";
    call += ")";
    if (name == "share") call = "share(sum(x), 5)";
    if (name == "slice") call = "slice(x, 0, 1)";
    if (name.size() == 1) call = "x " + name + " 2";
    if (name == "log" || name == "sqrt") call = name + "(x * x)";
    if (name == "concat") call = "concat(x, x * x)";
    if (name == "as_partial") call = "as_partial(x) * 2";
    if (name == "own_rows") call = "own_rows(all_gather(x))";
    if (name == "vary") call = "vary(all_reduce_equal(x))";
    if (name == "as_invariant" || name == "as_varying") call = name + "(all_reduce(x))";
    if (name == "keep_on") call = "keep_on(all_reduce(x), 1)";
    if (name == "scatter") call = "scatter(all_gather(x), 1)";
    const std::string value = name == "as_partial" || name == "keep_on" || name == "padded_rows" || name == "share" ||
                                      name == "as_invariant" || name == "all_reduce_equal"
                                  ? "y"
                                  : "y * y * {1 | 10 | 100}";
    const Json given = ask("x = leaf {[[1 2] [3 4] [2 5]] | [[5 6] [7 8] [1 4]] | [[9 1] [2 3] [6 7]]}\ny = " + call +
                           "\nloss = sum(" + value + ")");
    CAPTURE(name, call, given.value("error", ""));
    if (name == "detach" || name == "rows" || name == "rows_before" || name == "total" || name == "nearest" ||
        name == "one_hot")
      continue;  // no gradients, below
    REQUIRE(given.contains("slopes"));
    CHECK(agree(given["slopes"]));
  }
  const std::string x = "x = leaf {[1] | [2 3] | []}\n";
  CHECK(part(ask(x + "n = rows(x)\nb = rows_before(x)\nt = total(n)"), "b", "values") == Lists{{0}, {1}, {3}});
  CHECK(part(ask(x + "t = total(rows(x))"), "t", "values") == Lists{{3}, {3}, {3}});
  CHECK(part(ask(x + "loss = sum(detach(x) * x) * 1"), "x", "cotangents") == Lists{{1}, {2, 3}, {}});
}

TEST_CASE("a program that is none is refused, with its line") {
  CHECK(error("x = leaf {1 | 2}\ny = {1 | 2 | 3}") == "line 2: these braces have values for 3 ranks, others for 2");
  CHECK(error("y = al_gather(2)") == "line 1: there is no function 'al_gather'; did you mean all_gather?");
  CHECK(error("x = leaf 3\n\ny = x +") == "line 3: a value is expected at the end of the line");
  CHECK(error("y = x") == "line 1: there is no 'x' yet");
  CHECK(error("x = leaf 1\nx = leaf 2") == "line 2: there is a 'x' already; choose another name");
  CHECK(error("rank = 3") == "line 1: 'rank' has a meaning already");
  CHECK(error("w = parameter {1 | 2}") ==
        "line 1: a parameter is the same on all ranks; a leaf may have a value for each");
  CHECK(error("x = leaf 1\ny = exp[own slot](x)") == "line 2: exp: only a collective takes a mistake in brackets");
  CHECK(error("x = leaf {1 | 2}\ny = all_reduce[own](x)") == "line 2: there is no mistake 'own'");
  CHECK(error("define f(a) = f(a)\nx = f(1)") == "line 2: f: definitions call each other without an end");
  CHECK(error("x = {1|2|3|4|5|6}") == "at most 5 ranks, not 6");
  CHECK(error("w = parameter 2\nx = {1 | 2}\nloss = share(x * w, 2) + w")
            .starts_with("line 3: add: input 2, which is Replicated"));
  CHECK(error("define f(a) = all_gather(a)\n to a: g\nx = leaf {[1] | [2]}\nloss = sum(f(x))") ==
        "backward of defined collective: f: the pullback gives (2) where the input has (1)");
}

TEST_CASE("a program of other leaves or ranks is not compared") {
  const std::string right = "x = leaf {1 | 2 | 3}\nloss = x * x";
  CHECK(ask("x = leaf {1 | 2 | 3 | 4 | 5}\nloss = x * x", right)["error"] ==
        "this lesson is for 3 ranks, the program for 5");
  CHECK(ask("x = leaf 1\nloss = x * x", right)["error"] == "this lesson is for 3 ranks, the program for 1");
  CHECK(ask("y = leaf {1 | 2 | 3}\nloss = y * y", right)["error"] == "the leaf 'x' is missing");
  CHECK(ask("x = leaf {1 | 2 | 3}\nz = leaf 2\nloss = x * z", right)["error"] == "there is no leaf 'z' in this lesson");
  CHECK(ask("x = leaf {1 | 2 | 3}", right)["error"] == "nothing is differentiated: there is no loss, and no backward");
  const Json longer = ask("x = leaf {[1 1] | [2 2] | [3 3]}\nloss = sum(x * x)", right)["comparison"];
  CHECK(longer["says"][0] == "the objective is 28 where 14 is right");
  CHECK(longer["says"][1] == "the gradient of x has 4 numbers where 2 are right, on every rank");
}

TEST_CASE("a comparison tries other values, and names what is wrong alone") {
  const Json here = ask("x = leaf {2 | 2}\nloss = x * 4 - 4", "x = leaf {2 | 2}\nloss = x * x")["comparison"];
  CHECK(here["equal_here"] == true);
  CHECK(here["equal"] == false);
  const Json one =
      ask("a = leaf 3\nb = leaf 4\nloss = a * b + 5 * a", "a = leaf 3\nb = leaf 4\nloss = a * b")["comparison"];
  CHECK(one["names"].empty());
  const std::string x = "w = parameter 2\nx = {[1] | [2 3] | [4 5 6]}\n";
  const Json names =
      ask(x + "loss = share(sum(x) * w, 6 * W)", x + "loss = share(sum(x) * w, 6)")["comparison"]["names"];
  CHECK(names == Json{"divided by the number of ranks once more (S9)"});
}

TEST_CASE("lessons: the answer is right, and what is there at first is named") {
  for (const Writing& answer : writings()) {
    CAPTURE(answer.start, answer.right);
    const Json right = ask(answer.right, answer.right);
    REQUIRE(right.contains("comparison"));
    CHECK(right["comparison"]["equal"] == true);
    CHECK(agree(right["slopes"]));
    const Json start = ask(answer.start, answer.right);
    if (!start.contains("comparison")) continue;  // Weft refuses it
    CHECK(start["comparison"]["equal"] == false);
    CHECK_FALSE(start["comparison"]["names"].empty());
  }
}

TEST_CASE("lessons: a usual mistake in an answer is noticed, and has its name") {
  int mistakes = 0;
  for (const Writing& answer : writings()) {
    const Program right = parse(answer.right);
    const int ranks = std::max(right.ranks, 1);
    for (const Variant& variant : variants(right)) {
      CAPTURE(answer.right, variant.name);
      try {
        const Outcome outcome = run(variant.program, ranks, {1}), wanted = run(right, ranks, {1});
        const Comparison comparison = compare(variant.program, right, ranks);
        const bool same = close(gradients(outcome), gradients(wanted));
        CHECK(comparison.equal == same);
        if (same) continue;
        ++mistakes;
        CHECK(std::count(comparison.names.begin(), comparison.names.end(), variant.name) == 1);
      } catch (const Error&) {  // it is refused
      }
    }
  }
  std::printf("%d mistakes in answers are named\n", mistakes);
  CHECK(mistakes >= 50);
}

TEST_CASE("lessons: an answer with one thing changed is not taken") {
  const std::pair<const char*, const char*> changes[] = {{"+", "-"},
                                                         {"-", "+"},
                                                         {"*", "/"},
                                                         {"/", "*"},
                                                         {"* b", "* a"},
                                                         {"/ b", "/ a"},
                                                         {"* y", ""},
                                                         {"* w", ""},
                                                         {"sum(", "mean("},
                                                         {"total(", "("},
                                                         {"share(", "("},
                                                         {"reduce_scatter(", "all_reduce("},
                                                         {"rows(x)", "2"},
                                                         {"total(rows(x))", "W"},
                                                         {"all_gather(x)", "all_gather(detach(x))"},
                                                         {"all_gather(x)", "all_reduce(x)"},
                                                         {"keep_on(w, 0)", "w"},
                                                         {"keep_on(w, 0)", "0"},
                                                         {"sum gradients", ""},
                                                         {"backward first\n", ""},
                                                         {"backward second\n", ""},
                                                         {"10 ^ rank", "1"},
                                                         {"-g", "g"},
                                                         {" 6)", " 3)"},
                                                         {"loss = 2", "loss = 3"}};
  int made = 0, taken = 0;
  for (const auto& [start, right] : writings())
    for (const auto& [from, to] : changes)
      for (size_t at = right.find(from); at != std::string::npos; at = right.find(from, at + 1)) {
        const std::string changed = right.substr(0, at) + to + right.substr(at + std::string(from).size());
        const Json given = ask(changed, right);
        ++made;
        if (!given.contains("comparison") || given["comparison"]["equal"] == false) continue;
        ++taken;
        std::printf("taken: %s", changed.c_str());
      }
  std::printf("%d changed answers, %d taken for right\n", made, taken);
  CHECK(made >= 60);
  CHECK(taken * 20 <= made);
}

TEST_CASE("programs of random characters do no harm") {
  std::mt19937 random(1);
  std::vector<std::string> texts;
  for (const auto& [start, right] : writings()) texts.insert(texts.end(), {start, right});
  const std::string characters = "()[]{}|=+-*/^,. \nxwyg129#_", most_nested(5000, '(');
  for (int draw = 0; draw < 2000; ++draw) {
    std::string text = texts[random() % texts.size()];
    for (int change = 0; change <= draw % 4; ++change) {
      const size_t at = random() % text.size(), count = random() % 3;
      text.replace(at, count, 1 + random() % 2, characters[random() % characters.size()]);
    }
    REQUIRE_FALSE(ask(text).empty());
  }
  CHECK(error("x = " + most_nested) == "line 1: there are too many parentheses");
  CHECK(error("x = " + std::string(5000, '-') + "1") == "line 1: there are too many signs");
  std::string doubled = "x0 = leaf [1 2 3]\n";
  for (int i = 1; i < 60; ++i)
    doubled += "x" + std::to_string(i) + " = concat(x" + std::to_string(i - 1) + ", x" + std::to_string(i - 1) + ")\n";
  CHECK(error(doubled) == "line 10: concat: more than 1000 values on a rank");
  CHECK(error("x = [1]\ny = one_hot(x, 1000000)") == "line 2: one_hot: 1000000 classes, not 1 to 100");
  std::string calls = "define f0(a) = a + a\n";
  for (int i = 1; i < 18; ++i)
    calls += "define f" + std::to_string(i) + "(a) = f" + std::to_string(i - 1) + "(a) + f" + std::to_string(i - 1) +
             "(a)\n";
  CHECK(error(calls + "x = f17(1)") == "line 19: the program has more than 2000 calls");
  CHECK(error("x = leaf 1" + std::string(9000, ' ')) == "a program has at most 8000 characters");
}
