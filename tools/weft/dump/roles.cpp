// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/roles.h"

#include <algorithm>

namespace weft::verify {

const std::map<std::string, Role::Kind>& kinds_by_name() {
  static const std::map<std::string, Role::Kind> kinds = {{"feature", Role::Kind::feature},
                                                          {"seam_gradient", Role::Kind::seam_gradient},
                                                          {"scalar", Role::Kind::scalar},
                                                          {"scalar_gradient", Role::Kind::scalar_gradient},
                                                          {"local_gradient", Role::Kind::local_gradient},
                                                          {"reduced_gradient", Role::Kind::reduced_gradient},
                                                          {"previous_gradient", Role::Kind::previous_gradient},
                                                          {"repeated_gradient", Role::Kind::repeated_gradient},
                                                          {"update", Role::Kind::update},
                                                          {"weight", Role::Kind::weight},
                                                          {"true_gradient", Role::Kind::true_gradient},
                                                          {"inexact_gradient", Role::Kind::inexact_gradient},
                                                          {"mended_gradient", Role::Kind::mended_gradient},
                                                          {"gradient_norm", Role::Kind::gradient_norm},
                                                          {"direction", Role::Kind::direction},
                                                          {"objective", Role::Kind::objective},
                                                          {"rank_loss", Role::Kind::rank_loss},
                                                          {"layer_input", Role::Kind::layer_input},
                                                          {"layer_input_gradient", Role::Kind::layer_input_gradient},
                                                          {"layer_output_gradient", Role::Kind::layer_output_gradient},
                                                          {"layer_weight", Role::Kind::layer_weight},
                                                          {"layer_epsilon", Role::Kind::layer_epsilon}};
  return kinds;
}

bool is_of_parameter(Role::Kind kind) {
  return kind == Role::Kind::local_gradient || kind == Role::Kind::reduced_gradient ||
         kind == Role::Kind::previous_gradient || kind == Role::Kind::repeated_gradient || kind == Role::Kind::update ||
         kind == Role::Kind::weight;
}

bool is_of_truth(Role::Kind kind) {
  return kind == Role::Kind::true_gradient || kind == Role::Kind::inexact_gradient ||
         kind == Role::Kind::mended_gradient;
}

// "NAME" or "NAME/K"
static Role numbered(Role::Kind kind, const std::string& name) {
  const size_t slash = name.rfind('/');
  const bool has_number = slash != std::string::npos && slash + 1 < name.size() && name.size() - slash <= 7 &&
                          name.find_first_not_of("0123456789", slash + 1) == std::string::npos;
  return {kind, name.substr(0, has_number ? slash : name.size()), has_number ? std::stoul(name.substr(slash + 1)) : 0};
}

// "NAME@USE"
static void take_use(Role& role) {
  const size_t at = role.of.rfind('@');
  if (at == std::string::npos) return;
  role.use = role.of.substr(at + 1);
  role.of.resize(at);
}

// "batch_norm/NAME/x.grad"
static Role role_in_layer(const std::string& name) {
  static const std::map<std::string, Role::Kind> parts = {{"x", Role::Kind::layer_input},
                                                          {"x.grad", Role::Kind::layer_input_gradient},
                                                          {"y.grad", Role::Kind::layer_output_gradient},
                                                          {"weight", Role::Kind::layer_weight},
                                                          {"epsilon", Role::Kind::layer_epsilon}};
  const size_t first = name.find('/'), last = name.rfind('/');
  const auto part = parts.find(name.substr(last + 1));
  if (first == last || part == parts.end()) return {};
  return {part->second, name.substr(first + 1, last - first - 1)};
}

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Role role_by_name(const std::string& name, const Loss* loss) {
  const auto behind = [&](std::string_view prefix) { return name.substr(prefix.size()); };
  if (name.starts_with("local/")) {
    Role role = numbered(Role::Kind::local_gradient, behind("local/"));
    take_use(role);
    return role;
  }
  if (name.starts_with("inexact/")) return numbered(Role::Kind::inexact_gradient, behind("inexact/"));
  if (name.starts_with("objective/") || name.starts_with("objective@")) {
    Role role{Role::Kind::objective, behind(name[9] == '/' ? "objective/" : "objective")};
    take_use(role);
    return role;
  }
  static const std::pair<std::string, Role::Kind> prefixes[] = {{"reduced/", Role::Kind::reduced_gradient},
                                                                {"previous/", Role::Kind::previous_gradient},
                                                                {"again/", Role::Kind::repeated_gradient},
                                                                {"update/", Role::Kind::update},
                                                                {"weight/", Role::Kind::weight},
                                                                {"truth/", Role::Kind::true_gradient},
                                                                {"mended/", Role::Kind::mended_gradient},
                                                                {"direction/", Role::Kind::direction},
                                                                {"rank_loss/", Role::Kind::rank_loss}};
  for (const auto& [prefix, kind] : prefixes)
    if (name.starts_with(prefix)) return {kind, behind(prefix)};
  if (name == "gradient_norm") return {Role::Kind::gradient_norm, ""};
  if (name == "objective") return {Role::Kind::objective, ""};
  if (name == "rank_loss") return {Role::Kind::rank_loss, ""};
  if (name.starts_with("batch_norm/")) return role_in_layer(name);
  if (!loss) return {};
  const bool gradient = name.ends_with(".grad");
  const std::string of = gradient ? name.substr(0, name.size() - 5) : name;
  if (is_one_of(loss->towers, of)) return {gradient ? Role::Kind::seam_gradient : Role::Kind::feature, of};
  if (is_one_of(loss->scalars, of)) return {gradient ? Role::Kind::scalar_gradient : Role::Kind::scalar, of};
  return {};
}

}  // namespace weft::verify
