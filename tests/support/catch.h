// SPDX-License-Identifier: Apache-2.0
#pragma once
// Catch2 in either version: Debian 12 has 2, Debian 13 and Ubuntu 24.04 have 3.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

// The tests use version 2's names, in either of its namespaces.
namespace Catch {
namespace Matchers {
inline StringContainsMatcher Contains(const std::string& text) { return ContainsSubstring(text); }
}  // namespace Matchers
using namespace Matchers;
}  // namespace Catch
using Catch::Approx;
#endif
