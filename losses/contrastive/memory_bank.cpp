// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/memory_bank.h"

#include <algorithm>

#include "weft/engine/ops/normalize.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"

namespace weft {

MemoryBank::MemoryBank(const std::string& name, int64_t size, int64_t width, const Init& init)
    : keys(name + ".keys", l2_normalize(init.normal(name + ".keys", {size, width}, 1)).value()),
      cursor(name + ".cursor", Tensor::zeros({}, DType::i64)) {
  require(size > 0, "MemoryBank: '", name, "' has room for ", size, " keys");
  register_buffer(keys);
  register_buffer(cursor);
}

// In place, because the bank may be large. A tape that still needs the old keys reports the change.
void MemoryBank::push(const Tensor& own, Communicator& comm, Site caller) try {
  const Site site = LossCall("MemoryBank", caller);
  const int64_t size = keys.value.shape()[0], width = keys.value.shape()[1];
  require(own.shape().rank() == 2 && own.shape()[1] == width, "'", keys.name, "' is ", keys.value.shape(),
          ", keys are ", own.shape());
  const Tensor mine = l2_normalize(precise(own)).value().to(keys.value.dtype());
  const Tensor all = comm.all_gather_v(mine, comm.rows_of(mine.shape()[0], site), site);
  const int64_t total = all.shape()[0];
  int64_t& at = *cursor.value.mutate<int64_t>();
  at += total;
  // Copies from the last key backwards, as many as fit.
  for (int64_t end = total, left = std::min(total, size); left > 0;) {
    const int64_t place = (at - (total - end) - 1) % size + 1, count = std::min(left, place);
    keys.value.slice(place - count, place).copy_from(all.slice(end - count, end));
    end -= count;
    left -= count;
  }
  at %= size;
} catch (Error& error) {
  fail_in("MemoryBank", caller, error);
}

}  // namespace weft
