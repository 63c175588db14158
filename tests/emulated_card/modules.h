// SPDX-License-Identifier: Apache-2.0
#pragma once
// When kernels are loaded. Unless CUDA_MODULE_LOADING is EAGER at the first call of CUDA, a kernel's first launch loads
// it: that waits for everything on its card, and holds the lock of the card's context, which all other calls need.
namespace weft::emulated {

void read_module_loading();                      // from the environment, at the first call
void load_kernel(int card, const void* kernel);  // for a launch
void enter_context(int card);                    // by a call; waits while a kernel is loaded

}  // namespace weft::emulated
