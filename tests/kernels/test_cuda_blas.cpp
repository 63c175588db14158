// SPDX-License-Identifier: Apache-2.0
// cuBLAS is loaded only by programs that need it. These tests need no card.
#include <array>
#include <cstdio>
#include <memory>

#include "tests/support/catch.h"
#include "weft/engine/kernels/cuda/blas.h"
#include "weft/engine/kernels/cuda/blas_lt.h"
#include "weft/engine/tensor/error.h"

using namespace weft;

namespace {

// The libraries with which this program starts, as listed by the loader.
std::string libraries_at_start() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> list(
      popen("LD_TRACE_LOADED_OBJECTS=1 exec \"$(readlink /proc/$PPID/exe)\"", "r"), pclose);
  require(list != nullptr, "the list of libraries: no process can be started");
  std::string lines;
  for (std::array<char, 4096> part; std::fgets(part.data(), part.size(), list.get());) lines += part.data();
  return lines;
}

}  // namespace

TEST_CASE("a program starts without loading cuBLAS") {
  const std::string libraries = libraries_at_start();
  CHECK_THAT(libraries, Catch::Contains("libc.so"));
  CHECK_THAT(libraries, !Catch::Contains("libcublas"));
}

TEST_CASE("cuBLAS has every function that Weft calls, and its errors are reported in its words") {
  CHECK(cuda::cublas().set_stream(nullptr, nullptr) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK_THROWS_WITH(cuda::check(CUBLAS_STATUS_ALLOC_FAILED, "cublasCreate"),
                    Catch::Contains("cuda: cublasCreate failed: ") && Catch::Contains("allocation"));
}

TEST_CASE("cublasLt comes with cuBLAS, and has every function that Weft calls") {
  CHECK_NOTHROW(cuda::cublas_lt());
  CHECK_THROWS_WITH(cuda::CublasLt("libc.so.6"), Catch::Contains("libc.so.6 has no cublasLtMatmulDescCreate"));
}

TEST_CASE("a missing or wrong cuBLAS library is an error that names it and says what to do") {
  using Catch::Contains;
  CHECK_THROWS_WITH(cuda::Cublas("libcublas.so.none"),
                    Contains("cuda: libcublas.so.none cannot be loaded: ") && Contains("No such file") &&
                        Contains("install cuBLAS 12 or later, or name the folder that holds it in LD_LIBRARY_PATH"));
  CHECK_THROWS_WITH(cuda::Cublas("libc.so.6"), Contains("cuda: libc.so.6 has no cublasCreate"));
}
