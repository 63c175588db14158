// SPDX-License-Identifier: Apache-2.0
#pragma once
// A library that is loaded when it is first needed, and never unloaded: a program without a card starts without it.
#include <string>

namespace weft::cuda {

class Library {
 public:
  // From where the linker would find it, or else from the toolkit that Weft was built with. `product` is what to
  // install, with the oldest version that will do.
  Library(std::string file, std::string product);
  static bool is_found(const std::string& file);

  template <class Function> void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(address_of(name));
  }

 private:
  void* address_of(const char* name) const;

  std::string file_, product_;
  void* loaded_;
};

}  // namespace weft::cuda
