// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a framework has dumped to check the gradients of any model: its objective at parameters that were moved along
// random directions, those directions, and the gradients that its optimizer gets.
#include <optional>

#include "tools/weft/dump/roles.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::verify {

// Values of a function at the parameters themselves, and moved by -e, -e/2, e/2 and e along each direction: (K, 4).
struct MovedValues {
  double at_rest = 0;
  Matrix moved;
};

// One parameter that was moved, while the others rested.
struct MovedParameter {
  std::string name;
  Matrix directions;                         // (K, n)
  std::optional<MovedValues> objective;      // of the whole batch: as dumped, or the sum of its terms
  std::map<std::string, MovedValues> terms;  // may be empty
  std::vector<MovedValues> losses;           // by rank; may be empty
  std::vector<Matrix> gradients;             // by rank, after the reducer: (1, n)
  double epsilon = 0;                        // the precision of the gradients
};

// Places of the program, "vq.py:31", where values are detached: autograd stops there, and differences do not, unless
// these values are held at what they are where nothing is moved.
struct Detached {
  std::vector<std::string> places;
  bool held = false;
};

struct ScaleEvidence {
  double step = 0;     // e
  double epsilon = 0;  // the precision of the values, by the digits that they have
  Detached detached;
  std::vector<MovedParameter> parameters;
};

struct ParameterEvidence;

// Collects the tensors of a dump that belong to ScaleEvidence. `step` and `detached` are the manifest's.
class ScaleReader {
 public:
  ScaleReader(double step, std::vector<std::string> files, Detached detached = {});

  static bool reads(Role::Kind kind);
  bool moves(const std::string& parameter) const { return directions_.contains(parameter); }
  void place(const Role& role, const Tensor& tensor, size_t rank);
  // With the reduced gradients of `parameters`.
  ScaleEvidence finish(const std::vector<ParameterEvidence>& parameters);

 private:
  struct Values {
    std::optional<double> at_rest;
    std::map<std::string, Matrix> moved;  // by parameter
  };
  void place_values(Values& values, const Role& role, const Tensor& tensor, size_t rank);
  void check_directions(const std::string& name, const Matrix& directions) const;
  MovedValues values_of(const Values& values, const std::string& parameter, size_t rank) const;
  void check_terms() const;

  ScaleEvidence evidence_;
  std::vector<std::string> files_;
  std::map<std::string, Matrix> directions_;
  Values objective_;
  std::map<std::string, Values> terms_;
  std::vector<Values> losses_;  // by rank
};

}  // namespace weft::verify
