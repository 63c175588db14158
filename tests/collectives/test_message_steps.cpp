// SPDX-License-Identifier: Apache-2.0
// The lists of steps of all ranks, carried out together: every message moves at some time at which it may, drawn by a
// seed, so a piece that is overwritten too early, or read too late, shows.
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/catch.h"
#include "weft/collectives/transports/message_steps.h"

using namespace weft;

namespace {

using Bytes = std::vector<std::byte>;

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(engine_); }
  bool coin() { return below(2) == 0; }
  Bytes floats(size_t bytes) {
    Bytes drawn(bytes);
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
      const float value = std::uniform_real_distribution<float>(-1, 1)(engine_);
      std::memcpy(&drawn[i], &value, 4);
    }
    return drawn;
  }

 private:
  std::mt19937_64 engine_;
};

struct Rank {
  MessageSteps list;
  Bytes mine, result, board, read;  // `read`: what a caller reads, of one rank behind the other
  bool in_place = false;            // the result takes the place of what the rank exposes
  size_t begun = 0, done = 0;
  std::vector<size_t> awaited;  // messages of each step

  std::byte* at(const Piece& piece) {
    Bytes* const memories[] = {&mine, in_place ? &mine : &result, &board};
    Bytes& memory = *memories[static_cast<size_t>(piece.where)];
    REQUIRE(piece.bytes.last <= memory.size());
    return memory.data() + piece.bytes.first;
  }
};

class Network {
 public:
  Network(std::vector<Rank>& ranks, Draw& draw) : ranks_(ranks), draw_(draw) {
    for (Rank& rank : ranks_) {
      rank.board.resize(rank.list.board);
      rank.awaited.resize(rank.list.steps.size());
      begin(rank);
    }
  }

  void run() {
    for (size_t idle = 0; idle < 1000 * ranks_.size(); ++idle)
      if (draw_.coin() ? moves() : goes_on()) idle = 0;
    for (const Rank& rank : ranks_) REQUIRE(rank.done == rank.list.steps.size());
    for (const auto& [channel, mail] : mail_) REQUIRE((mail.sent.empty() && mail.expected.empty()));
  }

 private:
  struct Channel {  // between two ranks; what MPI gathers does not overtake it, nor is it overtaken by it
    size_t from, to;
    bool gathers;
    auto operator<=>(const Channel&) const = default;
  };
  struct End {
    size_t step;
    Piece piece;
  };
  struct Mail {
    std::deque<End> sent, expected;
  };

  size_t number(const Rank& rank) const { return static_cast<size_t>(&rank - ranks_.data()); }

  void begin(Rank& rank) {
    for (; rank.begun < rank.list.steps.size() && rank.list.steps[rank.begun].after <= rank.done; ++rank.begun) {
      const MessageStep& step = rank.list.steps[rank.begun];
      rank.awaited[rank.begun] = step.sends.size() + step.receives.size();
      for (const auto& [peer, piece] : step.sends)
        mail_[{number(rank), static_cast<size_t>(peer), step.by_mpi}].sent.push_back({rank.begun, piece});
      for (const auto& [peer, piece] : step.receives)
        mail_[{static_cast<size_t>(peer), number(rank), step.by_mpi}].expected.push_back({rank.begun, piece});
    }
  }

  // Delivers a message.
  bool moves() {
    if (mail_.empty()) return false;
    auto& [channel, mail] = *std::next(mail_.begin(), static_cast<std::ptrdiff_t>(draw_.below(mail_.size())));
    if (mail.sent.empty() || mail.expected.empty()) return false;
    Rank &from = ranks_[channel.from], &to = ranks_[channel.to];
    const End out = mail.sent.front(), in = mail.expected.front();
    REQUIRE(out.piece.bytes.size() == in.piece.bytes.size());
    std::memmove(to.at(in.piece), from.at(out.piece), in.piece.bytes.size());
    --from.awaited[out.step], --to.awaited[in.step];
    mail.sent.pop_front(), mail.expected.pop_front();
    return true;
  }

