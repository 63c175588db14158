// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process that another one watches, its parent: after a death it can be told which process died first, and how. A
// launcher ends all other processes within a moment, so none of them can tell.

namespace weft {

// Forks. The child starts this program again, with the same words, and is killed if its parent is. The parent passes
// signals on, records in the job's file how the child has ended (Job::record_end), and ends in the same way. To be
// called before this process has any threads.
void continue_watched();

}  // namespace weft
