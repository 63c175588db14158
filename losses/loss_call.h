#pragma once
// How a loss or a quantizer is called. Its options are checked, and compared among ranks in its first collective,
// before any data move; and every Error in it names the loss and the line that called it.
//
//   Var nt_xent(..., const NtXentOptions& options, Communicator& comm, Site caller) try {
//     const Site site = LossCall("nt_xent", caller).positive("temperature", options.temperature);
//     ...                                          // with `site` for every collective
//   } catch (Error& error) {
//     fail_in("nt_xent", caller, error);
//   }
#include "losses/exchange.h"

namespace weft {

class LossCall {
 public:
  LossCall(const char* loss, const Site& caller) : site_(caller.named(loss)) {}

  // Options by name. Error unless they are finite, and more than zero, or not less.
  LossCall& number(const char* option, double value);
  LossCall& positive(const char* option, double value);
  LossCall& not_negative(const char* option, double value);
  LossCall& count(const char* option, int64_t value);
  LossCall& key(const Random& key);
  LossCall& choice(const char* said);  // which of several was chosen, in a word
  LossCall& exchange(const Exchange& exchange);

  operator Site() const;

 private:
  void separate();

  const Site site_;
  ShortText options_;
  bool first_ = true;
};

// Error unless it is: "LookupFree: the scale is 0, but must be positive and finite".
void expect_positive(std::string_view whose, const char* option, double value);

// From a handler: passes an Error on with this in front, or with the caller and the loss. A Fault knows its place.
[[noreturn]] void fail_in(const std::string& place, Error& error);
[[noreturn]] inline void fail_in(const char* loss, const Site& caller, Error& error) {
  fail_in(text(caller) + ": " + loss, error);
}

}  // namespace weft
