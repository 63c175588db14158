// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

Quantized Quantizer::operator()(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) try {
  return part(*this, x, pass, comm, mask, caller);
} catch (Error& error) {
  fail_in(text(caller), error);
}
Var Quantizer::decode(const Var& indices, Site caller) try {
  return decoded_part(*this, indices);
} catch (Error& error) {
  fail_in(text(caller), error);
}
void Quantizer::add_up(Communicator& comm, Site caller) try { add_up_part(*this, comm, caller); } catch (Error& error) {
  fail_in(text(caller), error);
}
void Quantizer::update(Communicator& comm, const Random& key, Site caller) try {
  update_part(*this, comm, key, caller);
} catch (Error& error) {
  fail_in(text(caller), error);
}

Quantized Quantizer::part(Quantizer& q, const Var& x, const Pass& pass, Communicator& comm, const Var& mask,
                          Site caller) try {
  return q.apply(x, pass, comm, mask, caller);
} catch (Error& error) {
  fail_in(q.kind_, error);
}
Var Quantizer::decoded_part(Quantizer& q, const Var& indices) try { return q.decoded(indices); } catch (Error& error) {
  fail_in(q.kind_, error);
}
void Quantizer::add_up_part(Quantizer& q, Communicator& comm, Site caller) try {
  q.count(comm, caller);
} catch (Error& error) {
  fail_in(q.kind_, error);
}
void Quantizer::update_part(Quantizer& q, Communicator& comm, const Random& key, Site caller) try {
  q.learn(comm, key, caller);
} catch (Error& error) {
  fail_in(q.kind_, error);
}

}  // namespace weft
