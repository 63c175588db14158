// SPDX-License-Identifier: Apache-2.0
#pragma once
// What calls and kernels do wrong.
#include <cuda_runtime_api.h>

#include <string>

namespace weft::emulated {

// A call's mistake. cudaGetErrorString says why on this thread, and cudaGetLastError returns the code once.
cudaError_t refuse(cudaError_t code, std::string why);
cudaError_t take_last_error();
cudaError_t refused_on(const Stream* stream);  // if it is not of the current card
const char* text_of(cudaError_t code);

// A kernel's mistake. As on a real card, every later call that can report it does, until the program ends.
void report_fault(std::string what);  // the first one is kept
const char* fault();                  // null without a fault

}  // namespace weft::emulated
