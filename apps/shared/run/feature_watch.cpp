// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/feature_watch.h"

#include <cmath>

#include "apps/shared/evaluation/feature_statistics.h"
#include "apps/shared/evaluation/features.h"
#include "apps/shared/evaluation/probe.h"
#include "apps/shared/report/picture.h"
#include "apps/shared/run/data_set.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

constexpr int64_t most_known = 1000, most_asked = 500, voters = 20, shown = 8;
constexpr const char *accuracy_name = "k-NN accuracy", *rank_name = "rank of the features",
                     *norm_name = "norm of the features", *spread_name = "spread of the features",
                     *compared_name = "spread of what the loss compares";
// Of what the loss compares. A healthy training has more than 0.4 from its first look on.
constexpr double collapsed_spread = 0.02;

// This rank's part of rows that all ranks have.
Tensor part_of(const Tensor& rows, const Communicator& comm) {
  const int64_t count = rows.shape()[0], me = comm.rank().value;
  return rows.slice(count * me / comm.size(), count * (me + 1) / comm.size());
}

}  // namespace

void WatchOptions::add_to(CommandLine& line) {
  line.add("--stop-if-collapsed", stop_if_collapsed,
           "end with an error if the features of all pictures become the same");
}

Tensor FeatureWatch::Some::pixels(const std::vector<int64_t>& places) const {
  std::vector<int64_t> chosen;
  for (const int64_t place : places) chosen.push_back(samples[static_cast<size_t>(place)]);
  return as_pixels(take(of, chosen).images);
}

Tensor FeatureWatch::Some::labels() const { return take(of, samples).labels; }

FeatureWatch::FeatureWatch(const Pictures& data, const WatchOptions& options, const Init& like, Communicator& comm)
    : data_(data),
      options_(options),
      like_(like),
      comm_(comm),
      known_{data.train, every_nth(data.train, most_known)},
      asked_{data.test.count() > 0 ? data.test : data.train,
             every_nth(data.test.count() > 0 ? data.test : data.train, most_asked)} {}

Run::Plan watched(Run::Plan plan, const Pictures& data) {
  if (data.labelled()) {
    plan.charts.push_back({"Accuracy of " + text(voters) + " nearest neighbours, in %", {accuracy_name}});
    plan.best_by = accuracy_name;
  }
  plan.charts.push_back({"Rank of the features", {rank_name}});
  plan.charts.push_back({"Spread of directions: 1 is everywhere, 0 all the same", {spread_name, compared_name}});
  plan.charts.push_back({"Length of the features", {norm_name}});
  plan.charts.push_back({"Images per second", {"images per second"}});
  plan.charts.push_back({"Memory of rank 0's process, in MiB", {"memory in MiB"}});
  return plan;
}

Tensor FeatureWatch::features(Layer& encoder, const Some& pictures) {
  const auto count = static_cast<int64_t>(pictures.samples.size());
  const std::vector<double> numbers(pictures.samples.begin(), pictures.samples.end());
  return encoded(
      Tensor::from({count}, numbers, DType::i64),
      [&](Tape& tape, const Tensor& piece) {
        const std::span<const int64_t> samples(piece.data<int64_t>(), static_cast<size_t>(piece.size()));
        return encoder(tape.constant(take(pictures.of, samples, like_.dtype).images.to(like_.device)));
      },
      comm_);
}

double FeatureWatch::accuracy(const Tensor& of_known, const Tensor& of_asked) {
  const auto part = [&](const Tensor& rows, const Some& pictures) {
    return LabelledFeatures{part_of(rows, comm_), part_of(pictures.labels().to(like_.device), comm_)};
  };
  return nearest_neighbours(part(of_known, known_), part(of_asked, asked_), data_.count_of_classes(),
                            std::min<int64_t>(voters, of_known.shape()[0]), comm_);
}

std::vector<Measured> FeatureWatch::look(Run& run, Layer& encoder, Layer& head, std::vector<Measured> values) {
  if (!run.watches()) return values;
  const Tensor of_asked = features(encoder, asked_);
  const FeatureStatistics found = statistics_of(of_asked);
  if (!std::isfinite(found.norm)) return values;  // nor is the loss, and the run ends with it
  const auto compared = [&](Tape& tape, const Tensor& piece) { return head(tape.constant(piece)); };
  const double spread = statistics_of(encoded(of_asked, compared, comm_)).spread;
  name_collapse(run, spread);
  values.insert(
      values.end(),
      {{rank_name, found.rank}, {norm_name, found.norm}, {spread_name, found.spread}, {compared_name, spread}});
  if (data_.labelled()) {
    const double percent = 100 * accuracy(features(encoder, known_), of_asked);
    values.push_back({accuracy_name, percent});
    run.show_beside_loss("k-NN", short_number(percent) + " %");
  }
  run.show_beside_loss("rank", short_number(found.rank));
  for (const auto& [name, value] : run.pace()) values.push_back({name, value});
  return values;
}

void FeatureWatch::name_collapse(Run& run, double spread) {
  constexpr int64_t early = 25;  // steps; before, little can be said
  const int64_t step = run.steps_done() + 1;
  if (spread > collapsed_spread || step < early) return;
  const std::string what =
      "step " + text(step) +
      ": the network has collapsed: it gives all pictures nearly the same features (their spread is " +
      short_number(spread) + "), so the loss can teach it nothing more; try a smaller --rate or a larger --batch";
  if (options_.stop_if_collapsed) throw Fault(exit_codes::collapsed, what);
  if (comm_.rank().value == 0 && !named_) run.warn(what);
  named_ = true;
}

void FeatureWatch::show(Run& run, Layer& encoder) {
  const Tensor of_known = features(encoder, known_), of_asked = features(encoder, asked_);
  const int64_t rows = std::min(shown, of_asked.shape()[0]), near = std::min(shown, of_known.shape()[0]);
  if (rows == 0) return;
  const TopK nearest =
      top_k(matmul(l2_normalize(of_asked.slice(0, rows)), l2_normalize(of_known), Transpose::no, Transpose::yes), near);
  const std::vector<double> places = nearest.indices.value().to(Device::cpu).values();
  Vars pixels;
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = places.begin() + row * near;
    pixels.insert(pixels.end(), {asked_.pixels({row}), known_.pixels({first, first + near})});
  }
  run.picture("neighbours", "Held-out pictures, each followed by the training pictures whose features are nearest",
              grid(concat(pixels, 0).value(), near + 1));
  run.chart("The features of held-out pictures in the plane in which they differ most", map_of(of_asked));
}

// One group of points for each class.
std::string FeatureWatch::map_of(const Tensor& features) const {
  std::vector<Line> groups(std::max<size_t>(data_.classes.size(), 1));
  for (size_t c = 0; c < data_.classes.size(); ++c) groups[c].name = data_.classes[c];
  const Tensor plane = in_a_plane(features), labels = asked_.labels();
  for (int64_t i = 0; i < plane.shape()[0]; ++i)
    groups[data_.labelled() ? size_t(labels.data<int64_t>()[i]) : 0].points.push_back(
        {plane.data<double>()[2 * i], plane.data<double>()[2 * i + 1]});
  return scatter_chart(groups);
}

}  // namespace weft
