// SPDX-License-Identifier: Apache-2.0
#pragma once
// The part of NVTX by which a pool tells tools which bytes of its memory are in use. The emulated card is such a tool.
#include <cstddef>
#include <cstdint>

constexpr uint16_t NVTX_EXT_COMPATID_MEM = 0x0102;
constexpr uint32_t NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR = 1, NVTX_MEM_TYPE_VIRTUAL_ADDRESS = 1,
                   NVTX_MEM_REGION_REF_TYPE_POINTER = 1;

struct nvtxDomainRegistration;
using nvtxDomainHandle_t = nvtxDomainRegistration*;
struct nvtxMemHeap_v1;
using nvtxMemHeapHandle_t = nvtxMemHeap_v1*;
struct nvtxMemRegion_v1;
using nvtxMemRegionHandle_t = nvtxMemRegion_v1*;

struct nvtxMemVirtualRangeDesc_t {
  size_t size;
  const void* ptr;
};
struct nvtxMemHeapDesc_t {
  uint16_t extCompatID, structSize;
  uint32_t reserved0, usage, type;
  size_t typeSpecificDescSize;
  const void* typeSpecificDesc;
};
struct nvtxMemRegionsRegisterBatch_t {
  uint16_t extCompatID, structSize;
  uint32_t regionType;
  nvtxMemHeapHandle_t heap;
  size_t regionCount, regionDescElementSize;
  const void* regionDescElements;
  nvtxMemRegionHandle_t* regionHandleElementsOut;
};
union nvtxMemRegionRef_t {
  const void* pointer;
  nvtxMemRegionHandle_t handle;
};
struct nvtxMemRegionsUnregisterBatch_t {
  uint16_t extCompatID, structSize;
  uint32_t refType;
  size_t refCount, refElementSize;
  const nvtxMemRegionRef_t* refElements;
};

extern "C" {
nvtxDomainHandle_t nvtxDomainCreateA(const char* name);
nvtxMemHeapHandle_t nvtxMemHeapRegister(nvtxDomainHandle_t domain, const nvtxMemHeapDesc_t* heap);
void nvtxMemHeapUnregister(nvtxDomainHandle_t domain, nvtxMemHeapHandle_t heap);
void nvtxMemRegionsRegister(nvtxDomainHandle_t domain, const nvtxMemRegionsRegisterBatch_t* regions);
void nvtxMemRegionsUnregister(nvtxDomainHandle_t domain, const nvtxMemRegionsUnregisterBatch_t* regions);
}
