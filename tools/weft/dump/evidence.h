// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a framework has dumped, in a form that hypotheses can be held against.
#include <filesystem>
#include <optional>

#include "tools/weft/dump/counts.h"
#include "tools/weft/dump/mesh.h"
#include "tools/weft/dump/scale_evidence.h"
#include "tools/weft/dump/stored_parameter.h"
#include "tools/weft/truth/update.h"

namespace weft::verify {

inline constexpr double limit = 8;  // multiples of expected rounding that still count as equal

// Gradients at the features of a loss, by tower and rank, as they reach the encoder, and of its shared scalars, by
// rank.
struct SeamEvidence {
  const Loss* loss = nullptr;
  Batch batch;
  std::vector<std::vector<Matrix>> gradients;
  std::map<std::string, std::vector<double>> scalars;  // before the reducer
  Precision precision;

  bool has_gradient(size_t tower) const { return gradients[tower][0].cols() > 0; }
};

// Of the numbers of a tensor.
struct Powers {
  double squares = 0, fourth = 0;
};

// What the optimizer adds to a parameter, by rank: (1, n), of slices as the reducer leaves them, or whole.
struct UpdateEvidence {
  std::vector<Matrix> made;
  std::vector<Matrix> weight;  // before it, likewise; may be empty
  std::vector<Shape> shapes;
  Precision precision;  // the lowest of the gradients and the update

  bool is_whole(const std::vector<Shape>& wholes) const;
};

// The gradient of one parameter on its way through the reducer. Flattened.
struct ParameterEvidence {
  std::string name;
  std::vector<std::vector<Matrix>> local;  // by rank and micro-batch, before the reducer: (1, n)
  std::vector<Matrix> reduced;             // by rank, after it
  std::vector<Matrix> previous;            // by rank, what the reducer made in the step before; may be empty
  std::vector<Matrix> again;               // by rank, what it made when the step was repeated; may be empty
  std::vector<std::string> hashes;         // by rank, of the parameter itself; may be empty
  Precision precision;

  std::optional<Layout> layout = {};  // none: terms on all ranks, which the reducer puts together
  std::vector<Shape> local_shapes = {}, reduced_shapes = {};  // by rank; empty: flat
  // What each use of the parameter adds to `local`, if there are several and they are known.
  std::map<std::string, std::vector<std::vector<Matrix>>> uses = {};

  // Where the dump is too large to be held: then there are no numbers above.
  std::shared_ptr<const StoredParameter> stored = {};
  std::optional<UpdateEvidence> update = {};
  std::vector<Powers> powers = {};  // of `reduced`, by rank, if there is a norm of all parameters

  bool has_local() const;
  Block local_block(size_t rank, Matrix values) const;
  std::vector<Shape> shapes_of_reduced() const;
  // What a reduction makes of gradients of all ranks that have the shapes of the local ones.
  std::vector<Matrix> through(const Reduction& reduction, const std::vector<Matrix>& of_ranks,
                              const Reduction::Lapse& lapse) const;
  std::vector<Matrix> through(const Reduction& reduction, const std::vector<Matrix>& of_ranks) const {
    return through(reduction, of_ranks, Reduction::Lapse());
  }
};

// The norm of all reduced gradients that the job clips by.
struct NormEvidence {
  std::vector<double> by_rank;
  Precision precision;
};

// A batch normalization over all ranks: by rank its input, the gradient at its output and that at its input, each
// (rows, channels), where a row is a sample or a pixel of one.
struct LayerEvidence {
  std::string name;
  std::vector<Matrix> x, by_y, by_x;
  Matrix weight;  // (1, channels)
  double epsilon = 1e-5;
  Precision precision;
};

// A step that one process has made, too, with the samples of all ranks.
struct StepEvidence {
  std::vector<StoredParameter> parameters;  // each with a truth
  std::vector<std::string> lost;            // collectives of the truth through which no gradient passes
  std::vector<std::string> mended;          // those of the ranks through which none has passed, and then has
  std::vector<std::filesystem::path> files, mended_files;  // of the truth, and of ranks
};

struct Dump {
  std::optional<Mesh> mesh;  // none: one axis without a name
  Reducer reducer = Reducer::mean;
  int ranks = 0, micro_batches = 1;
  std::vector<int64_t> rows;  // samples of each rank, over all micro-batches; empty if unknown
  std::vector<Count> counts;
  std::optional<SeamEvidence> seam;
  std::vector<ParameterEvidence> parameters;
  std::optional<ScaleEvidence> scale;
  std::optional<NormEvidence> norm;
  std::optional<OptimizerRule> optimizer;
  std::vector<LayerEvidence> layers;
  std::optional<StepEvidence> step;
  int64_t stored_elements = 0;  // of all parameters that are not held
  std::vector<std::filesystem::path> files;
};

Mesh mesh_of(const Dump& dump);
Layout layout_of(const std::optional<Layout>& layout, const Dump& dump);
Layout layout_of(const ParameterEvidence& parameter, const Dump& dump);

// About how many numbers the hypotheses about a reducer predict for one element on one rank.
double predictions_of_element(int ranks);
// Reads a folder with a manifest.json (docs/manifest.md). If the hypotheses would predict more than `held_numbers` for
// the gradients of all parameters, these stay in their files.
inline constexpr double max_held_numbers = 1 << 24;
Dump read_dump(const std::filesystem::path& folder, double held_numbers = max_held_numbers);
// Reads files without a manifest, of a loss that the caller names.
struct NamedDump {
  std::string loss;
  std::vector<std::filesystem::path> files;  // of each rank, in rank order
  Reducer reducer = Reducer::mean;
  Options options;
};
Dump read_dump(const NamedDump& named);

}  // namespace weft::verify
