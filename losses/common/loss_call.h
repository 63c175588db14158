// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every call of a loss or a quantizer begins and ends with. The options are checked, and the first collective
// compares them among ranks before any data move. Every Error names the loss and the line that called it.
//
//   Var nt_xent(..., const NtXentOptions& options, Communicator& comm, Site caller) try {
//     const Site site = LossCall("nt_xent", caller).positive("temperature", options.temperature);
//     ...                                          // with `site` for every collective
//   } catch (Error& error) {
//     fail_in("nt_xent", caller, error);
//   }
#include "weft/losses/common/key_schedule.h"

namespace weft {

class LossCall {
 public:
  LossCall(const char* loss, const Site& caller) : site_(caller.named(loss)) {}

  // Adds an option by name. Error unless the value is finite; `positive` and `not_negative` check the sign, too.
  LossCall& number(const char* option, double value);
  LossCall& positive(const char* option, double value);
  LossCall& not_negative(const char* option, double value);
  LossCall& count(const char* option, int64_t value);
  LossCall& key(const Random& key);
  LossCall& choice(const char* word);  // the chosen alternative, in a word
  LossCall& schedule(const KeySchedule& schedule);

  operator Site() const;

 private:
  void separate();

  const Site site_;
  ShortText options_;
  bool first_ = true;
};

// Error unless the value is positive and finite: "LookupFree: the scale is 0, but must be positive and finite".
void expect_positive(std::string_view whose, const char* option, double value);

// For an exception handler: rethrows an Error with `place`, or the caller and the loss, in front of its message. A
// Fault is rethrown unchanged, since it names its place already.
[[noreturn]] void fail_in(const std::string& place, Error& error);
[[noreturn]] inline void fail_in(const char* loss, const Site& caller, Error& error) {
  fail_in(text(caller) + ": " + loss, error);
}

}  // namespace weft