  // Does a step.
  bool goes_on() {
    Rank& rank = ranks_[draw_.below(ranks_.size())];
    if (rank.done == rank.list.steps.size() || rank.awaited[rank.done] > 0) return false;
    const MessageStep& step = rank.list.steps[rank.done];
    std::vector<const std::byte*> terms;
    for (const Piece& piece : step.terms) terms.push_back(rank.at(piece));
    if (step.reading)
      for (size_t r = 0; r < terms.size(); ++r) {
        const size_t bytes = std::min(step.terms[r].bytes.size(), step.reading->last - step.reading->first);
        rank.read.insert(rank.read.end(), terms[r], terms[r] + bytes);
      }
    for (const auto& [fold, to] : step.folds) fold.write({0, to.bytes.size(), terms}, rank.at(to));
    for (const auto& [from, to] : step.copies) std::memmove(rank.at(to), rank.at(from), from.bytes.size());
    ++rank.done;
    begin(rank);
    return true;
  }

  std::vector<Rank>& ranks_;
  Draw& draw_;
  std::map<Channel, Mail> mail_;
};

std::vector<const std::byte*> addresses(const std::vector<Bytes>& of) {
  std::vector<const std::byte*> all;
  for (const Bytes& each : of) all.push_back(each.data());
  return all;
}

std::vector<int> all_of(int ranks) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

constexpr int numbers_of_ranks[] = {2, 3, 4, 5, 8, 13, 16};
constexpr ReduceOp operations[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::maximum};

}  // namespace

TEST_CASE("sums in slices have all their terms in order, for any readers and in any number of parts") {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int n : numbers_of_ranks) {
      Draw draw(seed * 100 + static_cast<uint64_t>(n));
      const bool to_all = draw.coin(), by_mpi = to_all && draw.coin(), in_place = draw.coin();
      const size_t bytes = 4 * draw.below(3000), part = 64 * (1 + draw.below(6));
      std::vector<char> reads(static_cast<size_t>(n * n), true);
      for (char& each : reads) each = to_all || draw.below(3) > 0;
      const Readers readers = to_all && draw.coin()
                                  ? Readers(n)
                                  : Readers(n, [&](int to, int from) { return reads[size_t(to * n + from)]; });
      const Fold fold{{}, operations[draw.below(3)], DType::f32, Device::cpu, true};
      INFO("seed " << seed << ", " << n << " ranks, " << bytes << " bytes in parts of " << part);
      std::vector<Rank> ranks(static_cast<size_t>(n));
      std::vector<Bytes> terms;
      for (int r = 0; r < n; ++r) {
        Rank& rank = ranks[static_cast<size_t>(r)];
        terms.push_back(rank.mine = draw.floats(bytes));
        rank.result.resize(bytes), rank.in_place = in_place;
        rank.list = sum_steps({r, n, part}, bytes, readers, fold, by_mpi);
      }
      Network(ranks, draw).run();
      for (int r = 0; r < n; ++r) {
        const Rank& rank = ranks[static_cast<size_t>(r)];
        std::vector<int> sources;
        for (int source = 0; source < n; ++source)
          if (reads[size_t(r * n + source)]) sources.push_back(source);
        if (sources.empty()) continue;
        Bytes expected(bytes);
        Fold of_rank = fold;
        of_rank.ranks = sources;
        of_rank.write({0, bytes, addresses(terms)}, expected.data());
        CHECK((in_place ? rank.mine : rank.result) == expected);
      }
    }
}

TEST_CASE("sums in halves have the bits of the tree over ranks") {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6})
    for (const int n : {2, 4, 8, 16, 32}) {
      Draw draw(seed * 100 + static_cast<uint64_t>(n));
      const auto count = static_cast<size_t>(n);
      const bool to_all = draw.coin();
      const size_t share = 4 * (1 + draw.below(40)), bytes = to_all ? 4 * (1 + draw.below(1000)) : count * share;
      INFO("seed " << seed << ", " << n << " ranks, " << bytes << " bytes");
      std::vector<ByteRange> slices;
      for (size_t r = 0; r < count; ++r)
        slices.push_back(to_all ? ByteRange{0, bytes}.slice(r, count) : ByteRange{r * share, (r + 1) * share});
      const Fold fold{{}, operations[draw.below(3)], DType::f32, Device::cpu, true};
      std::vector<Rank> ranks(count);
      std::vector<Bytes> terms;
      for (int r = 0; r < n; ++r) {
        Rank& rank = ranks[static_cast<size_t>(r)];
        terms.push_back(rank.mine = draw.floats(bytes));
        rank.result.resize(to_all ? bytes : share);
        rank.list = halving_steps({r, n, 64}, slices, fold, to_all);
        const auto has_messages = [](const MessageStep& step) { return !step.sends.empty() || !step.receives.empty(); };
        const auto swaps = std::count_if(rank.list.steps.begin(), rank.list.steps.end(), has_messages);
        CHECK(swaps <= (to_all ? 2 : 1) * std::countr_zero(count));
      }
      Network(ranks, draw).run();
      Bytes expected(bytes);
      const std::vector<int> everyone = all_of(n);
      Fold of_all = fold;
      of_all.ranks = everyone;
      of_all.write({0, bytes, addresses(terms)}, expected.data());
      for (size_t r = 0; r < count; ++r)
        CHECK(ranks[r].result == (to_all ? expected : Bytes(&expected[r * share], &expected[r * share] + share)));
    }
}

