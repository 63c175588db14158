// SPDX-License-Identifier: Apache-2.0
#pragma once
// The exception type of all errors, and the function that throws it. A message reads "op: what is wrong, with the
// values given".
#include <concepts>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {

// A mistake of the caller, or a broken invariant. The text addresses the person who made the call.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  // Puts the place of the error before the message; for a handler that rethrows it.
  void happened_in(const std::string& place) { message_.insert(0, place + ": "); }

 private:
  std::string message_;
};

[[noreturn]] void fail(std::initializer_list<std::string> parts);

inline std::string text(std::string_view s) { return std::string(s); }
inline std::string text(const char* s) { return s; }
std::string text(double x);
template <std::integral T> std::string text(T n) { return std::to_string(n); }

// Throws an Error with the joined parts unless `ok`. A part is of any type that has a text().
template <class... Parts> void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail({text(parts)...});
}

}  // namespace weft
