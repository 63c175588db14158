// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/run.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "apps/shared/report/picture.h"
#include "apps/shared/report/tape_file.h"
#include "apps/shared/run/peak_flops.h"
#include "apps/shared/run/results.h"
#include "weft/collectives/busy.h"
#include "weft/collectives/checks/agreement.h"
#include "weft/data/files/checksum.h"
#include "weft/data/idx.h"  // MalformedInput
#include "weft/engine/kernels/backend.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

constexpr double save_is_due = 1 << 20;  // among the wishes of ranks: more than there are ranks that want to stop

std::vector<std::string> metric_names(const std::vector<Run::Chart>& charts) {
  std::vector<std::string> names;
  for (const Run::Chart& chart : charts) names.insert(names.end(), chart.metrics.begin(), chart.metrics.end());
  return names;
}

// Whether a tensor of the training state is a weight: "w", not "w.steps" or "w.momentum".
bool is_weight(const std::string& name, const std::set<std::string>& names) {
  for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1))
    if (names.count(name.substr(0, dot))) return false;
  return true;
}

std::set<std::string> names_of(const TrainingState& state) {
  std::set<std::string> names;
  for (const TensorOutline& tensor : state.tensors()) names.insert(tensor.name);
  return names;
}

std::string calls_and_bytes(const Traffic::Count& count) {
  return grouped(count.calls) + " calls, " + bytes_in_words(static_cast<double>(count.bytes));
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  char words[40];
  std::strftime(words, sizeof words, "%F", localtime_r(&now, &date));
  return words;
}

// A position in data names a place and the data: "epoch 2 batch 17 of 96 samples, 32 at a time, seed 1". The data must
// be the same here, or the run would resume with other samples.
void must_be_in_same_data(const SafetensorsFile& file, const Metadata& here) {
  const auto whole = [](const std::string& place) { return place.substr(std::min(place.find(" of "), place.size())); };
  for (const auto& [name, place] : here)
    if (const std::string& saved = file.metadata(name); whole(saved) != whole(place))
      throw MalformedInput(file.path().string() + " is a checkpoint of another run: its " + name + " are" +
                           whole(saved) + ", not" + whole(place));
}

// In another model every tensor may differ; the first few show which model it is.
std::string first_lines(const std::string& text, int most) {
  size_t end = 0;
  for (int line = 0; line < most && end != std::string::npos; ++line) end = text.find('\n', end + 1);
  if (end == std::string::npos) return text;
  return text.substr(0, end) + "\n  and " + weft::text(std::count(text.begin() + end, text.end(), '\n')) + " more";
}

void load_all(const SafetensorsFile& file, const TrainingState& state, const TensorSink& put) {
  try {
    load_checkpoint(file, state.tensors(), put);
  } catch (const MalformedInput& error) {
    throw MalformedInput(first_lines(error.what(), 7));
  }
}

// Calls `work` on a thread of its own, which gives way to all others. If the system has no thread left, whoever gets
// the result does the work.
std::future<void> beside(std::function<void()> work) {
  return std::async([caller = std::this_thread::get_id(), work = std::move(work)] {
    if (std::this_thread::get_id() != caller) setpriority(PRIO_PROCESS, 0, 19);  // in Linux of this thread alone
    work();
  });
}

}  // namespace

Run::Run(const Launch& rank, Batches& batches, Plan plan)
    : rank_(rank),
      options_(rank.line.options()),
      config_(rank.line.config()),
      plan_(std::move(plan)),
      batches_(batches),
      steps_(options_.steps > 0 ? options_.steps : options_.epochs * batches.steps_per_epoch()),
      progress_(rank.output, Progress::style_for(rank.output, options_.quiet, options_.json), rank.comm.rank().value),
      save_after_(60 * options_.checkpoint_minutes) {
  report_.title = plan_.title;
  report_.subtitle = rank.description + ", " + options_.dtype;
  note(report_.title + ": " + report_.subtitle);
  for (const std::string& each : plan_.notes) note(each);
  for (const std::string& each : plan_.warnings)
    if (leads()) warn(each);
  report_.subtitle += ", " + today();
  report_.config = config_;
}

