// SPDX-License-Identifier: Apache-2.0
#include "weft/data/numpy/npy.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "weft/data/files/input_file.h"  // MalformedInput
#include "weft/data/files/json_text.h"   // excerpt, is_utf8

namespace weft {
namespace {

// The part of Python that NumPy writes its dictionaries in.
class PythonText {
 public:
  PythonText(std::string_view text, const std::string& file, uint64_t offset)
      : text_(text), file_(file), offset_(offset) {}

  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (at_end() || peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) refuse(std::string("'") + wanted + "' is missing");
  }
  void end() {
    if (!at_end()) refuse("something follows the dictionary");
  }

  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse("a string is needed");
    const size_t first = at_ + 1, last = text_.find_first_of(std::string{quote, '\\', '\n'}, first);
    if (last == std::string_view::npos || text_[last] == '\n') refuse("a string does not end");
    if (text_[last] == '\\') refuse("an escape in a string");
    at_ = last + 1;
    return text_.substr(first, last - first);
  }
  bool boolean() {
    peek();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>("True", true), {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    refuse("True or False is needed");
  }
  int64_t extent() {
    const char first = peek();
    const std::string_view rest = text_.substr(at_);
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    const auto length = static_cast<size_t>(stop - rest.data());
    if (error != std::errc() || first == '-' || (first == '0' && length > 1))
      refuse("an extent has to be a whole number from 0 to 2^63 - 1");
    at_ += length;
    return value;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw MalformedInput(file_ + ": byte " + std::to_string(offset_ + at_) + ": " + what);
  }

 private:
  bool at_end() {
    peek();
    return at_ == text_.size();
  }

  std::string_view text_;
  const std::string& file_;
  uint64_t offset_;
  size_t at_ = 0;
};

Shape read_shape(PythonText& python) {
  std::vector<int64_t> extents;
  bool comma = true;  // which makes a tuple of what would be a number in brackets
  python.expect('(');
  while (!python.accept(')')) {
    if (!comma) python.refuse("',' is missing");
    if (extents.size() == Shape::max_rank) python.refuse("more than " + std::to_string(Shape::max_rank) + " axes");
    extents.push_back(python.extent());
    comma = python.accept(',');
  }
  if (extents.size() == 1 && !comma) python.refuse("a shape with one axis needs a ','");
  if (!Shape::fits(extents)) python.refuse("a shape that is too large");
  return Shape(extents);
}

std::string read_descr(PythonText& python) {
  if (python.peek() == '[') python.refuse("a structured type, but only plain numbers are supported");
  return std::string(python.string());
}

}  // namespace

std::string text(const NpyHeader& header) {
  constexpr size_t preamble = 10, alignment = 64;  // bytes
  std::string shape;
  for (const int64_t extent : header.shape) shape.append(shape.empty() ? "" : " ").append(std::to_string(extent) + ",");
  if (header.shape.rank() > 1) shape.pop_back();
  std::string dictionary = "{'descr': '" + header.descr +
                           "', 'fortran_order': " + (header.fortran_order ? "True" : "False") + ", 'shape': (" + shape +
                           "), }";
  const size_t bytes = (preamble + dictionary.size() + 1 + alignment - 1) / alignment * alignment;
  dictionary.resize(bytes - preamble - 1, ' ');
  dictionary += '\n';
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(dictionary.size() & 0xff) +
         static_cast<char>(dictionary.size() >> 8) + dictionary;
}

NpyHeader parse_npy_header(std::string_view text, const std::string& file, uint64_t offset) {
  PythonText python(text, file, offset);
  if (!is_utf8(text)) python.refuse("the header is not UTF-8");
  NpyHeader header;
  bool has_descr = false, has_order = false, has_shape = false;
  const auto once = [&](bool& seen, std::string_view key) {
    if (std::exchange(seen, true)) python.refuse("the key " + excerpt(key) + " comes twice");
    python.expect(':');
  };
  python.expect('{');
  for (bool comma = true; !python.accept('}');) {
    if (!comma) python.refuse("',' is missing");
    const std::string_view key = python.string();
    if (key == "descr") {
      once(has_descr, key);
      header.descr = read_descr(python);
    } else if (key == "fortran_order") {
      once(has_order, key);
      header.fortran_order = python.boolean();
    } else if (key == "shape") {
      once(has_shape, key);
      header.shape = read_shape(python);
    } else {
      python.refuse("there is no key " + excerpt(key) + " but descr, fortran_order and shape");
    }
    comma = python.accept(',');
  }
  python.end();
  for (const auto& [seen, key] : {std::pair(has_descr, "descr"), {has_order, "fortran_order"}, {has_shape, "shape"}})
    if (!seen) python.refuse(std::string("the dictionary lacks ") + key);
  return header;
}

}  // namespace weft
