// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/tensor_files.h"

#include <memory>

#include "weft/data/files/safetensors.h"
#include "weft/data/idx.h"
#include "weft/data/numpy/npy.h"
#include "weft/data/numpy/npz.h"

namespace weft::verify {
namespace {

bool is_tensor_file(const std::filesystem::path& path) {
  const std::string suffix = path.extension().string();
  return suffix == ".safetensors" || suffix == ".npy" || suffix == ".npz";
}

void add_file(Tensors& all, const std::filesystem::path& path, const std::string& prefix) {
  if (!std::filesystem::exists(path)) throw MissingInput(path.string() + ": there is no such file");
  require(is_tensor_file(path), path.string(), ": a .safetensors, .npy or .npz file is needed, or a folder of these");
  if (path.extension() == ".npy") {
    all[prefix + "array"] = {[path] { return read_npy(path); }};
  } else if (path.extension() == ".npz") {
    const auto file = std::make_shared<NpzFile>(path);
    for (const std::string& name : file->names()) all[prefix + name] = {[file, name] { return file->read(name); }};
  } else {
    const auto file = std::make_shared<SafetensorsFile>(path);
    for (const SafetensorsFile::Entry& entry : file->tensors())
      all[prefix + entry.name] = {[file, name = entry.name] { return file->read(name); }, entry.half};
  }
}

}  // namespace

bool NaturalOrder::operator()(const std::string& a, const std::string& b) const {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto run = [&](const std::string& s, size_t from) {
    size_t end = from;
    while (end < s.size() && digit(s[end])) ++end;
    while (from + 1 < end && s[from] == '0') ++from;  // leading zeros
    return std::pair(s.substr(from, end - from), end);
  };
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto [x, after_x] = run(a, i);
    const auto [y, after_y] = run(b, j);
    if (x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    i = after_x, j = after_y;
  }
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

Tensors tensors_of(const std::filesystem::path& path) {
  Tensors all;
  if (!std::filesystem::is_directory(path)) {
    add_file(all, path, "");
    return all;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (is_tensor_file(entry.path())) add_file(all, entry.path(), entry.path().stem().string() + ": ");
  return all;
}

}  // namespace weft::verify
