// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime for two cards that do nothing: kernels are not run, and what a card has is host memory of zeros. So
// programs that nvcc has made run to their end on any machine, with wrong values.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int something;  // what streams, events, graphs and modules point to
thread_local int current_card = 0;

cudaError_t zeros(void** memory, size_t bytes) {
  *memory = std::calloc(bytes + 1, 1);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) { return reinterpret_cast<void**>(&something); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) { return *count = 2, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return current_card = device, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current_card, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {  // of a Hopper
  return *value = attribute == cudaDevAttrL2CacheSize ? 50 << 20 : 9, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "a null card");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->major = 9;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = *greatest = 0, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) { return *left = *all = size_t{8} << 30, cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void*) {
  std::memset(found, 0, sizeof *found);
  return found->type = cudaMemoryTypeUnregistered, cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) { return zeros(memory, bytes); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return zeros(memory, bytes); }
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return zeros(memory, bytes); }
cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaFreeHost(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(&something), cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return *stream = reinterpret_cast<cudaStream_t>(&something), cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  return *graph = reinterpret_cast<cudaGraph_t>(&something), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  return *executable = reinterpret_cast<cudaGraphExec_t>(&something), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(&something), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the null card"; }
const char* cudaGetErrorName(cudaError_t) { return "an error of the null card"; }
}