void Run::begin(TrainingState& state) {
  state_ = &state;
  const Metadata saved = state.load([&](const TensorSink& put) {
    const Busy busy(rank_.comm, "reads a checkpoint for " + options_.out);
    return alone([&]() -> Metadata {
      const Latest latest = checkpoint_to_resume(options_.begins_at(), options_.out, config_, steps_);
      for (const std::string& damage : latest.damaged) warn(damage);
      if (latest.file) {
        load_all(*latest.file, state, put);
        must_be_in_same_data(*latest.file, position());
      }
      if (rank_.folder) open_folder(latest);
      return latest.file ? latest.file->metadata() : Metadata();
    });
  });
  if (!saved.empty()) {
    step_ = saved_step_ = first_step_ = std::stoll(saved.at("step"));
    batches_.seek(saved.at("data"));
  }
  if (rank_.tapes) expect_recorded_step(), keep_tapes();
  began_ = seconds_now();
  traffic_before_ = rank_.traffic;
}

void Run::expect_recorded_step() {
  const int64_t wanted = options_.record_step;
  if (leads() && !reported_ && (wanted <= step_ || wanted > steps_))
    warn("no step is recorded: --record-step is " + text(wanted) + ", and steps " + text(step_ + 1) + " to " +
         text(steps_) + " are made");
}

// Before the first step there are none yet.
void Run::keep_tapes() {
  if (rank_.tapes->on) {
    const std::vector<TapeTable> tapes = rank_.tapes->take(rank_.comm);
    if (rank_.folder) {
      write(tape_file, json({report_.title, step_, rank_.comm.size(), tapes}));
      note("step " + text(step_) + " is recorded; to see it: weft view " + options_.out);
    }
  }
  rank_.tapes->on = options_.record_step == step_ + 1;
}

void Run::open_folder(const Latest& latest) {
  // A checkpoint from another folder belongs to another run, and so do its metrics.
  std::error_code absent;
  const bool of_this_run = latest.file && std::filesystem::equivalent(latest.file->path().parent_path(),
                                                                      RunFolder::checkpoints(options_.out), absent);
  const auto changes = latest.file ? changes_since(latest.file->path(), config_) : std::vector<std::string>();
  if (of_this_run) sessions_ = sessions_up_to(latest.step, rank_.folder->path() / "sessions.json");
  reported_ = of_this_run && latest.step >= steps_ && is_reported(rank_.folder->path(), *latest.file);
  rank_.folder->begin(config_, metric_names(plan_.charts), of_this_run ? latest.step : 0);
  if (!reported_) write_results(Results::running);
  if (const std::string& damage = rank_.folder->metrics().damage(); !damage.empty())
    warn(damage + "; later measurements are left out");
  if (latest.file && options_.resume == "unfinished")
    warn(options_.out + " has an unfinished run of these options, which goes on; --fresh begins anew");
  if (latest.file) note("resumed from " + latest.file->path().string());
  for (const std::string& change : changes) note("changed since then: " + change);
  if (!rank_.folder->moved_to().empty()) note("an earlier run is now in " + rank_.folder->moved_to().string());
}

// Too high a rate ruins a network in its first steps, so the first look is early. Before it, little can be said.
bool Run::watches() const {
  constexpr int64_t early = 25, fewest = 75, looks = 30;
  const int64_t step = step_ + 1;
  const int64_t every = options_.watch_every > 0 ? options_.watch_every : std::max(fewest, steps_ / looks);
  return step == early || step % every == 0 || step == steps_;
}

void Run::show_beside_loss(const std::string& name, const std::string& value) {
  const auto same = [&](const auto& shown) { return shown.first == name; };
  const auto found = std::find_if(beside_loss_.begin(), beside_loss_.end(), same);
  if (found == beside_loss_.end())
    beside_loss_.push_back({name, value});
  else
    found->second = value;
}

