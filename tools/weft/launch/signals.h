// SPDX-License-Identifier: Apache-2.0
#pragma once
// The signals that ask a supervisor for something. They wait until they are taken, so nothing is interrupted.
#include <csignal>

#include "weft/data/files/descriptor.h"

namespace weft::launch {

class Signals {
 public:
  Signals();                                   // to be made before any thread is started
  int file() const { return file_.number(); }  // readable if a signal waits
  int take();                                  // its number; 0 if none waits
  void restore_in_child() const;               // as they were before, for a program to be started

 private:
  sigset_t before_;
  Descriptor file_;
};

// What has been asked for until now.
struct Asked {
  int stop = 0;   // SIGINT, SIGTERM or SIGHUP
  int times = 0;  // how often
  int save = 0;   // SIGUSR1: save and end, to be started again. SIGUSR2: save and go on

  void add(int signal);
  bool nothing() const { return stop == 0 && save == 0; }
};

}  // namespace weft::launch
