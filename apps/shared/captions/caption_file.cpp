// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/captions/caption_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/data/files/input_file.h"
#include "weft/data/files/json_text.h"

namespace weft {
namespace {

constexpr uint64_t max_bytes = uint64_t{1} << 30;
constexpr std::array file_names = {"file_name", "file", "filename", "image", "path"};
constexpr std::array text_names = {"caption", "text", "sentence"};

template <class Names> bool is_one_of(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void wrong(const InputFile& file, int64_t line, const std::string& what) {
  file.malformed("line " + std::to_string(line) + ": " + what);
}

// The records of a CSV file. A field in quotes may hold commas, line breaks and doubled quotes.
class CsvText {
 public:
  CsvText(const InputFile& file, const std::string& text) : file_(file), text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  int64_t line() const { return line_; }
  std::vector<std::string> next() {
    std::vector<std::string> fields;
    do fields.push_back(accept('"') ? quoted() : plain());
    while (accept(','));
    accept('\r');
    if (!at_end() && !accept('\n')) wrong(file_, line_, "something follows a closing quote");
    ++line_;
    return fields;
  }

 private:
  bool accept(char wanted) {
    const bool is_there = !at_end() && text_[at_] == wanted;
    at_ += is_there;
    return is_there;
  }
  std::string plain() {
    const size_t begin = at_, end = text_.find_first_of(",\r\n", begin);
    at_ = std::min(end, text_.size());
    return text_.substr(begin, at_ - begin);
  }
  std::string quoted() {
    const int64_t first = line_;
    std::string field;
    while (true) {
      if (at_end()) wrong(file_, first, "a quote is not closed");
      const char c = text_[at_++];
      if (c == '"' && !accept('"')) return field;
      line_ += c == '\n';
      field += c;
    }
  }

  const InputFile& file_;
  const std::string& text_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

template <class Names>
size_t column(const InputFile& file, const std::vector<std::string>& columns, const Names& names) {
  for (size_t i = 0; i < columns.size(); ++i)
    if (is_one_of(names, columns[i])) return i;
  std::string there;
  for (const std::string& name : columns) there += (there.empty() ? "" : ", ") + excerpt(name);
  wrong(file, 1, std::string("no column is called ") + names[0] + " or " + names[1] + "; there are " + there);
}

std::vector<Caption> read_csv(const InputFile& file, std::string text) {
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // spreadsheets write this mark
  CsvText csv(file, text);
  const std::vector<std::string> columns = csv.next();
  const size_t of_file = column(file, columns, file_names), of_text = column(file, columns, text_names);
  std::vector<Caption> captions;
  while (!csv.at_end()) {
    const int64_t line = csv.line();
    const std::vector<std::string> fields = csv.next();
    if (fields == std::vector<std::string>{""}) continue;
    if (fields.size() != columns.size())
      wrong(file, line,
            std::to_string(fields.size()) + " fields, but the first line has " + std::to_string(columns.size()));
    captions.push_back({fields[of_file], fields[of_text]});
  }
  return captions;
}

template <class Names>
std::string member(const InputFile& file, int64_t line, const nlohmann::json& object, const Names& names) {
  for (const char* name : names)
    if (const auto found = object.find(name); found != object.end() && found->is_string())
      return found->template get<std::string>();
  wrong(file, line, std::string("no text is called ") + names[0] + " or " + names[1]);
}

std::vector<Caption> read_jsonl(const InputFile& file, const std::string& text) {
  std::vector<Caption> captions;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) wrong(file, number + 1, "not a JSON object: " + excerpt(line));
    captions.push_back({member(file, number + 1, object, file_names), member(file, number + 1, object, text_names)});
  }
  return captions;
}

}  // namespace

std::vector<Caption> read_captions(const std::filesystem::path& path) {
  const InputFile file(path);
  if (file.bytes() > max_bytes) file.malformed("larger than 1 GiB, the most for captions");
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  if (!is_utf8(text)) file.malformed("not UTF-8");
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) file.malformed("there are no captions");
  return text[first] == '{' ? read_jsonl(file, text) : read_csv(file, std::move(text));
}

}  // namespace weft
