// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/process_ranks.h"

#include <algorithm>
#include <random>

namespace weft {
namespace {

// Numbers of processes repeat on several nodes and in containers.
int64_t mark_of_process() {
  static const int64_t mark = [] {
    std::random_device draw;
    return static_cast<int64_t>(uint64_t{draw()} << 32 | draw());
  }();
  return mark;
}

Tensor number(int64_t value) {
  Tensor one({1}, DType::i64);
  *one.mutate<int64_t>() = value;
  return one;
}

}  // namespace

ProcessRanks::ProcessRanks(Communicator& comm) : comm_(comm) {
  const Tensor marks = comm.all_gather(number(mark_of_process()), Site::here("processes"));
  const int64_t* all = marks.data<int64_t>();
  leader_ = static_cast<int>(std::find(all, all + marks.size(), mark_of_process()) - all);
}

const void* ProcessRanks::address_from_leader(const void* mine) {
  const Tensor all = comm_.all_gather(number(reinterpret_cast<intptr_t>(mine)), Site::here("shared values"));
  return reinterpret_cast<const void*>(static_cast<intptr_t>(all.data<int64_t>()[leader_]));
}

}  // namespace weft
