// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program (LD_PRELOAD), this library makes one of its calls fail:
//
//   DISTURB="fsync 2 kill"     SIGKILL in place of the second call
//   DISTURB="pwrite 3 ENOSPC"  the third call and all after it fail; likewise with EIO
//   DISTURB="flock 1 ENOLCK"   no file can be locked, as on some network disks
//   DISTURB="open 4 EMFILE once"  the fourth call fails, and no other; EINTR always does so once
//   DISTURB="pwrite 1 short"   every call writes a byte less than it is asked to, but at least one
//   DISTURB="fsync 1 700ms"    every call takes that much longer
//   DISTURB="main 1 exit"      the program leaves with 0
//   DISTURB="MPI_Comm_dup 1 stop"  the process is stopped before the first call
//   DISTURB="MPI_Comm_rank 1 USR1"  the process gets SIGUSR1 before the first call
//   DISTURB="MPI_Iallgather 2 error"  the second call has a count of which MPI complains
//   DISTURB="MPI 17 stop"      ... at the 17th call of MPI, whichever it is; a poll counts if it finds something
//   DISTURB="MPI 17 cut"       the network of this node is down from then on
//   DISTURB="MPI 0 count"      nothing happens, but the number of calls is written to standard error
//   DISTURB="new 17 fail"      the 17th allocation of main and its threads fails, and no other
//   DISTURB="clock_gettime 1 boot"  the coarse clock of the machine begins now, as if it had just started
//
// The calls are main, those of MPI that Weft makes, clock_gettime, new, and those to
// files on disks: open, read, pread, pwrite, write, flock, ftruncate, fsync, rename, mkdir and unlink. With DISTURB_IN,
// only to those in that folder; with DISTURB_RANK, only those of this rank of mpiexec.
// When it happens, "disturbed" is written to standard error.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace {

struct Plan {
  std::string call, what, once;
  long number = 0;
};

Plan given_plan() {
  Plan plan;
  const char *given = std::getenv("DISTURB"), *rank = std::getenv("DISTURB_RANK");
  const char* mine = std::getenv("PMI_RANK");
  if (!mine) mine = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank && (!mine || std::string(rank) != mine)) given = nullptr;
  std::istringstream(given ? given : "") >> plan.call >> plan.number >> plan.what >> plan.once;
  return plan;
}

std::atomic<const Plan*> plan{nullptr};  // null before main
std::atomic<long> calls{0};

template <class F> F next(const char* name, F) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

void say() {
  constexpr char words[] = "disturbed\n";
  const ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
  (void)written;  // nobody to report it to
}

// The disturbance of this call, if any.
const char* disturbance(const char* call) {
  const Plan* now = plan;
  if (!now || now->call != call) return nullptr;
  const long number = ++calls;
  const bool continues =
      now->once.empty() && now->what != "fail" && now->what != "USR1" && now->what != "stop" && now->what != "cut";
  if (number < now->number || (number > now->number && !continues)) return nullptr;
  if (number == now->number) say();
  if (now->what == "kill") raise(SIGKILL);
  if (now->what == "stop") raise(SIGSTOP);
  if (now->what == "USR1") raise(SIGUSR1);
  if (now->what == "cut" && std::system("ip link set eth0 down") != 0) _exit(1);
  if (now->what == "exit") _exit(0);
  if (now->what.ends_with("ms")) usleep(static_cast<useconds_t>(std::stoi(now->what)) * 1000);
  return now->what.c_str();
}

const char* disturb_mpi(const char* call) {
  disturbance("MPI");
  return disturbance(call);
}

// Of a file on a disk; pipes, terminals and shared memory are never disturbed.
const char* disturbance(const char* call, std::string_view path) {
  const char* folder = std::getenv("DISTURB_IN");
  const bool on_disk = path.starts_with("/") && !path.starts_with("/dev/");
  return on_disk && (!folder || path.starts_with(folder)) ? disturbance(call) : nullptr;
}
const char* disturbance(const char* call, int file) {
  char link[40], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path);
  return disturbance(call, std::string_view(path, static_cast<size_t>(length < 0 ? 0 : length)));
}

