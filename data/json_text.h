#pragma once
// The part of JSON that Weft's own files are made of: objects, arrays, strings and numbers. There is no tree and no
// recursion; the caller says what has to come next, and everything else is refused. So reading takes no memory but what
// the caller keeps, whatever the text.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

bool is_utf8(std::string_view text);
std::string in_quotes(std::string_view text);  // as a JSON string
std::string excerpt(std::string_view text);    // the same for messages: of a long text the beginning

class JsonText {
 public:
  // Errors name `file` and the byte in it, where the text begins at `offset`.
  JsonText(std::string_view text, std::string file, uint64_t offset)
      : text_(text), file_(std::move(file)), offset_(offset) {}

  // Calls member(key) for every member, which has to read the value. It is the caller, who keeps them, that refuses a
  // key that comes twice.
  template <class F> void object(F&& member) {
    list('{', '}', [&] {
      std::string key = string();
      expect(':');
      member(std::move(key));
    });
  }
  // One that has each of these members once, in any order, but may lack optional ones. `whose` is for the error.
  struct Member {
    std::string_view key;
    std::function<void()> read;
    bool optional = false;
  };
  void object(const std::string& whose, std::initializer_list<Member> members);
  // Calls element() for every element, which has to read it.
  template <class F> void array(F&& element) { list('[', ']', element); }
  std::string string();
  uint64_t number();
  double real();  // null, which stands for what is not finite, is a NaN
  void end();     // nothing may follow but spaces

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