TEST_CASE("a broadcast in slices brings every rank what the root exposes, and twice that leaves the root") {
  for (const uint64_t seed : {1, 2, 3, 4})
    for (const int n : numbers_of_ranks) {
      Draw draw(seed * 100 + static_cast<uint64_t>(n));
      const auto count = static_cast<size_t>(n), root = draw.below(count);
      const ByteRange read{64 * draw.below(4), 256 + draw.below(9000)};
      const size_t part = 64 * (1 + draw.below(8));
      const bool to_itself = draw.coin();
      INFO("seed " << seed << ", " << n << " ranks, root " << root << ", " << read.size() << " bytes");
      std::vector<Rank> ranks(count);
      for (size_t r = 0; r < count; ++r) {
        const bool reads = r != root || to_itself;
        std::vector<ByteRange> of_peers(count), by_peers(count);
        if (reads) of_peers[root] = read;
        for (size_t reader = 0; reader < count && r == root; ++reader)
          if (reader != root || to_itself) by_peers[reader] = read;
        if (r == root) ranks[r].mine = draw.floats(read.last / 4 * 4 + 4);
        ranks[r].list = broadcast_steps({static_cast<int>(r), n, part}, {of_peers, by_peers});
      }
      size_t sent = 0;
      for (const MessageStep& step : ranks[root].list.steps)
        for (const auto& message : step.sends) sent += message.piece.bytes.size();
      CHECK(sent <= 2 * read.size() + 64 * count * ranks[root].list.steps.size());
      Network(ranks, draw).run();
      const Bytes expected(&ranks[root].mine[read.first], &ranks[root].mine[read.first] + read.size());
      for (size_t r = 0; r < count; ++r) CHECK(ranks[r].read == (r != root || to_itself ? expected : Bytes()));
    }
}

TEST_CASE("ranks that swap ranges read all of them, uneven and empty ones too") {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6})
    for (const int n : numbers_of_ranks) {
      Draw draw(seed * 100 + static_cast<uint64_t>(n));
      const auto count = static_cast<size_t>(n);
      const size_t part = 64 * (1 + draw.below(4));
      const bool exposes = draw.coin(), by_mpi = exposes && draw.coin();
      INFO("seed " << seed << ", " << n << " ranks in parts of " << part);
      std::vector<Rank> ranks(count);
      std::vector<size_t> sizes;
      for (Rank& rank : ranks) sizes.push_back(4 * draw.below(200)), rank.mine = draw.floats(sizes.back());
      if (*std::max_element(sizes.begin(), sizes.end()) == 0) continue;
      std::vector<std::vector<ByteRange>> read(count, std::vector<ByteRange>(count));  // [reader][source]
      for (size_t reader = 0; reader < count; ++reader)
        for (size_t source = 0; source < count; ++source) {
          const size_t a = draw.below(sizes[source] + 1), b = draw.below(sizes[source] + 1);
          read[reader][source] = exposes ? ByteRange{0, sizes[source]} : ByteRange{std::min(a, b), std::max(a, b)};
        }
      for (size_t r = 0; r < count; ++r) {
        std::vector<ByteRange> by_peers;
        for (size_t reader = 0; reader < count; ++reader) by_peers.push_back(read[reader][r]);
        const StepTaker taker{static_cast<int>(r), n, part};
        ranks[r].list = exposes ? exposing_steps(taker, sizes, by_mpi) : direct_steps(taker, {read[r], by_peers});
      }
      Network(ranks, draw).run();
      for (size_t r = 0; r < count; ++r) {
        Bytes expected;
        for (size_t at = 0; at < 1000; at += part)
          for (size_t source = 0; source < count; ++source) {
            const ByteRange piece = read[r][source].piece(at, part);
            expected.insert(expected.end(), ranks[source].mine.data() + piece.first,
                            ranks[source].mine.data() + piece.last);
          }
        CHECK(ranks[r].read == expected);
      }
    }
}
