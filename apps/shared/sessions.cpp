#include "apps/shared/sessions.h"

#include <algorithm>
#include <fstream>
#include <iomanip>
#include <locale>
#include <nlohmann/json.hpp>
#include <sstream>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

void write(std::ostream& out, const Report::RankTime& time, const Traffic& traffic) {
  out << R"(  {"seconds": )" << time.seconds << R"(, "communication": )" << time.communication << R"(, "data": )"
      << time.data << R"(, "traffic": {)";
  const char* between = "";
  for (size_t v = 0; v < Traffic::verbs; ++v)
    if (const Traffic::Count& count = traffic[static_cast<Verb>(v)]; count.calls > 0) {
      out << between << '"' << text(static_cast<Verb>(v)) << "\": [" << count.calls << ", " << count.bytes << ", "
          << count.seconds << "]";
      between = ", ";
    }
  out << "}}";
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
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << std::setprecision(17) << "[";
  for (const RunSession& session : sessions) {
    out << (&session == &sessions.front() ? "\n" : ",\n") << R"( {"last_step": )" << session.last_step
        << R"(, "images": )" << session.images << R"(, "ranks": [)";
    for (size_t r = 0; r < session.ranks.size(); ++r) {
      out << (r == 0 ? "\n" : ",\n");
      write(out, session.ranks[r], session.traffic[r]);
    }
    out << "]}";
  }
  out << "]\n";
  return out.str();
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
