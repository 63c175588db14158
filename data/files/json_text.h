// SPDX-License-Identifier: Apache-2.0
#pragma once
// A reader for the part of JSON that Weft's own files use: objects, arrays, strings and numbers. It builds no tree and
// does not recurse: the caller says what must come next, and everything else is refused. So memory does not depend on
// the text, but only on what the caller keeps.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

bool is_utf8(std::string_view text);
std::string in_quotes(std::string_view text);  // as a JSON string
std::string excerpt(std::string_view text);    // the same for messages, which shortens a long text to its beginning

class JsonText {
 public:
  // Errors name `file` and the byte in it. The text begins at byte `offset` of the file.
  JsonText(std::string_view text, std::string file, uint64_t offset)
      : text_(text), file_(std::move(file)), offset_(offset) {}

  // Calls member(key) for every member, which must read the value. The caller must refuse repeated keys, since only it
  // keeps them.
  template <class F> void object(F&& member) {
    list('{', '}', [&] {
      std::string key = string();
      expect(':');
      member(std::move(key));
    });
  }
  // Reads an object that has each of these members once, in any order; optional ones may be missing. `whose` names the
  // object in errors.
  struct Member {
    std::string_view key;
    std::function<void()> read;
    bool optional = false;
  };
  void object(const std::string& whose, std::initializer_list<Member> members);
  // Calls element() for every element, which must read it.
  template <class F> void array(F&& element) { list('[', ']', element); }
  std::string string();
  uint64_t number();
  double real();  // null, which represents values that are not finite, is read as NaN
  void end();     // Error if anything but spaces follows

  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void refuse_second(std::string_view key) const;

 private:
  template <class F> void list(char open, char close, F&& item) {
    expect(open);
    if (accept(close)) return;
    do item();
    while (accept(','));
    expect(close);
  }
  void skip_space();
  bool accept(char wanted);
  void expect(char wanted);
  char next();
  void escape(std::string& result);
  uint32_t four_digits();
  template <class T> T parsed(const char* what_is_needed);

  std::string_view text_;
  std::string file_;
  uint64_t offset_;
  size_t at_ = 0;
};

}  // namespace weft
