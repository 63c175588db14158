#include "collectives/transports/self.h"

#include "collectives/transports/shared_memory.h"

namespace weft {

std::unique_ptr<Transport> connect_self() {
  auto job = Job::create(Memory::of_this_process(size_t{1} << 30), 1, default_deadline());
  job->join(0);
  SharedMemory::lay_out(*job, SharedMemory::Sight::everything);
  return SharedMemory::connect(std::move(job), 0, SharedMemory::Sight::everything);
}

}  // namespace weft
