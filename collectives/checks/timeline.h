// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a rank was in which call to its groups, and in which part of its program.
//
//   Timeline timeline;
//   Communicator comm(counted(connect(session), traffic, &timeline));   and all groups that are split from it
//   ...
//   timeline.add("data", begin, seconds_now());                         a part of the program
//   const std::vector<Timeline::Events> ranks = gather_timelines(timeline, comm);   on rank 0
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "weft/collectives/communicator.h"

namespace weft {

double seconds_now();  // by a clock that all processes of a machine share

struct Clock {
  std::string machine;  // the same where the clock is the same
  std::function<double()> now;
  static Clock of_this_machine();
};

class Timeline {
 public:
  // Of a program, of a thread beside it, of a tape's ops, or of a call.
  enum class Kind : uint8_t { part, beside, forward, backward, whole, first_half, second_half, send, receive };
  static bool is_call(Kind kind) { return kind >= Kind::whole; }
  // Of a collective's event `group` and `number` are the same on all its ranks, and on no others'; of a message's they
  // are the same on both.
  struct Event {
    double begin = 0, end = 0;  // of what lies between a call's halves nothing is known
    Kind kind = Kind::part;
    uint64_t group = 0;
    int64_t number = 0, bytes = 0;  // bytes of the rank's own input
    Call call;                      // of a part, and of an op, only its name
  };
  using Events = std::vector<Event>;

  // Of a long run only the first events are kept; a last one stands for all later ones.
  explicit Timeline(size_t most = 200'000) : most_(most) {}
  void add(const Event& event);  // from any thread
  void add(const char* part, double begin, double end, Kind kind = Kind::part);
  const Events& events() const { return events_; }  // when no other thread adds

 private:
  const size_t most_;
  std::mutex mutex_;  // of those that add
  Events events_;
};

// Every rank's events in rank order, by the clock of rank 0's machine, on rank 0; nothing on other ranks.
std::vector<Timeline::Events> gather_timelines(const Timeline& mine, Communicator& comm,
                                               const Clock& clock = Clock::of_this_machine(), Site site = Site::here());

}  // namespace weft
