// SPDX-License-Identifier: Apache-2.0
// What the page calls. The reply is asked for apart, since a call in which fibers run returns nothing.
#include "tools/web/requests.h"

namespace {
std::string& last_reply() {
  static std::string reply;
  return reply;
}
}  // namespace

extern "C" {
void weft_ask(const char* request) { last_reply() = weft::web::reply(request); }
const char* weft_reply() { return last_reply().c_str(); }
}
