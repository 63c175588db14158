// SPDX-License-Identifier: Apache-2.0
#pragma once
// Looks at an encoder while it learns, at a few hundred pictures every few steps (Run::watches). What it sees stands in
// the progress line, the metrics and the report: how many of the pictures' neighbours are of their class, and whether
// the features still tell pictures apart. If they do not, the network has collapsed, and no later step is of use.
#include "apps/shared/run/run.h"
#include "weft/data/pictures.h"
#include "weft/engine/nn/module.h"

namespace weft {

struct WatchOptions {
  bool stop_if_collapsed = false;
  void add_to(CommandLine& line);
};

Run::Plan watched(Run::Plan plan, const Pictures& data);  // with the charts of what is seen

class FeatureWatch {
 public:
  FeatureWatch(const Pictures& data, const WatchOptions& options, const Init& like, Communicator& comm);

  // What is measured after the step that is to be told to `run` next: most often nothing but `values`. `head` turns
  // features into those that the loss compares.
  std::vector<Measured> look(Run& run, Layer& encoder, Layer& head, std::vector<Measured> values);
  // At the end: the neighbours of some pictures, and a map of the features.
  void show(Run& run, Layer& encoder);

 private:
  // Some pictures, by their numbers.
  struct Some {
    const LabelledImages& of;
    std::vector<int64_t> samples;
    Tensor pixels(const std::vector<int64_t>& places) const;  // u8, of these places in `samples`
    Tensor labels() const;
  };

  Tensor features(Layer& encoder, const Some& pictures);  // of all, on every rank
  double accuracy(const Tensor& of_known, const Tensor& of_asked);
  void name_collapse(Run& run, double spread);
  std::string map_of(const Tensor& features) const;

  const Pictures& data_;
  const WatchOptions options_;
  const Init like_;
  Communicator& comm_;
  bool named_ = false;        // the collapse
  const Some known_, asked_;  // training pictures, and pictures held out whose neighbours are looked for
};

}  // namespace weft
