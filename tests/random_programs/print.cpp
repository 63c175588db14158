// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/print.h"

#include <algorithm>
#include <sstream>

#include "tests/random_programs/execution.h"

namespace weft::random_programs {

namespace {

std::string list(const Extents& rows) {
  std::string text;
  for (const int64_t n : rows) text += (text.empty() ? "{" : ", ") + std::to_string(n);
  return text + "}";
}
std::string own_rows_of(const Extents& rows) {
  return are_equal(rows) ? std::to_string(rows[0]) : "own(world, " + list(rows) + ")";
}
void replace(std::string& text, const std::string& hole, const std::string& with) {
  for (size_t at = text.find(hole); at != std::string::npos; at = text.find(hole, at + with.size()))
    text.replace(at, hole.size(), with);
}

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program), layouts_(lay_out(program).of_steps) {}

  std::string print() {
    line("run_ranks(" + std::to_string(program_.ranks) + ", [](Communicator& world) {");
    indent_ += 2;
    line("[[maybe_unused]] const int me = world.rank().value;");
    for (size_t i = 1; i < program_.partitions.size(); ++i) print_partition(i);
    line("std::deque<Parameter> parameters;");
    print_training();
    line("Tape tape;");
    if (program_.declares_world) line("declare_group(tape, world);");
    for (size_t step = 0; step < program_.steps.size();) step = print_run(step);
    for (size_t step = 0; step < program_.steps.size(); ++step) wait_for(step);
    print_loss();
    indent_ -= 2;
    line("});");
    return out_.str();
  }

 private:
  void line(const std::string& text) { out_ << std::string(indent_, ' ') << text << '\n'; }
  const Step& step(size_t i) const { return program_.steps[i]; }
  const StepKind& kind(size_t i) const { return step_kinds()[static_cast<size_t>(step(i).kind)]; }
  static std::string name(int step) { return "v" + std::to_string(step); }
  static std::string group(int partition) { return partition == 0 ? "world" : "*g" + std::to_string(partition); }

  void print_partition(size_t i) {
    const Partition& partition = program_.partitions[i];
    const Extents colors(partition.color.begin(), partition.color.end());
    line("const auto g" + std::to_string(i) + " = world.split(static_cast<int>(own(world, " + list(colors) + "))" +
         (partition.reversed ? ", -me" : "") + ");  // " + partition.name);
  }

