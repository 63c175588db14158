// SPDX-License-Identifier: Apache-2.0
#pragma once
inline constexpr bool __libc_single_threaded = true;
