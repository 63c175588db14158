// SPDX-License-Identifier: Apache-2.0
#pragma once
// As long as it lives, a stream prints "?" for each control character but tabs and ends of lines. Names in a dump are
// other people's, and a control character in one could move a terminal's cursor and rewrite a verdict.
#include <ostream>
#include <streambuf>
#include <utility>

namespace weft {

class Printable : public std::streambuf {
 public:
  explicit Printable(std::ostream& stream) : stream_(stream), to_(stream.rdbuf(this)) {}
  ~Printable() override { stream_.rdbuf(to_); }

 private:
  int_type overflow(int_type c) override {
    if (c == traits_type::eof()) return traits_type::not_eof(c);
    // Beyond ASCII a control character is 0xc2 and a byte below 0xa0, so the first waits for the second.
    const bool after_lead = std::exchange(lead_, c == 0xc2);
    if (after_lead && c >= 0x80 && c < 0xa0) return to_->sputc('?');
    if (after_lead) to_->sputc('\xc2');
    if (lead_) return c;
    const bool harmless = c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f);
    return to_->sputc(harmless ? traits_type::to_char_type(c) : '?');
  }
  int sync() override { return to_->pubsync(); }

  std::ostream& stream_;
  std::streambuf* const to_;
  bool lead_ = false;
};

}  // namespace weft