void Run::step(int64_t images, std::vector<Measured> shares, std::vector<Measured> equal) {
  const bool due = leads() && save_after_ > 0 && seconds() - saved_at_ >= save_after_;
  ++step_;
  images_ += static_cast<double>(images);
  untold_.push_back({step_, images_, std::move(shares), std::move(equal), beside_loss_});
  const bool by_steps = options_.checkpoint_every > 0 && step_ % options_.checkpoint_every == 0;
  const bool recorded = rank_.tapes && rank_.tapes->on;
  const bool at_once = rank_.device == Device::cpu || !running() || by_steps || recorded || options_.dry_run;
  const double wanted = tell_all_but(at_once ? 0 : 1, (stop_requested() ? 1 : 0) + (due ? save_is_due : 0));
  on_timeline(("step " + text(step_)).c_str(), stepped_);
  stepped_ = seconds();
  if (options_.dry_run) return tell_dry_run();
  if (rank_.tapes) keep_tapes();
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) finish_writing();
  stopped_ = std::fmod(wanted, save_is_due) > 0;
  if (stopped_ || !running() || by_steps || wanted >= save_is_due) {
    if (!untold_.empty()) tell_all_but(0, 0);
    save();
  }
  if (!stopped_ && !running()) stop_at_once();  // what follows can be repeated from the checkpoint
  if (!stopped_) return;
  stop_with_others();
  const std::string of_all = grouped(step_) + " of " + grouped(steps_);
  if (leads()) write_report(Results::stopped, {{"stopped after step", of_all}}, {});
  progress_.finish("stopped after step " + of_all + "; the same command goes on from there");
}

// One collective for all values on which ranks have to agree. Returns the sum of the ranks' wishes.
double Run::tell_all_but(size_t last, double wish) {
  std::deque<Step> told = std::exchange(untold_, {});
  for (; last > 0; --last) {
    untold_.push_front(std::move(told.back()));
    told.pop_back();
  }
  std::vector<double> mine = {wish};
  for (const Step& step : told)
    for (const Measured& share : step.shares) mine.push_back(share.value.value());
  const Shape count = {static_cast<int64_t>(mine.size())};
  const Tensor all = rank_.comm.all_reduce(Tensor::from(count, mine, DType::f64), ReduceOp::sum, Site::here("step"));
  traffic_ = rank_.traffic.since(traffic_before_);
  time_ = {seconds(), traffic_.total().seconds, data_seconds_};
  const double *share = mine.data() + 1, *sum = all.data<double>() + 1;
  for (const Step& step : told) {
    tell(step, share, sum);
    share += step.shares.size();
    sum += step.shares.size();
  }
  return all.data<double>()[0];
}

void Run::tell(const Step& step, const double* shares, const double* sums) {
  for (size_t i = 0; i < step.shares.size(); ++i)
    if (!std::isfinite(sums[i])) end_not_finite(step.number, step.shares[i].name, sums[i], shares[i]);
  if (!rank_.folder) return;
  std::vector<Value> values;
  for (const auto& [name, measurement] : step.equal) values.push_back({name, measurement.value()});
  for (size_t i = 0; i < step.shares.size(); ++i) values.push_back({step.shares[i].name, sums[i]});
  rank_.folder->metrics().add(step.number, values);
  if (leads()) show(step, rank_.folder->metrics().last("loss").value_or(std::nan("")));
}

void Run::on_timeline(const char* part, double begin) {
  if (rank_.timeline) rank_.timeline->add(part, began_ + begin, seconds_now());
}

void Run::show(const Step& step, double loss) {
  const int64_t epoch = batches_.steps_per_epoch();
  std::vector<std::string> beside;
  for (const auto& [name, value] : step.beside_loss) beside.push_back(name + " " + value);
  progress_.show({.epoch = (step.number - 1) / epoch + 1,
                  .epochs = (steps_ + epoch - 1) / epoch,
                  .step = step.number,
                  .steps = steps_,
                  .loss = loss,
                  .beside_loss = std::move(beside),
                  .images = step.images,
                  .seconds = time_.seconds,
                  .communication = time_.communication});
}

// Called on all ranks, since all have the sum.
void Run::end_not_finite(int64_t step, const std::string& name, double sum, double share) {
  const std::vector<double> shares =
      rank_.comm.all_gather(Tensor::from({1}, {share}, DType::f64), Site::here("step")).values();
  std::string ranks;
  for (size_t r = 0; r < shares.size(); ++r)
    if (!std::isfinite(shares[r])) ranks += (ranks.empty() ? " " : ", ") + text(r);
  throw Fault(exit_codes::non_finite,
              "step " + text(step) + ": " + name + " is " + text(sum) +
                  (ranks.empty() ? ", though each rank's share is finite" : ", by the share of rank" + ranks) +
                  "; WEFT_DEBUG=1 names the first operation whose result is not finite; try a smaller learning rate" +
                  (options_.training.same_bits ? ", or leave out --same-bits, for gradients of 2^24 and more" : ""));
}

