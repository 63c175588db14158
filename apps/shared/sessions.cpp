#include "apps/shared/sessions.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/shared/words.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string json_of(const Report::RankTime& time, const Traffic& traffic) {
  std::string counts;
  for (size_t v = 0; v < Traffic::verbs; ++v)
    if (const Traffic::Count& count = traffic[static_cast<Verb>(v)]; count.calls > 0)
      counts += (counts.empty() ? "\"" : ", \"") + text(static_cast<Verb>(v)) + "\": [" + text(count.calls) + ", " +
                text(count.bytes) + ", " + exact_number(count.seconds) + "]";
  return "  {\"seconds\": " + exact_number(time.seconds) + ", \"communication\": " + exact_number(time.communication) +
         ", \"data\": " + exact_number(time.data) + ", \"traffic\": {" + counts + "}}";
}

Traffic traffic_of(const Json& rank) {
  Traffic traffic;
  for (size_t v = 0; v < Traffic::verbs; ++v)
    if (const auto verb = static_cast<Verb>(v); rank.contains("traffic") && rank["traffic"].contains(text(verb))) {
      const Json& count = rank["traffic"][text(verb)];
      traffic[verb] = {count.at(0), count.at(1), count.at(2)};
    }
  return traffic;
}

}  // namespace

// Text at once: a value of the library's (3.11) crashes in its destructor if there was no memory to make it.
std::string json(const std::vector<RunSession>& sessions) {
  std::string all;
  for (const RunSession& session : sessions) {
    std::string ranks;
    for (size_t r = 0; r < session.ranks.size(); ++r)
      ranks += (r == 0 ? "\n" : ",\n") + json_of(session.ranks[r], session.traffic[r]);
    all += (all.empty() ? "\n {" : ",\n {") + ("\"last_step\": " + text(session.last_step)) +
           ", \"images\": " + exact_number(session.images) + ", \"ranks\": [" + ranks + "]}";
  }
  return "[" + all + "]\n";
}

std::vector<RunSession> sessions_up_to(int64_t step, const std::filesystem::path& file) try {
  std::vector<RunSession> sessions;
  std::ifstream stream(file);
  for (const Json& entry : Json::parse(stream)) {
    RunSession session{entry.at("last_step"), entry.at("images"), {}, {}};
    for (const Json& rank : entry.at("ranks")) {
      session.ranks.push_back({rank.at("seconds"), rank.at("communication"), rank.at("data")});
      session.traffic.push_back(traffic_of(rank));
    }
    if (session.last_step <= step) sessions.push_back(std::move(session));
  }
  return sessions;
} catch (const Json::exception&) {
  return {};
}

RunSession whole(const std::vector<RunSession>& sessions) {
  RunSession all;
  for (const RunSession& session : sessions) {
    all.last_step = session.last_step;
    all.images += session.images;
    all.ranks.resize(std::max(all.ranks.size(), session.ranks.size()));
    all.traffic.resize(all.ranks.size());
    for (size_t r = 0; r < session.ranks.size(); ++r) {
      all.ranks[r].seconds += session.ranks[r].seconds;
      all.ranks[r].communication += session.ranks[r].communication;
      all.ranks[r].data += session.ranks[r].data;
      for (size_t v = 0; v < Traffic::verbs; ++v)
        all.traffic[r][static_cast<Verb>(v)] += session.traffic[r][static_cast<Verb>(v)];
    }
  }
  return all;
}

}  // namespace weft
