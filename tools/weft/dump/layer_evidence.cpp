// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/dump_reader.h"

#include <algorithm>

#include "weft/engine/tensor/error.h"

namespace weft::verify {
namespace {

LayerEvidence& layer_named(Dump& dump, const std::string& name) {
  const auto found = std::ranges::find(dump.layers, name, &LayerEvidence::name);
  if (found != dump.layers.end()) return *found;
  LayerEvidence& added = dump.layers.emplace_back();
  added.name = name;
  added.x.resize(dump.files.size());
  added.by_y = added.by_x = added.x;
  return added;
}

void check_layer(LayerEvidence& layer, const Dump& dump) {
  Eigen::Index rows = 0;
  for (size_t r = 0; r < dump.files.size(); ++r) {
    const Matrix& x = layer.x[r];
    const auto check = [&](const char* what, const Matrix& m) {
      require(m.cols() > 0, dump.files[r].string(), ": there is no 'batch_norm/", layer.name, what, "'");
      require(m.rows() == x.rows() && m.cols() == layer.x[0].cols(), dump.files[r].string(), ": 'batch_norm/",
              layer.name, what, "' is ", m.rows(), " x ", m.cols(), ", not ", x.rows(), " x ", layer.x[0].cols());
    };
    check("/x", x);
    check("/y.grad", layer.by_y[r]);
    check("/x.grad", layer.by_x[r]);
    require(x.allFinite() && layer.by_y[r].allFinite(), dump.files[r].string(), ": the layer '", layer.name,
            "' was given numbers that are not finite");
    rows += x.rows();
  }
  require(rows > 1, "verify: the input of '", layer.name, "' has ", rows, " rows on all ranks; it needs at least 2");
  const Eigen::Index channels = layer.x[0].cols();
  if (layer.weight.size() == 0) layer.weight = Matrix::Ones(1, channels);
  require(layer.weight.size() == channels && layer.weight.allFinite(), "verify: the weight of '", layer.name,
          "' is not ", channels, " finite numbers");
  require(layer.epsilon >= 0, "verify: epsilon of '", layer.name, "' is zero or more, not ", layer.epsilon);
}

}  // namespace

bool is_of_layer(Role::Kind kind) {
  return kind == Role::Kind::layer_input || kind == Role::Kind::layer_input_gradient ||
         kind == Role::Kind::layer_output_gradient || kind == Role::Kind::layer_weight ||
         kind == Role::Kind::layer_epsilon;
}

void place_in_layer(Dump& dump, const Role& role, const Matrix& values, const Precision& precision, size_t rank) {
  LayerEvidence& layer = layer_named(dump, role.of);
  const auto same_everywhere = [&](const char* what, const auto& first) {
    require(rank == 0 || (first.size() == values.size() && first.reshaped() == values.reshaped()),
            dump.files[rank].string(), ": the ", what, " of '", role.of,
            "' is not that of rank 0: the replicas have diverged (S26)");
  };
  switch (role.kind) {
    case Role::Kind::layer_input: layer.x[rank] = values; break;
    case Role::Kind::layer_output_gradient: layer.by_y[rank] = values; break;
    case Role::Kind::layer_weight:
      same_everywhere("weight", layer.weight);
      layer.weight = values.reshaped(1, values.size());
      break;
    case Role::Kind::layer_epsilon:
      require(values.size() == 1, dump.files[rank].string(), ": epsilon of '", role.of, "' is one number");
      same_everywhere("epsilon", Matrix::Constant(1, 1, layer.epsilon));
      layer.epsilon = values(0);
      break;
    default:
      layer.by_x[rank] = values;
      if (precision.epsilon > layer.precision.epsilon) layer.precision = precision;
  }
}

void check_layers(Dump& dump) {
  for (LayerEvidence& layer : dump.layers) check_layer(layer, dump);
}

}  // namespace weft::verify
