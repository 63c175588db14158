// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/sessions.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/data/files/json_text.h"
#include "weft/data/idx.h"  // MalformedInput
#include "weft/engine/text/file_text.h"

#include "weft/engine/text/words.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

std::string json_of(const Report::RankTime& time, const Traffic& traffic) {
  std::string counts;
  for (size_t v = 0; v < Traffic::verbs; ++v)
    if (const Traffic::Count& count = traffic[static_cast<Verb>(v)]; count.calls > 0)
      counts += (counts.empty() ? "\"" : ", \"") + text(static_cast<Verb>(v)) + "\": [" + text(count.calls) + ", " +
                text(count.bytes) + ", " + exact_number(count.seconds) + ", " + text(count.small_calls) + "]";
  return "  {\"seconds\": " + exact_number(time.seconds) + ", \"communication\": " + exact_number(time.communication) +
         ", \"data\": " + exact_number(time.data) + ", \"traffic\": {" + counts + "}}";
}

int64_t read_count(JsonText& json) {
  const uint64_t count = json.number();
  if (!std::in_range<int64_t>(count)) json.refuse("a number that is too large");
  return static_cast<int64_t>(count);
}

Verb verb_called(const std::string& name, const JsonText& json) {
  for (size_t v = 0; v < Traffic::verbs; ++v)
    if (name == text(static_cast<Verb>(v))) return static_cast<Verb>(v);
  json.refuse("no verb is called " + excerpt(name));
}

Traffic read_traffic(JsonText& json) {
  Traffic traffic;
  json.object([&](const std::string& name) {
    Traffic::Count& count = traffic[verb_called(name, json)];
    int place = 0;
    json.array([&] {
      switch (place++) {
        case 0: count.calls = read_count(json); break;
        case 1: count.bytes = read_count(json); break;
        case 2: count.seconds = json.real(); break;
        case 3: count.small_calls = read_count(json); break;  // which earlier versions did not write
        default: json.refuse("more than calls, bytes, seconds and small calls");
      }
    });
    if (place < 3) json.refuse("calls, bytes and seconds are needed");
  });
  return traffic;
}

void read_rank(JsonText& json, RunSession& session) {
  Report::RankTime time;
  Traffic traffic;
  json.object("a rank", {{"seconds", [&] { time.seconds = json.real(); }},
                         {"communication", [&] { time.communication = json.real(); }},
                         {"data", [&] { time.data = json.real(); }},
                         {"traffic", [&] { traffic = read_traffic(json); }, true}});
  session.ranks.push_back(time);
  session.traffic.push_back(traffic);
}

RunSession read_session(JsonText& json) {
  RunSession session;
  json.object("a session", {{"first_step", [&] { session.first_step = read_count(json); }, true},
                            {"last_step", [&] { session.last_step = read_count(json); }},
                            {"images", [&] { session.images = json.real(); }},
                            {"ranks", [&] { json.array([&] { read_rank(json, session); }); }}});
  return session;
}

}  // namespace

// Writes text directly: a value of the JSON library (3.11) crashes in its destructor if memory ran out in its
// constructor.
std::string json(const std::vector<RunSession>& sessions) {
  std::string all;
  for (const RunSession& session : sessions) {
    std::string ranks;
    for (size_t r = 0; r < session.ranks.size(); ++r)
      ranks += (r == 0 ? "\n" : ",\n") + json_of(session.ranks[r], session.traffic[r]);
    all += (all.empty() ? "\n {" : ",\n {") + ("\"first_step\": " + text(session.first_step)) +
           ", \"last_step\": " + text(session.last_step) + ", \"images\": " + exact_number(session.images) +
           ", \"ranks\": [" + ranks + "]}";
  }
  return "[" + all + "]\n";
}

std::vector<RunSession> read_sessions(std::string_view text) {
  std::vector<RunSession> sessions;
  JsonText json(text.substr(0, text.find_last_not_of('\n') + 1), "sessions", 0);
  json.array([&] { sessions.push_back(read_session(json)); });
  json.end();
  return sessions;
}

std::vector<RunSession> sessions_up_to(int64_t step, const std::filesystem::path& file) try {
  constexpr size_t max_bytes = size_t{8} << 20;
  std::vector<RunSession> sessions = read_sessions(file_text(file, max_bytes));
  std::erase_if(sessions, [step](const RunSession& session) { return session.last_step > step; });
  return sessions;
} catch (const MalformedInput&) {
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
