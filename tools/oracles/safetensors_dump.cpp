// SPDX-License-Identifier: Apache-2.0
// Writes and reads the files that tools/oracles exchanges with Python's safetensors:
//   safetensors_dump write FILE     writes the tests' sample
//   safetensors_dump read FILE      prints a line of JSON with the metadata, then one per tensor with its bytes
#include <cstdio>

#include "tests/data/checkpoint_checks.h"
#include "weft/data/files/json_text.h"

namespace weft {
namespace {

std::string hexadecimal(const Tensor& tensor) {
  std::string result;
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    const auto byte = tensor.data<unsigned char>()[i];
    result += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  }
  return result;
}

void print(const SafetensorsFile& file) {
  std::string line;
  for (const auto& [key, value] : file.metadata())
    line += (line.empty() ? "" : ",") + in_quotes(key) + ":" + in_quotes(value);
  std::printf("{%s}\n", line.c_str());
  for (const auto& entry : file.tensors()) {
    std::string shape;
    for (const int64_t extent : entry.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    std::printf("[%s,\"%s\",[%s],\"%s\"]\n", in_quotes(entry.name).c_str(), text(entry.dtype).c_str(), shape.c_str(),
                hexadecimal(file.read(entry.name)).c_str());
  }
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  using namespace weft;
  try {
    const std::string verb = count == 3 ? arguments[1] : "";
    require(verb == "write" || verb == "read", "usage: safetensors_dump write|read FILE");
    if (verb == "write")
      write_safetensors(arguments[2], sample(), {{"seed", "42"}, {"note", "line\nZoë \"😀\" \\ \x7f"}});
    else
      print(SafetensorsFile(arguments[2]));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