std::vector<Value> Run::pace() {
  const double images = images_ - std::exchange(paced_images_, images_), now = seconds(),
               took = now - std::exchange(paced_seconds_, now);
  int64_t whole = 0, resident = 0;  // pages
  std::ifstream("/proc/self/statm") >> whole >> resident;
  const double bytes = static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return {{"images per second", images / std::max(took, 1e-9)}, {"memory in MiB", bytes / (1 << 20)}};
}

void Run::picture(const std::string& name, const std::string& caption, const Tensor& pixels) {
  if (!rank_.folder) return;
  report_.pictures.push_back({caption, png(pixels)});
  write(name + ".png", report_.pictures.back().png);
}

void Run::write(const std::string& name, const std::string& contents) {
  const Busy busy(rank_.comm, "writes " + (rank_.folder->path() / name).string());
  rank_.folder->write(name, contents);
}

void Run::chart(const std::string& title, const std::string& drawing) { report_.charts.push_back({title, drawing}); }

// The steps go on while a copy of the state is written. The next save waits until that has ended.
void Run::save() {
  if (saved_step_ == step_) return;
  saved_step_ = step_;
  const double begin = seconds();
  finish_writing();
  NamedTensors copies;
  state_->save([&](const TensorSource& get) {
    for (size_t i = 0; i < state_->tensors().size(); ++i) {
      const Tensor whole = get(i).to(Device::cpu);
      copies.push_back({state_->tensors()[i].name, whole.unshared() ? whole : whole.clone()});
    }
  });
  on_timeline("copy of the state", begin);
  RunSession session{first_step_, step_, images_, gather_times(), gather_traffic(traffic_, rank_.comm)};
  if (!leads()) return;
  if (!sessions_.empty() && sessions_.back().last_step > first_step_) sessions_.pop_back();
  sessions_.push_back(std::move(session));
  Metadata words = position();
  words.insert(plan_.model.begin(), plan_.model.end());
  words.emplace(score_key, score());
  writing_ = beside([this, copies = std::move(copies), step = step_, words, sessions = json(sessions_)] {
    save_checkpoint(RunFolder::checkpoints(options_.out), step, copies, words, static_cast<int>(options_.keep));
    rank_.folder->write("sessions.json", sessions);
  });
  if (stopped_ || !running()) finish_writing();
  save_less_often((saved_at_ = seconds()) - begin);
}

// By what was measured last. What is watched is measured more rarely than the loss.
std::string Run::score() const {
  const Metrics& metrics = rank_.folder->metrics();
  const auto best_by = plan_.best_by.empty() ? std::nullopt : metrics.last(plan_.best_by);
  return best_by ? score_words(*best_by, plan_.best_by)
                 : score_words(-metrics.last("loss").value_or(0), "negative loss");
}

void Run::finish_writing() {
  if (!writing_.valid()) return;
  const Busy busy(rank_.comm, "writes a checkpoint in " + options_.out);
  alone([&] { writing_.get(); });
}

// Saving takes a twentieth of the time at most, unless it is asked for by steps.
void Run::save_less_often(double seconds_of_saving) {
  if (save_after_ == 0 || 20 * seconds_of_saving <= save_after_) return;
  save_after_ = 20 * seconds_of_saving;
  warn("a checkpoint takes " + duration(seconds_of_saving) + ", so the next ones come every " + duration(save_after_));
}

std::string Run::hash_of_weights() {
  const std::set<std::string> names = names_of(*state_);
  std::vector<uint64_t> hashes;
  state_->save([&](const TensorSource& get) {
    for (size_t i = 0; i < state_->tensors().size(); ++i)
      if (is_weight(state_->tensors()[i].name, names)) hashes.push_back(checksum(get(i)));
  });
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016lx", checksum(hashes.data(), hashes.size() * sizeof(uint64_t)));
  return digits;
}

