// SPDX-License-Identifier: Apache-2.0
#pragma once
// A CUDA graph of a step. While it captures, its context takes memory from it, and gives it what the host uploads.
#include "weft/engine/kernels/cuda/context.h"
#include "weft/engine/kernels/step_graph.h"

namespace weft::cuda {

// A graph repeats what a card does, and nothing that the host decides.
template <class... What> [[noreturn]] void fail_in_graph(const What&... forbidden) {
  throw NotRepeatable((std::string("cuda: a step in a graph cannot ") + ... + text(forbidden)));
}

// Values of the host, in memory that a graph keeps on the card.
struct KeptValues {
  StorageHandle device;
  std::vector<char> host = {};

  const char* add(const char* values, size_t bytes);  // where they will be on the card
  void upload(Context& context) const;
};

class Graph final : public StepGraph {
 public:
  Graph();
  ~Graph() override;
  void run(const std::function<void()>& step, const std::function<void()>& renew) override;

  // For the context and the verbs, while it captures.
  Block* take(int size_class);  // one of its own that is free, or null
  void adopt(Block& block);     // nobody else gets it as long as the graph lives
  Block*& free_list(int size_class) { return free_[size_class]; }
  void count_freed(const Block& block);
  void upload(void* to, const char* from, size_t bytes);
  // A table of an update. If the step is renewed, `renew` changes the numbers in the one that was captured; it returns
  // false if these are for another update. Returns where the table is on the card.
  const char* keep(const char* table, size_t bytes, const std::function<bool(char* captured)>& renew);

 private:
  struct Kept {
    size_t begin, bytes;
  };
  void record(const std::function<void()>& step);
  void renew(const std::function<void()>& numbers);
  void forget();

  Context& context_;
  KeptValues constants_, tables_;
  std::vector<Kept> kept_;  // tables, in the order of the step
  size_t renewed_ = 0;      // tables
  bool renewing_ = false;
  int recordings_ = 0;
  size_t freed_ = 0;  // bytes from before the capture
  std::vector<Block*> blocks_;
  Block* free_[SizeClass::count] = {};
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace weft::cuda
