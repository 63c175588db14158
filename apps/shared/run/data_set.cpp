// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/data_set.h"

#include <cstdio>
#include <set>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/transport.h"

namespace weft {
namespace {

std::string outline(const std::string& name, const Tensor& x) {
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016lx", checksum(x));
  return name + " " + text(x.shape()) + ", checksum " + digits + "\n";
}

std::string outline(const std::string& name, const LabelledImages& data) {
  return outline(name + " images", data.images) + outline(name + " labels", data.labels);
}

}  // namespace

Pictures load_data(const std::filesystem::path& folder, Communicator& comm) {
  Pictures data = load_fashion_mnist(folder);
  const Site site = Site::here("data");
  const auto outlines = all_texts(outline("training", data.train) + outline("test", data.test), comm, site);
  const auto difference = first_different_line("have read different data", outlines);
  if (!difference) return data;
  const auto folders = all_texts(data.folder.string(), comm, site);
  std::string from;
  for (const std::string& each : std::set(folders.begin(), folders.end())) from += (from.empty() ? "" : " and ") + each;
  throw Fault(exit_codes::configuration_differs, *difference + ", from " + from);
}

}  // namespace weft
