// SPDX-License-Identifier: Apache-2.0
#pragma once
// The null card: with WEFT_NULL_CARD=FILE in the environment, cards do nothing, their memory reads as zeros, and FILE
// gets the numbers of what the program has asked of them, as JSON, when it ends.
#include <string>

namespace weft::emulated {

bool null_card();

// A wait lets a stream run dry: nothing is enqueued behind what the host has waited for.
enum class Asked { launch, product, graph, wait, upload, download, device_copy, allocation };
void count(Asked what);
void count_launch(const std::string& kernel);

}  // namespace weft::emulated