// Reports the one step of a dry run.
void Run::tell_dry_run() {
  stopped_ = true;
  const std::vector<Traffic> traffic = gather_traffic(traffic_, rank_.comm);
  int64_t weights = 0, values = 0;
  const std::set<std::string> names = names_of(*state_);
  for (const auto& [name, dtype, shape] : state_->tensors()) {
    values += shape.size();
    if (!is_weight(name, names)) continue;
    weights += shape.size();
    note(name + "  " + text(dtype) + " " + text(shape));
  }
  note(grouped(weights) + " weights");
  note(grouped(values) + " values in a checkpoint, with the optimizer's state; rank 0 has a copy while it is written");
  const double peak = static_cast<double>(backend(rank_.device).memory().peak_bytes);
  note(bytes_in_words(peak) + " of memory at most in this process");
  for (size_t v = 0; v < Traffic::verbs; ++v) {
    Traffic::Count sum;
    for (const Traffic& rank : traffic) sum += rank[static_cast<Verb>(v)];
    if (sum.calls > 0) note(text(static_cast<Verb>(v)) + ": " + calls_and_bytes(sum));
  }
  Traffic::Count all;
  for (const Traffic& rank : traffic) all += rank.total();
  progress_.finish("dry run: one step makes " + calls_and_bytes(all) + ", summed over ranks");
}

std::vector<Report::RankTime> Run::gather_times() {
  const Tensor mine = Tensor::from({1, 3}, {time_.seconds, time_.communication, time_.data}, DType::f64);
  const std::vector<double> all = rank_.comm.gather(mine, {0}).values();
  std::vector<Report::RankTime> times;
  for (size_t i = 0; i < all.size(); i += 3) times.push_back({all[i], all[i + 1], all[i + 2]});
  return times;
}

void Run::write_results(const char* state) {
  write(Results::file, json(Results{.program = rank_.line.program(),
                                    .title = plan_.title,
                                    .data = plan_.data,
                                    .begun = rank_.folder->begun(),
                                    .ranks = rank_.comm.size(),
                                    .step = step_,
                                    .steps = steps_,
                                    .state = state,
                                    .figures = report_.figures}));
}

// All that is known of the run so far, with these figures first and those last.
void Run::write_report(const char* state, std::vector<Report::Figure> first, const std::vector<Report::Figure>& last) {
  const RunSession all = whole(sessions_);
  const Metrics& metrics = rank_.folder->metrics();
  report_.ranks = all.ranks;
  report_.traffic = all.traffic;
  report_.choices = rank_.comm.choices();
  if (sessions_.size() > 1) report_.subtitle += ", in " + text(sessions_.size()) + " sessions";
  report_.figures.clear();
  if (const auto loss = metrics.last("loss")) report_.figures.push_back(in_digits("loss of the last step", *loss));
  if (all.images > 0) {  // none if all steps were done elsewhere
    first.push_back({"training time", duration(all.ranks[0].seconds), all.ranks[0].seconds});
    first.push_back(in_digits("speed in images/s", speed()));
  }
  for (const auto& figures : {first, last})
    report_.figures.insert(report_.figures.end(), figures.begin(), figures.end());
  std::vector<Report::Chart> charts;
  for (const Chart& chart : plan_.charts) {
    std::vector<Line> lines;
    for (const std::string& name : chart.metrics) lines.push_back({name, metrics.curve(name)});
    charts.push_back({chart.title, line_chart(lines, "step")});
  }
  report_.charts.insert(report_.charts.begin(), charts.begin(), charts.end());
  if (reported_) return;
  write_results(state);
  write(RunFolder::report, html(report_));  // last, since it tells a restart that nothing is left to do
}

double Run::speed() const {
  const RunSession all = whole(sessions_);
  return all.ranks.empty() || all.ranks[0].seconds <= 0 ? 0 : all.images / all.ranks[0].seconds;
}

void Run::finish(const std::vector<Report::Figure>& figures) {
  save();
  const std::string hash = hash_of_weights();
  const double peak = plan_.flops_per_image > 0 ? peak_flops(rank_.device, rank_.comm) : 0;
  on_timeline("after the last step", stepped_);
  if (!leads()) return;

  std::vector<Report::Figure> last = {{"hash of the weights", hash}};
  if (peak > 0 && sessions_.size() == 1)
    last.insert(last.begin(), {"share of the cores' peak FLOP/s", percent(plan_.flops_per_image * speed(), peak),
                               plan_.flops_per_image * speed() / peak});
  write_report(Results::finished, figures, last);
  if (reported_) note("all " + grouped(step_) + " steps were done before; add steps by --epochs or --steps");
  note("report: " + (rank_.folder->path() / RunFolder::report).string());
  progress_.finish(report_.figures);
}

}  // namespace weft
