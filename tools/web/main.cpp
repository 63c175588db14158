// SPDX-License-Identifier: Apache-2.0
// Replies to requests, one a line: the page's own computations, natively or in node.
#include <iostream>

#include "tools/web/requests.h"

int main() {
  for (std::string request; std::getline(std::cin, request);) std::cout << weft::web::reply(request) << '\n';
}