// Whether this call fails; if so, errno is set.
bool fails(const char* what) {
  if (!what) return false;
  const std::string error = what;
  constexpr std::pair<const char*, int> errors[] = {{"EDQUOT", EDQUOT}, {"EINTR", EINTR},   {"EIO", EIO},
                                                    {"EMFILE", EMFILE}, {"ENOLCK", ENOLCK}, {"ENOSPC", ENOSPC}};
  for (const auto& [name, number] : errors)
    if (error == name) errno = number;
  return error[0] == 'E';
}

size_t shortened(const char* what, size_t count) {
  return what && std::string(what) == "short" && count > 1 ? count - 1 : count;
}

void* allocated(size_t bytes, size_t alignment = 0) {
  if (disturbance("new")) return nullptr;
  return alignment
             ? next("aligned_alloc", std::aligned_alloc)(alignment, (bytes + alignment - 1) / alignment * alignment)
             : std::malloc(bytes ? bytes : 1);
}

void* or_throw(void* block) { return block ? block : throw std::bad_alloc(); }

using Main = int(int, char**, char**);
Main* real_main;

int disturbed_main(int count, char** words, char** environment) {
  static const Plan given = given_plan();
  plan = &given;
  disturbance("main");
  const int code = real_main(count, words, environment);
  plan = nullptr;
  if (given.what == "count") dprintf(STDERR_FILENO, "%ld calls\n", calls.load());
  return code;
}

// A handle of MPI, such as a communicator, is an int in MPICH and a pointer in Open MPI, which arrive the same way. So
// does a number, and an argument that is not there is passed on as it is.
using Word = void*;

}  // namespace

extern "C" {

int __libc_start_main(Main* main, int count, char** words, void (*init)(), void (*fini)(), void (*end)(), void* stack) {
  real_main = main;
  return next("__libc_start_main", __libc_start_main)(disturbed_main, count, words, init, fini, end, stack);
}

int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  disturb_mpi("MPI_Init");
  return next("MPI_Init_thread", MPI_Init_thread)(count, words, required, provided);
}

#define WEFT_PASS_ON(call)                                                                   \
  int call(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j) { \
    disturb_mpi(#call);                                                                      \
    return next(#call, call)(a, b, c, d, e, f, g, h, i, j);                                  \
  }
WEFT_PASS_ON(MPI_Abort)
WEFT_PASS_ON(MPI_Allreduce)
WEFT_PASS_ON(MPI_Alltoallv)
WEFT_PASS_ON(MPI_Bcast)
WEFT_PASS_ON(MPI_Comm_dup)
WEFT_PASS_ON(MPI_Comm_free)
WEFT_PASS_ON(MPI_Comm_get_attr)
WEFT_PASS_ON(MPI_Comm_group)
WEFT_PASS_ON(MPI_Comm_rank)
WEFT_PASS_ON(MPI_Comm_size)
WEFT_PASS_ON(MPI_Comm_split)
WEFT_PASS_ON(MPI_Comm_split_type)
WEFT_PASS_ON(MPI_Finalize)
WEFT_PASS_ON(MPI_Get_count)
WEFT_PASS_ON(MPI_Group_free)
WEFT_PASS_ON(MPI_Group_translate_ranks)
WEFT_PASS_ON(MPI_Iallgatherv)
WEFT_PASS_ON(MPI_Iallreduce)
WEFT_PASS_ON(MPI_Ibarrier)
WEFT_PASS_ON(MPI_Imrecv)
WEFT_PASS_ON(MPI_Irecv)
WEFT_PASS_ON(MPI_Isend)
#undef WEFT_PASS_ON

int MPI_Iallgather(Word from, Word sent, Word type, Word to, Word count, Word as, Word comm, Word request) {
  const char* what = disturb_mpi("MPI_Iallgather");
  if (what && std::string_view(what) == "error") count = reinterpret_cast<Word>(-1);
  return next("MPI_Iallgather", MPI_Iallgather)(from, sent, type, to, count, as, comm, request);
}

// A program polls as often as it happens to wait.
int MPI_Test(Word request, int* done, Word status) {
  const int outcome = next("MPI_Test", MPI_Test)(request, done, status);
  if (*done) disturb_mpi("MPI_Test");
  return outcome;
}

int MPI_Testall(int count, Word requests, int* done, Word statuses) {
  const int outcome = next("MPI_Testall", MPI_Testall)(count, requests, done, statuses);
  if (*done) disturb_mpi("MPI_Testall");
  return outcome;
}

int MPI_Improbe(Word from, Word tag, Word comm, int* arrived, Word message, Word status) {
  const int outcome = next("MPI_Improbe", MPI_Improbe)(from, tag, comm, arrived, message, status);
  if (*arrived) disturb_mpi("MPI_Improbe");
  return outcome;
}

// With large files this is pwrite64, which the programs call as well.
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  const char* what = disturbance("pwrite", file);
  if (fails(what)) return -1;
  return next("pwrite", pwrite)(file, bytes, shortened(what, count), offset);
}

ssize_t write(int file, const void* bytes, size_t count) {
  const char* what = disturbance("write", file);
  if (fails(what)) return -1;
  return next("write", write)(file, bytes, shortened(what, count));
}

ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  const char* what = disturbance("pread", file);
  if (fails(what)) return -1;
  return next("pread", pread)(file, bytes, shortened(what, count), offset);
}

