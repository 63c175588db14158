// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/used_bytes.h"

#include <nvtx3/nvToolsExtMem.h>

namespace weft::cuda {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t weft = nvtxDomainCreateA("weft");
  return weft;
}

}  // namespace

UsedBytes::UsedBytes(const void* block, size_t capacity) : block_(block) {
  const nvtxMemVirtualRangeDesc_t range = {capacity, block};
  nvtxMemHeapDesc_t heap = {};
  heap.extCompatID = NVTX_EXT_COMPATID_MEM;
  heap.structSize = sizeof heap;
  heap.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
  heap.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  heap.typeSpecificDescSize = sizeof range;
  heap.typeSpecificDesc = &range;
  handle_ = nvtxMemHeapRegister(domain(), &heap);
}
UsedBytes::~UsedBytes() { nvtxMemHeapUnregister(domain(), static_cast<nvtxMemHeapHandle_t>(handle_)); }

void UsedBytes::begin(size_t bytes) const {
  const nvtxMemVirtualRangeDesc_t range = {bytes, block_};
  nvtxMemRegionHandle_t region = nullptr;
  nvtxMemRegionsRegisterBatch_t batch = {};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.heap = static_cast<nvtxMemHeapHandle_t>(handle_);
  batch.regionCount = 1;
  batch.regionDescElementSize = sizeof range;
  batch.regionDescElements = &range;
  batch.regionHandleElementsOut = &region;
  nvtxMemRegionsRegister(domain(), &batch);
}

void UsedBytes::end() const {
  nvtxMemRegionRef_t region = {};
  region.pointer = block_;
  nvtxMemRegionsUnregisterBatch_t batch = {};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  batch.refCount = 1;
  batch.refElementSize = sizeof region;
  batch.refElements = &region;
  nvtxMemRegionsUnregister(domain(), &batch);
}

}  // namespace weft::cuda
