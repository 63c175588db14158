#pragma once
// The part of JSON that a safetensors header is made of: objects, arrays, strings and whole numbers. There is no tree
// and no recursion; the caller says what has to come next, and everything else is refused.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace weft {

bool is_utf8(std::string_view text);
std::string in_quotes(std::string_view text);  // as a JSON string

class JsonText {
 public:
  // Errors name `file` and the byte in it, where the text begins at `offset`.
  JsonText(std::string_view text, std::string file, uint64_t offset)
      : text_(text), file_(std::move(file)), offset_(offset) {}

  // Calls member(key) for every member, which has to read the value; a key that comes twice is refused.
  template <class F> void object(F&& member) {
    std::set<std::string> keys;
    list('{', '}', [&] {
      const auto [key, is_new] = keys.insert(string());
      if (!is_new) refuse("the key " + in_quotes(*key) + " comes twice");
      expect(':');
      member(*key);
    });
  }
  // Calls element() for every element, which has to read it.
  template <class F> void array(F&& element) { list('[', ']', element); }
  std::string string();
  uint64_t number();
  void end();  // nothing may follow but spaces

  [[noreturn]] void refuse(const std::string& what) const;

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

  std::string_view text_;
  std::string file_;
  uint64_t offset_;
  size_t at_ = 0;
};

}  // namespace weft