ssize_t read(int file, void* bytes, size_t count) {
  const char* what = disturbance("read", file);
  if (fails(what)) return -1;
  return next("read", read)(file, bytes, shortened(what, count));
}

int open(const char* path, int flags, ...) {
  if (fails(disturbance("open", std::string_view(path)))) return -1;
  va_list more;
  va_start(more, flags);
  const auto mode = static_cast<mode_t>(flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0);
  va_end(more);
  return next("open", open)(path, flags, mode);
}

int ftruncate(int file, off_t length) {
  return fails(disturbance("ftruncate", file)) ? -1 : next("ftruncate", ftruncate)(file, length);
}

int mkdir(const char* path, mode_t mode) {
  return fails(disturbance("mkdir", std::string_view(path))) ? -1 : next("mkdir", mkdir)(path, mode);
}

int unlink(const char* path) {
  return fails(disturbance("unlink", std::string_view(path))) ? -1 : next("unlink", unlink)(path);
}

int flock(int file, int how) { return fails(disturbance("flock", file)) ? -1 : next("flock", flock)(file, how); }

int fsync(int file) { return fails(disturbance("fsync", file)) ? -1 : next("fsync", fsync)(file); }

int rename(const char* from, const char* to) {
  return fails(disturbance("rename", std::string_view(from))) ? -1 : next("rename", rename)(from, to);
}

// The clock that deadlines are measured by. A second has passed, since 0 may stand for never.
int clock_gettime(clockid_t clock, timespec* time) {
  const int outcome = next("clock_gettime", clock_gettime)(clock, time);
  if (clock != CLOCK_MONOTONIC_COARSE || !disturbance("clock_gettime")) return outcome;
  static const time_t boot = time->tv_sec - 1;
  time->tv_sec -= boot;
  return outcome;
}

void* aligned_alloc(size_t alignment, size_t bytes) { return allocated(bytes, alignment); }

}  // extern "C"

void* operator new(size_t bytes) { return or_throw(allocated(bytes)); }
void* operator new[](size_t bytes) { return or_throw(allocated(bytes)); }
// Callers of this form have a fallback, such as std::stable_sort.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return or_throw(allocated(bytes, size_t(alignment))); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return or_throw(allocated(bytes, size_t(alignment))); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { std::free(block); }
