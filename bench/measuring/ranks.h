// SPDX-License-Identifier: Apache-2.0
#pragma once
// One rank of a job that measures. Ranks synchronize before every burst, and the time of the slowest rank counts.
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/measuring/measure.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/factory.h"
#include "weft/collectives/transports/session.h"

namespace weft::bench {

class Ranks {
 public:
  explicit Ranks(Session& session) : Ranks(session, connect(session)) {}

  Communicator& group() { return group_; }
  Transport& transport() { return transport_; }
  Job& job() { return *session_.job(); }
  int rank_on_node() const { return session_.rank_on_node(); }

  // The time per call of the slowest rank, which every rank gets.
  Burst burst(std::function<void()> call, int count) {
    return [this, call = std::move(call), count] {
      group_.barrier();
      const double begin = now();
      for (int i = 0; i < count; ++i) call();
      const Tensor mine = Tensor::from({1}, {(now() - begin) / count}, DType::f64);
      return group_.all_reduce(mine, ReduceOp::maximum).item();
    };
  }
  // The same, with as many calls as make a burst long enough to be timed.
  Burst timed(const std::function<void()>& call) {
    constexpr double shortest_burst = 1e-3;
    int count = 1;
    burst(call, 2)();  // warms up pages, pools and branch predictors
    while (burst(call, count)() * count < shortest_burst) count *= 2;
    return burst(call, count);
  }

  void print(const char* kind, const std::string& what, double ours, double theirs, double value) const {
    if (session_.rank() != 0) return;
    const nlohmann::json line = {{"kind", kind}, {"what", what}, {"ours", ours}, {"theirs", theirs}, {"value", value}};
    std::printf("%s\n", line.dump().c_str());
  }

 private:
  Ranks(Session& session, std::unique_ptr<Transport> transport)
      : session_(session), transport_(*transport), group_(std::move(transport)) {
    if (session_.rank() == 0) std::printf("%s\n", description(transport_).c_str());
  }

  Session& session_;
  Transport& transport_;
  Communicator group_;
};

void weak_scaling(Ranks& ranks);         // P12
void allocations(Ranks& ranks);          // P13
void contrastive_scaling(Ranks& ranks);  // P6-ranks

}  // namespace weft::bench
