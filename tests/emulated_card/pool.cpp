// SPDX-License-Identifier: Apache-2.0
// The part of NVTX by which a pool says which bytes of its blocks are in use.
#include <nvtx3/nvToolsExtMem.h>

#include "tests/emulated_card/memory.h"

using namespace weft::emulated;

nvtxDomainHandle_t nvtxDomainCreateA(const char*) { return nullptr; }

nvtxMemHeapHandle_t nvtxMemHeapRegister(nvtxDomainHandle_t, const nvtxMemHeapDesc_t* heap) {
  divide(static_cast<const nvtxMemVirtualRangeDesc_t*>(heap->typeSpecificDesc)->ptr);
  return nullptr;
}
void nvtxMemHeapUnregister(nvtxDomainHandle_t, nvtxMemHeapHandle_t) {}  // its memory is freed, too

void nvtxMemRegionsRegister(nvtxDomainHandle_t, const nvtxMemRegionsRegisterBatch_t* regions) {
  const auto* const all = static_cast<const nvtxMemVirtualRangeDesc_t*>(regions->regionDescElements);
  for (size_t i = 0; i < regions->regionCount; ++i) begin_use(all[i].ptr, all[i].size);
}
void nvtxMemRegionsUnregister(nvtxDomainHandle_t, const nvtxMemRegionsUnregisterBatch_t* regions) {
  for (size_t i = 0; i < regions->refCount; ++i) end_use(regions->refElements[i].pointer);
}
