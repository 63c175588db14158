// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/certificate.h"

#include <sha2.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/weft/verdict/print.h"
#include "weft/data/files/input_file.h"
#include "weft/engine/text/words.h"

namespace weft::verify {
namespace {

std::string sha256_of(const InputFile& file) {
  SHA2_CTX hash;
  SHA256Init(&hash);
  std::vector<uint8_t> piece(size_t{1} << 20);
  for (uint64_t at = 0; at < file.bytes(); at += piece.size()) {
    const size_t bytes = std::min<uint64_t>(piece.size(), file.bytes() - at);
    file.read(at, piece.data(), bytes);
    SHA256Update(&hash, piece.data(), bytes);
  }
  char digits[SHA256_DIGEST_STRING_LENGTH];
  return SHA256End(&hash, digits);
}

std::string versions() {
  return "Weft " WEFT_VERSION ", truth in f64 by Eigen " + std::to_string(EIGEN_WORLD_VERSION) + "." +
         std::to_string(EIGEN_MAJOR_VERSION) + "." + std::to_string(EIGEN_MINOR_VERSION);
}

}  // namespace

Certificate certificate_of(const std::filesystem::path& folder) {
  const Dump dump = read_dump(folder);
  const std::vector<Verdict> all = verdicts(dump);
  const Outcome outcome = overall(all);
  std::vector<std::filesystem::path> files = dump.files;
  files.insert(files.begin(), folder / "manifest.json");
  if (dump.step)
    for (const auto& more : {dump.step->files, dump.step->mended_files})
      files.insert(files.end(), more.begin(), more.end());

  nlohmann::ordered_json json = {{"weft_certificate", 2}, {"made_by", versions()}};
  std::string rows;
  for (const std::filesystem::path& path : files) {
    const InputFile file(path);
    const std::string name = path.lexically_relative(folder).generic_string(), hash = sha256_of(file);
    json["files"].push_back({{"name", name}, {"bytes", file.bytes()}, {"sha256", hash}});
    rows += "<tr><td>" + as_html(name) + "<td>" + std::to_string(file.bytes()) + "<td><code>" + hash + "</code>\n";
  }
  json.update(nlohmann::ordered_json::parse(json_of(all, dump)));

  const std::string page =
      "<!doctype html>\n<html lang='en'>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width'>\n<title>Distributed gradients: " +
      std::string(name(outcome)) +
      "</title>\n<style>:root { color-scheme: light dark } code { overflow-wrap: anywhere }\n"
      "body { font: 16px/1.5 sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em }\n"
      "pre { overflow-x: auto; background: #8882; padding: 1em } td { padding-right: 2em }</style>\n"
      "<h1>Distributed gradients: " +
      name(outcome) + "</h1>\n<p>" + versions() + "</p>\n<h2>Verdict</h2>\n<pre>" + as_html(text_of(all, dump)) +
      "</pre>\n<h2>What this dump could not tell</h2>\n<pre>" + as_html(power_of(all, dump)) +
      "</pre>\n<h2>Files</h2>\n<table>\n<tr><th align='left'>name<th align='left'>bytes<th align='left'>SHA-256\n" +
      rows + "</table>\n</html>\n";
  return {outcome, json.dump(2) + "\n", page};
}

}  // namespace weft::verify
