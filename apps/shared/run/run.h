// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training run as its user sees it: progress, checkpoints, the run's folder and its report. Every rank has a Run, all
// ranks make the same calls, and rank 0 prints.
//
//   Run run(rank, batches, {.title = "...", .charts = {{"Loss", {"loss"}}, {"Learning rate", {"rate"}}}});
//   run.begin(state);
//   while (run.running()) {
//     const Batch batch = run.data([&] { return take(images, batches.next()); });
//     ...
//     run.step(samples, {{"loss", share}}, {{"rate", rate}});  // numbers, or tensors on any device
//   }
//   if (run.stopped()) return;
//   run.finish({{"test accuracy", "87.6 %"}});
#include <deque>
#include <future>

#include "apps/shared/launch/launch.h"
#include "apps/shared/report/report.h"
#include "apps/shared/run/measurement.h"
#include "apps/shared/run/progress.h"
#include "apps/shared/run/run_folder.h"
#include "apps/shared/run/sessions.h"
#include "weft/data/batches.h"
#include "weft/optim/state.h"

namespace weft {

class Run {
 public:
  struct Chart {
    std::string title;
    std::vector<std::string> metrics;
  };
  struct Plan {
    std::string title;          // of the report
    std::string data = {};      // the name of the data set
    std::vector<Chart> charts;  // together they name all metrics, "loss" among them
    // Of matrix products and convolutions, as sums over taps. If it is given, the report compares it with the peak of
    // the CPU; convolutions that need fewer (winograd.h) can bring it above 100 %.
    double flops_per_image = 0;
    Metadata model = {};       // what checkpoints say of the model in them
    std::string best_by = {};  // the metric whose largest value is best; empty: the least loss
    std::vector<std::string> notes = {}, warnings = {};  // to be said first, such as those of the data
  };

  Run(const Launch& rank, Batches& batches, Plan plan);

  // Loads the checkpoint that --resume names, and continues the batches where it was saved. Their position is saved
  // with each checkpoint. A checkpoint of other data or of another model is refused.
  void begin(TrainingState& state);

  int64_t steps() const { return steps_; }  // of the whole run: --steps, or those of --epochs
  int64_t steps_done() const { return step_; }
  // Whether to look at what is learnt after the step that is to be told next (--watch-every).
  bool watches() const;
  bool running() const { return !stopped_ && step_ < steps_; }
  bool stopped() const { return stopped_; }  // by a signal, which is reported, or by --dry-run: do not call `finish`

  // Calls `f`, counts its time as time for data, and returns its result.
  template <class F> auto data(F&& f) {
    const double begin = seconds();
    auto result = f();
    data_seconds_ += seconds() - begin;
    on_timeline("data", begin);
    return result;
  }

  // To be called after each step, with its number of images on all ranks. `shares` are summed over ranks; `equal` are
  // the same on all ranks. Saves a checkpoint if one is due; rank 0's clock says when. Ends the job if a share is not
  // finite. On a card all this is told of a step after the next one, for which the card need not be waited for, but of
  // the last step, or before a checkpoint, at once.
  void step(int64_t images, std::vector<Measured> shares, std::vector<Measured> equal = {});

  // Further content, the same on all ranks: remarks, and parts of the report.
  std::vector<Value> pace();  // images per second since the call before, and this process's memory now
  void note(const std::string& text) { progress_.note(text); }
  void warn(const std::string& text) { progress_.warn(text); }
  void show_beside_loss(const std::string& name, const std::string& value);  // in the progress line, until the next
  void picture(const std::string& name, const std::string& caption, const Tensor& pixels);  // as from picture.h
  void chart(const std::string& title, const std::string& drawing);                         // as from chart.h

  // Saves the last checkpoint, writes the report and prints the last line. A run that had finished before keeps its
  // report.
  void finish(const std::vector<Report::Figure>& figures);

 private:
  bool leads() const { return rank_.comm.rank().value == 0; }
  double seconds() const { return seconds_now() - began_; }
  void on_timeline(const char* part, double begin);  // until now
  void open_folder(const Latest& latest);
  struct Step {
    int64_t number;
    double images;  // until its end
    std::vector<Measured> shares, equal;
    std::vector<std::pair<std::string, std::string>> beside_loss;
  };
  double tell_all_but(size_t last, double wish);
  void tell(const Step& step, const double* shares, const double* sums);
  void show(const Step& step, double loss);
  void save();
  std::string score() const;
  void finish_writing();
  void save_less_often(double seconds_of_saving);
  void write_report(const char* state, std::vector<Report::Figure> first, const std::vector<Report::Figure>& last);
  void write_results(const char* state);
  double speed() const;  // of the whole run, in images per second
  void write(const std::string& name, const std::string& contents);
  std::string hash_of_weights();
  Metadata position() const { return {{"data", batches_.position()}}; }
  void tell_dry_run();
  [[noreturn]] void end_not_finite(int64_t step, const std::string& name, double sum, double share);
  std::vector<Report::RankTime> gather_times();
  void expect_recorded_step();
  void keep_tapes();

  const Launch& rank_;
  const Options& options_;
  const std::string config_;
  const Plan plan_;
  Batches& batches_;
  const int64_t steps_;
  Progress progress_;
  std::vector<RunSession> sessions_;  // on rank 0: earlier sessions, and this one once it has saved
  TrainingState* state_ = nullptr;
  Report report_;
  int64_t step_ = 0, first_step_ = 0, saved_step_ = -1;
  bool stopped_ = false;
  bool reported_ = false;  // the report of all steps is there from before
  // Since `begin`, up to the last step.
  double began_ = 0;
  Traffic traffic_before_, traffic_;
  double images_ = 0, data_seconds_ = 0, stepped_ = 0;
  double saved_at_ = 0, save_after_;  // seconds; on rank 0
  std::future<void> writing_;         // a checkpoint, on rank 0
  Report::RankTime time_;
  std::vector<std::pair<std::string, std::string>> beside_loss_;
  std::deque<Step> untold_;                      // steps that were made, at most two
  double paced_images_ = 0, paced_seconds_ = 0;  // until the last call of `pace`
};

}  // namespace weft
