// SPDX-License-Identifier: Apache-2.0
// A rank fails on its card after the ranks have agreed on a call: what the other ranks do.
#include <chrono>
#include <functional>
#include <thread>

#include "tests/support/on_cards.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/forwarding_transport.h"

using namespace weft;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

// Even `soon` is longer than ranks that share few cores take for a call.
constexpr std::chrono::milliseconds soon = 2s, late = 60s;

// Runs a function after every collective of the hosts.
class Disturbed final : public ForwardingTransport {
 public:
  using Disturb = std::function<void(const Call&)>;
  Disturbed(std::unique_ptr<Transport> inner, Disturb disturb)
      : ForwardingTransport(std::move(inner)), disturb_(std::move(disturb)) {}
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    ForwardingTransport::exchange(call, mine, longest, ranges, read);
    disturb_(call);
  }
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override {
    auto started = ForwardingTransport::start(call, std::move(mine), longest, ranges);
    disturb_(call);
    return started;
  }

 private:
  const Disturb disturb_;
};

// How each rank's program ended, exit code and text, when the last rank's host is disturbed. Empty if there are too few
// cards.
std::vector<std::string> ends(const std::function<void(Communicator&)>& program, const Disturbed::Disturb& disturb,
                              std::chrono::milliseconds deadline = soon) {
  std::vector<std::string> texts(usable_cards() < 2 ? 0 : static_cast<size_t>(usable_cards()), "well");
  const auto start = std::chrono::steady_clock::now();
  try {
    on_cards_of(2, [&](std::unique_ptr<Transport> group) {
      const int rank = group->rank();
      if (rank == group->size() - 1) group = std::make_unique<Disturbed>(std::move(group), disturb);
      try {
        Communicator comm(connect_nccl(std::move(group), deadline));
        program(comm);
      } catch (const Fault& fault) {
        texts[static_cast<size_t>(rank)] = text(fault.exit_code) + " " + fault.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  CHECK(std::chrono::steady_clock::now() - start < 20s);
  return texts;
}

// When the ranks have agreed on the verb this many times.
Disturbed::Disturb at_call(Verb verb, int number, std::function<void()> what) {
  return [=, count = 0](const Call& call) mutable {
    if (call.verb == verb && ++count == number) what();
  };
}
void stop_fan() { fail({"a fan has stopped"}); }

void reduce(Communicator& comm, int times) {
  const Tensor x = Tensor::full({1000}, 1, DType::f32, Device::cuda);
  for (int i = 0; i < times; ++i) comm.all_reduce(x).values();
}

}  // namespace

TEST_CASE("a rank that exits while its peers' cards wait for it ends the job and is named") {
  const auto texts = ends([](Communicator& comm) { reduce(comm, 5); }, at_call(Verb::all_reduce, 3, stop_fan));
  for (size_t r = 0; r + 1 < texts.size(); ++r)
    CHECK_THAT(texts[r], Contains("70 rank " + std::to_string(texts.size() - 1) + " failed first: a fan has stopped"));
}

TEST_CASE("a rank that exits before its card connects delays the others at most until the deadline") {
  const auto texts = ends([](Communicator& comm) { reduce(comm, 1); }, at_call(Verb::all_reduce, 1, stop_fan));
  for (size_t r = 0; r + 1 < texts.size(); ++r)
    CHECK_THAT(texts[r], Contains("86 deadline: NCCL has waited 2000 ms for its peers in all_reduce"));
}

TEST_CASE("failing ranks exit at once, even while their cards wait for peers") {
  const auto program = [](Communicator& comm) {
    reduce(comm, 1);
    const Pending gathered = comm.start(AllGather{}, Tensor::full({1000}, 1, DType::f32, Device::cuda));
    comm.barrier();
  };
  const int second = 2;  // the first all_gather asks which cards there are
  const auto texts = ends(program, at_call(Verb::all_gather, second, stop_fan), late);
  for (size_t r = 0; r + 1 < texts.size(); ++r) CHECK_THAT(texts[r], Contains("failed first: a fan has stopped"));
}

TEST_CASE("a rank that comes after the deadline fails too, and the errors of the others name the call") {
  const auto texts = ends([](Communicator& comm) { reduce(comm, 5); },
                          at_call(Verb::all_reduce, 3, [] { std::this_thread::sleep_for(5s); }));
  for (size_t r = 0; r + 1 < texts.size(); ++r)
    CHECK_THAT(texts[r], Contains("deadline: the card has waited 2000 ms for the cards of its peers in all_reduce"));
  if (!texts.empty()) CHECK(texts.back() != "well");
}

TEST_CASE("differing calls are reported before any work goes to the cards") {
  const auto program = [](Communicator& comm) {
    reduce(comm, 1);
    const Tensor x = Tensor::full({1000}, 1, DType::f32, Device::cuda);
    comm.rank().value == 0 ? comm.all_gather(x) : comm.all_reduce(x);
  };
  for (const std::string& text : ends(
           program, [](const Call&) {}, late))
    CHECK_THAT(text, Contains("87 ") && Contains("collective mismatch") && Contains("all_gather"));
}
