// SPDX-License-Identifier: Apache-2.0
#pragma once
// Prints a tape: each node with its op and inputs, its placement, its value and its cotangent, on this rank or on all
// ranks of a group side by side, in at most 100 columns.
//
//   Tape tape;
//   TapeLog log(tape);  // notes values and cotangents; without it there are ops, placements and shapes
//   ...
//   tape.backward(share, gradients);
//   print_tapes(tape, comm);  // on every rank; rank 0 prints
//
// print(tape) prints the tape of this rank, also from a debugger (docs/debugging.md).
#include "weft/collectives/checks/tape_log.h"

namespace weft {

std::string text(const Tape& tape);
std::string text(const Tape& tape, Communicator& comm);  // equal on all ranks, which all call it
void print(const Tape& tape);
void print_tapes(const Tape& tape, Communicator& comm);

}  // namespace weft
