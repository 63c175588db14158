// SPDX-License-Identifier: Apache-2.0
// expect_agreement finds the smallest difference between values that should be equal on all ranks, and says where it
// is.
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/agreement.h"

using namespace weft;

namespace {

// Expects an Error on every rank that contains all of these texts.
void expect_difference(const std::vector<NamedTensor>& values, Communicator& comm,
                       std::initializer_list<std::string> said, Site site = Site::here()) {
  for (const std::string& part : said)
    expect_refusal([&] { expect_agreement("step 3", values, comm); },
                   {"step 3: '", "' should be equal on all ranks, but ", part.c_str()}, site);
}

// x, with `other` as one element on one rank.
Tensor but_for(const Tensor& x, int64_t element, double other, bool here) {
  std::vector<double> values = x.values();
  if (here) values[static_cast<size_t>(element)] = other;
  return Tensor::from(x.shape(), values, x.dtype());
}

}  // namespace

TEST_CASE("bit-identical values agree, including NaN, -0, subnormals and empty tensors") {
  on_ranks([](Communicator& comm) {
    const Tensor odd = Tensor::from({4}, {NAN, -0.0, INFINITY, 1e-310}, DType::f64);
    expect_agreement("nothing", {}, comm);
    expect_agreement("values", std::vector<NamedTensor>{{"odd", odd}, {"none", Tensor({0, 3})}, {"one", scalar(1)}},
                     comm);
  });
}

TEST_CASE("a single differing element on one rank is reported with its index, both values and both ranks") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    for (const DType dtype : {DType::u8, DType::f32, DType::f64})
      for (int64_t size = 1; size <= 11; ++size)
        for (int64_t i = 0; i < size; ++i) {
          const int odd = 1 + static_cast<int>(i) % (comm.size() - 1);
          const Tensor x = Tensor::full({size}, 2, dtype);
          expect_difference({{"same", x}, {"w", but_for(x, i, 3, number(comm) == odd)}}, comm,
                            {"'w'", "element (" + text(i) + ") is 2 on rank 0 and 3 on rank " + text(odd)});
        }
  });
}

TEST_CASE("a difference is found in the first of several values, and when rank 0 is the odd one") {
  on_ranks({2, 3}, [](Communicator& comm) {
    const Tensor x = Tensor::full({2, 3}, 2);
    expect_difference({{"v", but_for(x, 4, 7, number(comm) == 0)}, {"w", but_for(x, 0, 1, number(comm) == 1)}}, comm,
                      {"'v'", "element (1, 1) is 7 on rank 0 and 2 on rank 1"});
  });
}

TEST_CASE("swapped elements differ, and so do +0 and -0") {
  on_ranks({2, 5}, [](Communicator& comm) {
    const bool odd = number(comm) == comm.size() - 1;
    const std::string rank = " on rank " + text(comm.size() - 1);
    std::vector<double> numbers(16);
    for (size_t i = 0; i < 16; ++i) numbers[i] = static_cast<double>(i);
    if (odd) std::swap(numbers[4], numbers[12]);
    expect_difference({{"order", Tensor::from({16}, numbers, DType::f64)}}, comm,
                      {"element (4) is 4 on rank 0 and 12" + rank});
    expect_difference({{"sign", Tensor::full({1}, odd ? -0.0 : 0.0)}}, comm, {"is 0 on rank 0 and -0" + rank});
  });
}

TEST_CASE("tensors with the same bits but different types or shapes differ") {
  on_ranks({2, 3}, [](Communicator& comm) {
    const bool odd = number(comm) == 1;
    expect_difference({{"type", Tensor::zeros({2}, odd ? DType::i64 : DType::f64)}}, comm,
                      {"it is f64 (2) on rank 0 and i64 (2) on rank 1"});
    expect_difference({{"shape", Tensor::zeros(odd ? Shape{3, 2} : Shape{2, 3})}}, comm,
                      {"it is f32 (2, 3) on rank 0 and f32 (3, 2) on rank 1"});
    expect_difference({{"size", Tensor::zeros({odd ? 3 : 2})}}, comm,
                      {"it is f32 (2) on rank 0 and f32 (3) on rank 1"});
  });
}

TEST_CASE("a subgroup reports its ranks by their world ranks") {
  on_ranks({5}, [](Communicator& world) {
    const int me = number(world);
    const auto group = world.split(me % 2, -me);  // ranks 4 2 0, and 3 1
    const Tensor x = Tensor::full({3}, 0.5);
    const bool even = me % 2 == 0;
    expect_difference({{"w", but_for(x, 2, 1.0 / 3, me == (even ? 0 : 1))}}, *group,
                      {even ? "element (2) is 0.5 on rank 4 and 0.33333334 on rank 0"
                            : "element (2) is 0.5 on rank 3 and 0.33333334 on rank 1"});
  });
}

TEST_CASE("first_different_line returns the first differing line and the first rank that has another") {
  const auto said = [](std::vector<std::string> texts) { return first_different_line("differ", texts); };
  CHECK(said({}) == std::nullopt);
  CHECK(said({"a\nb\n", "a\nb\n"}) == std::nullopt);
  CHECK(said({"a\nb = 1\nc\n", "a\nb = 1\nc\n", "a\nb = 12\nd\n"}) == "ranks 0 and 2 differ: 'b = 1' and 'b = 12'");
  CHECK(said({"a = \n", "b = \n", ""}) == "ranks 0 and 1 differ: 'a = ' and 'b = '");
}
