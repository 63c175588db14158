// SPDX-License-Identifier: Apache-2.0
// One rank of the measurements P10 to P13; collectives.cpp starts it under mpiexec. The compared variants alternate in
// this one job, and rank 0 prints a JSON line per number.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>

#include "bench/measuring/ranks.h"

namespace weft::bench {
namespace {

std::string size_text(size_t bytes) {
  const char* units[] = {" B", " KB", " MB"};
  int unit = 0;
  for (; bytes >= 1024; ++unit) bytes /= 1024;
  return std::to_string(bytes) + units[unit];
}

void raw_all_reduce(const void* x, Tensor& y) {
  MPI_Allreduce(x, y.mutate(), static_cast<int>(y.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// A tensor in memory that all ranks share.
Tensor in_common(Ranks& ranks, const Shape& shape) {
  return Tensor(ranks.group().allocate_common(static_cast<size_t>(shape.size()) * sizeof(float)), 0, shape, DType::f32);
}

Tensor in_arena(Ranks& ranks, const Shape& shape, float value) {
  const auto bytes = static_cast<size_t>(shape.size()) * sizeof(float);
  Tensor x(ranks.transport().allocate_shown(bytes), 0, shape, DType::f32);
  std::fill_n(x.mutate<float>(), x.size(), value);
  return x;
}

// Values that are reduced in place are zero, so that repeated sums do not overflow.
void sizes(Ranks& ranks, size_t bytes) {
  Communicator& group = ranks.group();
  const Shape shape{static_cast<int64_t>(bytes / sizeof(float))};
  const Tensor x = Tensor::full(shape, 1), shown_x = in_arena(ranks, shape, 1);
  Tensor y = Tensor::zeros(shape), z = Tensor::zeros(shape);
  Tensor shown_y = in_arena(ranks, shape, 0), shown_z = in_arena(ranks, shape, 0);
  Tensor common = in_common(ranks, shape);
  enum { raw, ours, arena, raw_in_place, ours_in_place, arena_in_place, arena_in_common };
  const Rounds rounds(
      {ranks.timed([&] { raw_all_reduce(x.data(), y); }), ranks.timed([&] { group.all_reduce(x, y); }),
       ranks.timed([&] { group.all_reduce(shown_x, shown_y); }), ranks.timed([&] { raw_all_reduce(MPI_IN_PLACE, z); }),
       ranks.timed([&] { group.all_reduce(z, z); }), ranks.timed([&] { group.all_reduce(shown_z, shown_z); }),
       ranks.timed([&] { group.all_reduce(shown_x, common); })},
      bytes > (size_t{8} << 20) ? 3 : 5, bytes > (size_t{8} << 20) ? 1 : 2);
  const auto print = [&](const char* kind, const std::string& what, int mine, int theirs) {
    const auto us = static_cast<size_t>(mine), them = static_cast<size_t>(theirs);
    ranks.print(kind, size_text(bytes) + what, rounds.median(us), rounds.median(them),
                middle(rounds.ratio(them, us)).median);
  };
  print("private", "", ours, raw);
  print("private", ", in place", ours_in_place, raw_in_place);
  if (bytes < size_t{1} << 20) return;
  print("arena", " in the arena", arena_in_common, raw);
  print("shown", " in the arena, a result for each rank", arena, raw);
  print("shown", " in the arena, in place", arena_in_place, raw_in_place);
}

// The cheapest way for two ranks to add a number: each writes a cache line in shared memory and waits for the other's.
class Handshake {
 public:
  explicit Handshake(Ranks& ranks) : own_(in_arena(ranks, {size / 4}, 0)) {
    const auto keep = [&](const Transport::Part& part) {
      if (part.first == 0) peers_.assign(part.peers.begin(), part.peers.end());
    };
    ranks.transport().expose(describe(Verb::all_gather, own_, Site::here()), {own_.data<std::byte>(), size}, size,
                             keep);
    ranks.group().barrier();
  }
  void add_up(const float& x, float& sum) {
    const auto line = [&](const void* of) {  // alternates between two lines
      return reinterpret_cast<Line*>(const_cast<char*>(static_cast<const char*>(of)) + step_ % 2 * 64);
    };
    ++step_;
    Line* mine = line(own_.data());
    mine->value = x;
    mine->filled.store(step_, std::memory_order_release);
    float total = 0;
    for (const std::byte* peer : peers_) {
      while (line(peer)->filled.load(std::memory_order_acquire) < step_) {
      }
      total += line(peer)->value;
    }
    sum = total;
  }

 private:
  static constexpr size_t size = size_t{64} << 10;  // so large that ranks read it in place
  struct Line {
    std::atomic<uint64_t> filled;
    float value;
  };
  Tensor own_;
  std::vector<const std::byte*> peers_;
  uint64_t step_ = 0;
};

// The cost of describing, comparing and logging a call: measured alone, and bounded from above by the time that a whole
// collective takes beyond a bare exchange of the same values.
void overhead(Ranks& ranks) {
  Handshake handshake(ranks);
  const Tensor x = Tensor::full({1}, 1);
  Tensor y = Tensor::like(x);
  volatile uint64_t sink = 0;
  const Rounds rounds({ranks.timed([&] {
                         const Call call = describe(Verb::all_reduce, x, Site::here("gradient"));
                         sink = sink + call.fingerprint();
                         ranks.job().begin(ranks.rank_on_node(), call, 0, 2);
                         ranks.job().end(ranks.rank_on_node());
                       }),
                       ranks.timed([&] { ranks.group().all_reduce(x, y); }),
                       ranks.timed([&] { handshake.add_up(*x.data<float>(), *y.mutate<float>()); })});
  const double check = rounds.median(0), whole = rounds.median(1), bare = rounds.median(2);
  ranks.print("cost", "ns to describe, check and log a call", check, 0, check * 1e9);
  ranks.print("shown", "ns per call above a bare handshake", whole, bare, (whole - bare) * 1e9);
}

void against_mpi(Ranks& ranks) {
  for (size_t bytes = 4; bytes <= size_t{64} << 20; bytes *= 4) sizes(ranks, bytes);
  overhead(ranks);
}

// Of few bytes the time is that of a message, and both of ours and of MPI's own are log2(n) of them in a row.
void latency(Ranks& ranks) {
  const Tensor x = Tensor::full({2}, 1);
  Tensor y = Tensor::zeros(x.shape());
  const auto polled = [&] {
    MPI_Request request;
    MPI_Iallreduce(x.data(), y.mutate(), static_cast<int>(y.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  };
  const Rounds rounds({ranks.timed([&] { raw_all_reduce(x.data(), y); }), ranks.timed(polled),
                       ranks.timed([&] { ranks.group().all_reduce(x, y); })});
  const auto print = [&](const char* kind, const char* what, size_t theirs) {
    ranks.print(kind, what, rounds.median(2), rounds.median(theirs), middle(rounds.ratio(2, theirs)).median);
  };
  print("latency", "8 B, against MPI_Allreduce", 0);
  print("shown", "8 B, against MPI_Iallreduce and MPI_Test", 1);
}

constexpr double work_seconds = 0.5e-3;

// Computes for a fixed CPU time, which does not pass while another rank has the core.
void work() {
  const auto spent = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  volatile double value = 1;
  for (const double begin = spent(); spent() - begin < work_seconds;)
    for (int i = 0; i < 500; ++i) value = value * 1.0000001;
}

void crowd(Ranks& ranks) {
  const Tensor x = Tensor::full({size_t{16} << 10}, 1);
  Tensor y = Tensor::zeros(x.shape());
  const auto raw = [&] { work(), raw_all_reduce(x.data(), y); };
  const auto ours = [&] { work(), ranks.group().all_reduce(x, y); };
  ours();
  const Rounds rounds({ranks.burst(raw, 2), ranks.burst(ours, 20)}, 3, 1);
  const int n = ranks.group().size();
  const double ideal = work_seconds * n / 2;
  ranks.print("crowd", std::to_string(n) + " ranks", rounds.median(1), rounds.median(0),
              middle(rounds.ratio(0, 1)).median);
  ranks.print("shown", std::to_string(n) + " ranks, against the work alone", rounds.median(1), ideal,
              rounds.median(1) / ideal);
}

void use_two_cores() {
  cpu_set_t allowed, two;
  CPU_ZERO(&two);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &two);
  sched_setaffinity(0, sizeof two, &two);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft::bench;
  const std::map<std::string, void (*)(Ranks&)> goals = {{"P6", contrastive_scaling}, {"P10", against_mpi},
                                                         {"P10-messages", latency},   {"P11", crowd},
                                                         {"P12", weak_scaling},       {"P13", allocations}};
  const std::string goal = argc > 1 ? argv[1] : "P10";
  if (goal == "P11") use_two_cores();
  weft::SessionOptions options;
  if (goal == "P10-messages") {
    options.transport = "mpi";
    setenv("UCX_TLS", "tcp,self", 0);  // as between nodes
    setenv("OMPI_MCA_btl", "tcp,self", 0);
  }
  const auto body = [&](weft::Session& session) {
    Ranks ranks(session);
    goals.at(goal)(ranks);
    return 0;
  };
  return weft::run_session(argc, argv, body, options);
}