  void print_training() {
    constexpr const char* uses[] = {"alone", "layer", "divided_layer"};
    std::string parts;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (!kind(i).trained) continue;
      const std::string group = step(i).group == 0 ? "&world" : "g" + std::to_string(step(i).group) + ".get()";
      parts += std::string(parts.empty() ? "" : ", ") + "{Training::Use::" + uses[static_cast<int>(*kind(i).trained)] +
               ", " + std::to_string(step(i).dice) + "u, " + group + "}";
    }
    if (!parts.empty()) line("Training training({" + parts + "}, " + std::to_string(program_.stage) + ", world);");
  }

  // One step, or a checkpoint of several; returns the next.
  size_t print_run(size_t first) {
    size_t last = first + 1;
    if (step(first).piece == 0) return print_step(first), last;
    while (last < program_.steps.size() && step(last).piece == step(first).piece) ++last;
    const std::vector<int> inputs = inputs_of_piece(program_, first, last),
                           outputs = outputs_of_piece(program_, first, last);
    for (const int input : inputs) wait_for(static_cast<size_t>(input));
    std::string names;
    for (const int input : inputs) names += (names.empty() ? "" : ", ") + name(input);
    const std::string results = "piece" + std::to_string(step(first).piece);
    line("const auto " + results + " = checkpoint([&](std::span<const Var> x) {");
    indent_ += 2;
    for (size_t i = 0; i < inputs.size(); ++i)
      line("const Var " + name(inputs[i]) + " = x[" + std::to_string(i) + "];");
    for (size_t i = first; i < last; ++i) print_step(i);
    for (size_t i = first; i < last; ++i) wait_for(i);
    std::string all;
    for (const int output : outputs) all += (all.empty() ? "" : ", ") + name(output);
    line("return Vars{" + all + "};");
    indent_ -= 2;
    line("}, Vars{" + names + "});");
    for (size_t i = 0; i < outputs.size(); ++i)
      line("const Var " + name(outputs[i]) + " = " + results + "[" + std::to_string(i) + "];");
    return last;
  }

  void print_step(size_t i) {
    for (const int input : step(i).inputs) wait_for(static_cast<size_t>(input));
    const bool halves = step(i).halves && kind(i).start;
    if (halves) {
      line("Started started" + std::to_string(i) + " = start(" + filled(kind(i).verb_text, i) + ", " + input(i, 0) +
           ", " + group(step(i).group) + ");");
      pending_.push_back(i);
    } else {
      line("const Var " + name(static_cast<int>(i)) + " = " + scaled(i, filled(kind(i).text, i)) + ";");
    }
  }
  void wait_for(size_t i) {
    if (std::erase(pending_, i) > 0)
      line("const Var " + name(static_cast<int>(i)) + " = " + scaled(i, "started" + std::to_string(i) + ".wait()") +
           ";");
  }
  std::string scaled(size_t i, const std::string& text) const {
    return layouts_[i].factor == 1 ? text : "(" + text + ") * " + weft::text(layouts_[i].factor);
  }

  std::string input(size_t i, size_t number) const {
    const auto from = static_cast<size_t>(step(i).inputs[number]);
    const std::string value = name(static_cast<int>(from));
    const Extents& rows = layouts_[i].in[number];
    return rows == layouts_[from].out ? value : "fit(" + value + ", {" + own_rows_of(rows) + ", 3})";
  }
  std::string data(size_t i, const Extents& rows) const {
    const auto whose = kind(i).whose;
    Extents sharers;
    for (int r = 0; r < program_.ranks; ++r) sharers.push_back(whose(program_, step(i), r));
    Extents ranks;
    for (int r = 0; r < program_.ranks; ++r) ranks.push_back(r);
    const std::string who = sharers == ranks && program_.ranks > 1 ? "me"
                            : are_equal(sharers)                   ? text(sharers[0])
                                                 : "static_cast<int>(own(world, " + list(sharers) + "))";
    return "drawn(" + own_rows_of(rows) + ", " + std::to_string(step(i).dice) + "u, " + who + ")";
  }
  // The text of a kind of step, with what its Call stands for.
  std::string filled(std::string text, size_t i) const {
    const Step& s = step(i);
    const std::string group = this->group(s.group);
    const auto put = [&](const std::string& name, const std::string& value) { replace(text, "c." + name, value); };
    std::string inputs;
    for (size_t k = 0; k < s.inputs.size(); ++k) {
      put("x[" + std::to_string(k) + "]", input(i, k));
      inputs += (k ? ", " : "") + input(i, k);
    }
    put("inputs", "{" + inputs + "}");
    put("bound", weft::text(layouts_[i].input_bound));
    const std::string group_size = s.group == 0 ? "world.size()" : "g" + std::to_string(s.group) + "->size()";
    put("group.size()", group_size);
    put("root()",
        "GroupRank{static_cast<int>(" + std::to_string(s.dice) + "u % static_cast<unsigned>(" + group_size + "))}");
    if (!s.inputs.empty()) put("rows()", "rows_in(" + group + ", " + list(layouts_[i].in[0]) + ")");
    put("split()", "rows_in(" + group + ", " + list(layouts_[i].out) + ")");
    put("dice()", std::to_string(s.dice) + "u");
    put("group", group);
    put("tape", "tape");
    put("training", "training");
    if (!kind(i).whose) return text;
    put("parameter()", "parameters.emplace_back(\"p\", " + data(i, layouts_[i].out) + ")");
    put("data()", data(i, layouts_[i].out));
    return text;
  }

  void print_loss() {
    std::string sum;
    for (const Term& term : program_.terms) {
      const auto value = static_cast<size_t>(term.value);
      const std::string key = std::to_string((uint64_t{2} << 32) + step(value).dice) + "u",
                        rows = own_rows_of(layouts_[value].out);
      const std::string weights = program_.has_own_weights(term, layouts_[value])
                                      ? "tape.constant(drawn(" + rows + ", " + key + ", me))"
                                      : "replicated_constant(drawn(" + rows + ", " + key + ", 0))";
      const std::string weighted = "sum(" + name(term.value) + " * " + weights + ")";
      sum += (sum.empty() ? "" : " + ") +
             (term.weights == Weights::summed ? "all_reduce(" + weighted + ", world)" : weighted);
    }
    line("const Var loss = " + sum + ";");
    std::string leaves;
    for (size_t i = 0; i < program_.steps.size(); ++i)
      if (kind(i).is_leaf()) leaves += (leaves.empty() ? "" : ", ") + name(static_cast<int>(i));
    if (std::any_of(program_.steps.begin(), program_.steps.end(),
                    [](const Step& s) { return step_kinds()[static_cast<size_t>(s.kind)].trained.has_value(); }))
      line("tape.backward(loss, training.gradients());  // training.step() returns what a step would subtract");
    else
      line("const auto gradients = tape.gradient(loss, {" + leaves + "});");
  }

  const Program& program_;
  const std::vector<Layout> layouts_;
  std::ostringstream out_;
  size_t indent_ = 0;
  std::vector<size_t> pending_;  // started and not waited for
};

}  // namespace

std::string printed(const Program& program) { return Printer(program).print(); }

}  // namespace weft::random_programs
