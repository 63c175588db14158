// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/json_text.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "weft/data/files/input_file.h"  // MalformedInput

namespace weft {
namespace {

// The number of bytes of the first character, or 0 if it is not valid UTF-8; overlong forms and surrogates are not.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool sound = lead >= 0xc2 && lead < 0xf5 && code >= least[length] && code <= 0x10ffff && code >> 11 != 0x1b;
  return sound ? length : 0;
}

void append_utf8(std::string& to, uint32_t code) {
  const auto put = [&](uint32_t byte) { to += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      result.append("\\u00").append({digits[c >> 4], digits[c & 15]});
    else
      result += c;
  }
  return result + '"';
}

std::string excerpt(std::string_view text) {
  constexpr size_t max_bytes = 100;
  if (text.size() <= max_bytes) return in_quotes(text);
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // does not cut a character
  return in_quotes(text.substr(0, end)) + "...";
}

void JsonText::refuse(const std::string& what) const {
  throw MalformedInput(file_ + ": byte " + std::to_string(offset_ + at_) + ": " + what);
}

void JsonText::refuse_second(std::string_view key) const { refuse("the key " + excerpt(key) + " comes twice"); }

void JsonText::object(const std::string& whose, std::initializer_list<Member> members) {
  uint32_t seen = 0;
  object([&](const std::string& key) {
    const auto* member = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == key; });
    if (member == members.end()) refuse(whose + " has an unknown member " + excerpt(key));
    const uint32_t bit = 1u << (member - members.begin());
    if (seen & bit) refuse_second(key);
    seen |= bit;
    member->read();
  });
  for (const Member& member : members)
    if (!member.optional && !(seen >> (&member - members.begin()) & 1))
      refuse(whose + " lacks " + std::string(member.key));
}

void JsonText::skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

bool JsonText::accept(char wanted) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

void JsonText::expect(char wanted) {
  if (!accept(wanted)) refuse(std::string("'") + wanted + "' is missing");
}

char JsonText::next() {
  if (at_ == text_.size()) refuse("the text ends within a string");
  return text_[at_++];
}

std::string JsonText::string() {
  expect('"');
  std::string result;
  for (;;) {
    const size_t length = character(text_.substr(at_));
    if (length == 0) refuse("not UTF-8");
    const char c = next();
    if (static_cast<unsigned char>(c) < 0x20) refuse("a control character in a string");
    if (c == '"') return result;
    if (c == '\\') {
      escape(result);
    } else {
      result.append(text_.substr(at_ - 1, length));
      at_ += length - 1;
    }
  }
}

void JsonText::escape(std::string& result) {
  const char c = next();
  const std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  if (const size_t place = names.find(c); place != std::string_view::npos) {
    result += meanings[place];
    return;
  }
  if (c != 'u') refuse("no such escape in a string");
  uint32_t code = four_digits();
  if (code >> 10 == 0x36) {  // the first half of a surrogate pair
    const uint32_t second = next() == '\\' && next() == 'u' ? four_digits() : 0;
    if (second >> 10 != 0x37) refuse("half of a surrogate pair");
    code = 0x10000 + ((code & 0x3ff) << 10 | (second & 0x3ff));
  } else if (code >> 10 == 0x37) {
    refuse("half of a surrogate pair");
  }
  append_utf8(result, code);
}

uint32_t JsonText::four_digits() {
  const std::string_view digits = text_.substr(at_, 4);
  uint32_t code = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() < 4 || error != std::errc() || stop != digits.data() + 4) refuse("\\u without four digits");
  at_ += 4;
  return code;
}

template <class T> T JsonText::parsed(const char* what_is_needed) {
  const std::string_view rest = text_.substr(at_);
  T value = 0;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  const auto length = static_cast<size_t>(stop - rest.data());
  const bool ends =
      length == rest.size() || std::string_view(" \t\r\n,]}").find(rest[length]) != std::string_view::npos;
  if (error != std::errc() || !ends) refuse(what_is_needed);
  at_ += length;
  return value;
}

uint64_t JsonText::number() {
  constexpr const char* needed = "a whole number is needed, below 2^64";
  skip_space();
  const std::string_view rest = text_.substr(at_);
  if (rest.size() > 1 && rest[0] == '0' && rest[1] >= '0' && rest[1] <= '9') refuse(needed);
  return parsed<uint64_t>(needed);
}

double JsonText::real() {
  constexpr const char* needed = "a number is needed";
  skip_space();
  const std::string_view rest = text_.substr(at_);
  if (rest.starts_with("null")) {
    at_ += 4;
    return std::numeric_limits<double>::quiet_NaN();
  }
  const size_t first = rest.starts_with('-') ? 1 : 0;
  if (first >= rest.size() || rest[first] < '0' || rest[first] > '9') refuse(needed);  // no inf, no .5
  return parsed<double>(needed);
}

void JsonText::end() {
  while (at_ < text_.size())
    if (text_[at_++] != ' ') refuse("something follows the end");
}

}  // namespace weft
