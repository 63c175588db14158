// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>

#include "tools/weft/dump/evidence.h"
#include "tools/weft/dump/roles.h"

namespace weft::verify {

inline constexpr size_t max_micro_batches = 1 << 16;

// Puts the tensors of all files where they belong, and then checks that nothing is missing.
class DumpReader {
 public:
  Dump dump;
  const Loss* loss = nullptr;
  Options options;
  std::map<std::string, Role> roles;  // of the manifest
  std::map<std::string, std::vector<std::string>> hashes;
  std::optional<ScaleReader> scale;
  std::map<std::string, Layout> layouts;

  void read(const std::vector<std::filesystem::path>& files);

 private:
  std::string where(size_t rank) const { return dump.files[rank].string(); }
  void check_counts() const;
  void prepare_seam();
  Role role_of(const std::string& name) const;
  ParameterEvidence& parameter(const std::string& name);
  void place(const Role& role, const Tensor& tensor, size_t rank, const std::string& name);
  void place_features(const Role& role, const Tensor& tensor, size_t rank, const std::string& name);
  void place_scalar(const Role& role, const Tensor& tensor, size_t rank, const std::string& name);
  void place_norm(const Tensor& tensor, size_t rank, const std::string& name);
  void place_parameter(const Role& role, const Tensor& tensor, size_t rank);
  void place_local(ParameterEvidence& p, const Role& role, const Matrix& values, const Shape& shape, size_t rank);
  void check_seam();
  void check_features(const std::string& name, size_t tower, size_t r) const;
  void check_norm();
  void check_parameter(ParameterEvidence& p);
  void check_dimensions(const ParameterEvidence& p, size_t r) const;
  // A rank without some use, such as a stage of a pipeline, adds nothing to it.
  static void fill_uses(ParameterEvidence& p, size_t passes);
  void check_reduction(const ParameterEvidence& p) const;
};

// What a dump says of layers.
bool is_of_layer(Role::Kind kind);
void place_in_layer(Dump& dump, const Role& role, const Matrix& values, const Precision& precision, size_t rank);
// Error unless all tensors of all layers are there, and fit.
void check_layers(Dump& dump);

}  // namespace weft::verify
