#pragma once
// A training run as its user sees it: progress, checkpoints, the run's folder and its report. Every rank has one, all
// make the same calls, and rank 0 does the showing.
//
//   Run run(rank, line, {.title = "...", .charts = {{"Loss", {"loss"}}, {"Learning rate", {"rate"}}}, .steps = 900});
//   const Metadata saved = run.begin(state, [&] { return Metadata{{"data", batches.position()}}; });
//   if (!saved.empty()) batches.seek(saved.at("data"));
//   while (run.running()) {
//     const Batch batch = run.data([&] { return take(images, batches.next()); });
//     ...
//     run.step(samples, {{"loss", share}}, {{"rate", rate}});
//   }
//   if (run.stopped()) return;
//   run.measure({{"accuracy", accuracy}});
//   run.finish({{"test accuracy", "87.6 %"}});
#include <chrono>

#include "apps/shared/launch.h"
#include "apps/shared/progress.h"
#include "apps/shared/report.h"
#include "apps/shared/run_folder.h"
#include "apps/shared/sessions.h"
#include "optim/state.h"

namespace weft {

class Run {
 public:
  struct Chart {
    std::string title;
    std::vector<std::string> metrics;
  };
  struct Plan {
    std::string title;          // of the report
    std::vector<Chart> charts;  // with all metrics there are; "loss" is among them
    int64_t steps = 0;
    int64_t steps_per_epoch = 0;  // 0: there are no epochs
    // Of products and convolutions. If it is given, the report compares it with what the CPU can do at best.
    double flops_per_image = 0;
  };

  Run(const Launch& rank, const CommandLine& line, Plan plan);

  // Loads what --resume asks for. `words` are saved with each checkpoint and come back here; empty if the run begins.
  // Each tells a place in data, as Batches::position does; a checkpoint of other data or another model is refused.
  Metadata begin(TrainingState& state, std::function<Metadata()> words);

  int64_t steps_done() const { return step_; }
  bool running() const { return !stopped_ && step_ < plan_.steps; }
  bool stopped() const { return stopped_; }  // by a signal, or because it was a dry run: there is nothing to finish

  // What it returns; the time it takes is that of getting data.
  template <class F> auto data(F&& f) {
    const double begin = seconds();
    auto result = f();
    data_seconds_ += seconds() - begin;
    return result;
  }

  // A step is done, on that many images of all ranks. `shares` are added over the ranks, `equal` are the same on all.
  // Saves a checkpoint if it is time for one; ends the job if a share is not finite.
  void step(int64_t images, const std::vector<Value>& shares, const std::vector<Value>& equal = {});

  // What else there is to tell, the same on all ranks: numbers that belong to the last step, remarks, and what the
  // report has.
  void measure(const std::vector<Value>& values);
  void note(const std::string& text) { progress_.note(text); }
  void warn(const std::string& text) { progress_.warn(text); }
  void picture(const std::string& name, const std::string& caption, const Tensor& pixels);  // of picture.h
  void chart(const std::string& title, const std::string& drawing);                         // of chart.h

  // Saves the last checkpoint, writes the report and prints the last line. A run that was finished before keeps its
  // report.
  void finish(const std::vector<Report::Figure>& figures);

 private:
  bool leads() const { return rank_.comm.rank().value == 0; }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count(); }
  void open_folder(const Latest& latest);
  void show(double loss);
  void save();
  void write(const std::string& name, const std::string& contents);
  std::string hash_of_weights();
  void tell_dry_run();
  [[noreturn]] void end_not_finite(const std::string& name, double sum, double share);
  std::vector<Report::RankTime> gather_times();

  const Launch& rank_;
  const Options& options_;
  const std::string config_;
  const Plan plan_;
  Progress progress_;
  std::vector<RunSession> sessions_;  // of the leading rank: up to where this one began, and this one when it saves
  TrainingState* state_ = nullptr;
  std::function<Metadata()> words_;
  Report report_;
  int64_t step_ = 0, first_step_ = 0, saved_step_ = -1;
  bool stopped_ = false;
  // Since `begin`, up to the last step.
  std::chrono::steady_clock::time_point began_;
  Traffic traffic_before_;
  double images_ = 0, data_seconds_ = 0;
  Report::RankTime time_;
};

}  // namespace weft
