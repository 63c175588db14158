// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>

#include "tools/weft/dump/evidence.h"
#include "tools/weft/dump/roles.h"

namespace weft::verify {

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
  double held_numbers = max_held_numbers;

  void read(const std::vector<std::filesystem::path>& files);

 private:
  std::string where(size_t rank) const { return dump.files[rank].string(); }
  void read_file(const std::filesystem::path& path, size_t rank, bool (*holds)(Role::Kind));
  void check_counts() const;
  void check_micro_batches() const;
  void prepare_seam();
  Role role_of(const std::string& name) const;
  StoredParameter& parameter(const std::string& name);
  void place(const Role& role, const Tensor& tensor, const Precision& precision, size_t rank, const std::string& name);
  void place_features(const Role& role, const Tensor& tensor, const Precision& precision, size_t rank,
                      const std::string& name);
  void place_scalar(const Role& role, const Tensor& tensor, const Precision& precision, size_t rank,
                    const std::string& name);
  void place_norm(const Tensor& tensor, const Precision& precision, size_t rank, const std::string& name);
  void check_seam();
  void check_features(const std::string& name, size_t tower, size_t r) const;
  void check_norm();
  void check_parameter(const StoredParameter& p);
  void check_dimensions(const StoredParameter& p, size_t r) const;
  void check_update(const StoredParameter& p) const;
  std::vector<ParameterEvidence> moved_parameters() const;
  void load_parameters();

  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<StoredParameter> parameters_;
  std::map<std::string, size_t> places_;  // in them, by name
};

// What a dump says of layers.
bool is_of_layer(Role::Kind kind);
void place_in_layer(Dump& dump, const Role& role, const Matrix& values, const Precision& precision, size_t rank);
// Error unless all tensors of all layers are there, and fit.
void check_layers(Dump& dump);

// Error unless each parameter of a step has what it is compared with. Counts its micro-batches.
void check_step(const std::vector<StoredParameter>& parameters, Dump& dump);

}  // namespace weft::verify
