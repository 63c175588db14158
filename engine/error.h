#pragma once
// One exception type and one way to raise it, so that every message reads "op: what is wrong, with what was given".
#include <concepts>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {

// A caller's mistake or a broken invariant. The text is for the person who made the call.
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  // Says where it happened, in front of what happened; for a handler that passes the error on.
  void happened_in(const std::string& place) { message_.insert(0, place + ": "); }

 private:
  std::string message_;
};

[[noreturn]] void fail(std::initializer_list<std::string> parts);

inline std::string text(std::string_view s) { return std::string(s); }
inline std::string text(const char* s) { return s; }
std::string text(double x);
template <std::integral T> std::string text(T n) { return std::to_string(n); }

// Raises Error with the joined parts unless `ok`. Parts are anything that has a text().
template <class... Parts> void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail({text(parts)...});
}

}  // namespace weft
