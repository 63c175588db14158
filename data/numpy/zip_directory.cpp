// SPDX-License-Identifier: Apache-2.0
#include "weft/data/numpy/zip_directory.h"

#include <algorithm>
#include <initializer_list>

#include "weft/data/files/deflate.h"    // max_deflate_ratio
#include "weft/data/files/json_text.h"  // excerpt, is_utf8
#include "weft/data/numpy/zip_records.h"

namespace weft {
namespace {

using namespace zip;

std::string whose(const std::string& name) { return "entry " + excerpt(name) + ": "; }

std::string name_of_method(uint16_t method) {
  constexpr std::pair<uint16_t, const char*> names[] = {{1, "shrunk"}, {6, "imploded"},  {9, "Deflate64"},
                                                        {12, "bzip2"}, {14, "LZMA"},     {93, "Zstandard"},
                                                        {95, "XZ"},    {99, "encrypted"}};
  for (const auto& [number, name] : names)
    if (number == method) return std::string(" (") + name + ")";
  return "";
}

// Reads the directory from the end of the file to its front, then the headers from the front of the file.
class DirectoryReader {
 public:
  DirectoryReader(const InputFile& file, uint64_t max_bytes) : file_(file), max_bytes_(max_bytes) {}

  std::vector<ZipEntry> read() {
    find();
    std::string directory(bytes_, '\0');
    file_.read(first_byte_, directory.data(), directory.size());
    std::string_view rest = directory;
    std::vector<ZipEntry> entries;
    entries.reserve(count_);
    uint64_t total = 0;
    while (entries.size() < count_) {
      entries.push_back(read_entry(rest));
      const ZipEntry& entry = entries.back();
      if (entry.bytes > max_bytes_ - total)
        file_.malformed(whose(entry.name) + "up to here entries unpack to more than the " + std::to_string(max_bytes_) +
                        " bytes that are allowed");
      total += entry.bytes;
    }
    if (!rest.empty()) file_.malformed("bytes follow the " + std::to_string(count_) + " entries of the directory");
    check_names_differ(entries);
    check_places(entries);
    return entries;
  }

 private:
  // Where the directory is, and how many entries it has.
  void find() {
    uint64_t end = file_.bytes();
    End last;
    if (!ends_at(end, last) || last.comment_bytes != 0)
      file_.malformed("not a ZIP archive, or cut, or with a comment: its last 22 bytes are not the end of a directory");
    end -= sizeof last;
    count_ = last.entries, bytes_ = last.bytes, first_byte_ = last.first_byte;
    bool split = last.disk != 0 || last.directory_disk != 0 || last.entries_here != last.entries;
    if (End64Locator locator; ends_at(end, locator)) {
      end -= sizeof locator;
      End64 last64;
      if (!ends_at(end, last64) || last64.rest_bytes != counted_bytes || locator.end64_byte != end - sizeof last64)
        file_.malformed("byte " + std::to_string(end) + ": no 64-bit end of the directory is in front of its locator");
      end -= sizeof last64;
      count_ = last64.entries, bytes_ = last64.bytes, first_byte_ = last64.first_byte;
      split |= locator.disk != 0 || locator.disks > 1 || last64.disk != 0 || last64.directory_disk != 0 ||
               last64.entries_here != last64.entries;
      if ((last.entries != wide_16 && last.entries != count_) || (last.bytes != wide_32 && last.bytes != bytes_) ||
          (last.first_byte != wide_32 && last.first_byte != first_byte_))
        file_.malformed("the two ends of the directory differ");
    }
    if (split) file_.malformed("a part of a split archive, which is not supported");
    if (bytes_ > end || first_byte_ != end - bytes_)
      file_.malformed("a directory of " + std::to_string(bytes_) + " bytes at byte " + std::to_string(first_byte_) +
                      ", but it has to end at byte " + std::to_string(end));
    if (count_ > bytes_ / sizeof(DirectoryEntry))
      file_.malformed(std::to_string(count_) + " entries in a directory of " + std::to_string(bytes_) + " bytes");
  }

  // Whether such a record ends at this byte.
  template <class T> bool ends_at(uint64_t end, T& record) const {
    if (end < sizeof record) return false;
    file_.read(end - sizeof record, &record, sizeof record);
    return record.mark == T::sign;
  }

  // Takes an entry from the front of the directory.
  ZipEntry read_entry(std::string_view& rest) const {
    const uint64_t place = first_byte_ + bytes_ - rest.size();
    const auto cut = [&] { file_.malformed("byte " + std::to_string(place) + ": an entry of the directory is cut"); };
    if (rest.size() < sizeof(DirectoryEntry)) cut();
    const auto record = record_in<DirectoryEntry>(rest);
    if (record.mark != DirectoryEntry::sign)
      file_.malformed("byte " + std::to_string(place) + ": no entry of the directory begins here");
    rest.remove_prefix(sizeof record);
    const Description& said = record.description;
    const size_t name_bytes = said.name_bytes, extra_bytes = said.extra_bytes, comment_bytes = record.comment_bytes;
    if (rest.size() < name_bytes + extra_bytes + comment_bytes) cut();

    ZipEntry entry{std::string(rest.substr(0, name_bytes)),
                   said.method == method_deflated,
                   said.crc,
                   said.packed_bytes,
                   said.bytes,
                   record.header_byte,
                   0};
    if (const std::string fault = fault_of_zip_name(entry.name); !fault.empty())
      file_.malformed(whose(entry.name) + fault);
    if (record.disk != 0) file_.malformed(whose(entry.name) + "in another part of a split archive");
    check_kind(entry, said.flags, said.method);
    widen(entry, rest.substr(name_bytes, extra_bytes), {&entry.bytes, &entry.packed_bytes, &entry.header_byte});
    if (entry.deflated ? entry.bytes / max_deflate_ratio > entry.packed_bytes : entry.bytes != entry.packed_bytes)
      file_.malformed(whose(entry.name) + std::to_string(entry.packed_bytes) + " bytes cannot unpack to " +
                      std::to_string(entry.bytes));
    rest.remove_prefix(name_bytes + extra_bytes + comment_bytes);
    return entry;
  }

  void check_kind(const ZipEntry& entry, uint16_t flags, uint16_t method) const {
    if (flags & flag_encrypted) file_.malformed(whose(entry.name) + "encrypted, which is not supported");
    if (flags & ~(flag_encrypted | flag_sizes_follow | flag_utf8 | flags_of_effort))
      file_.malformed(whose(entry.name) + "flags " + std::to_string(flags) + ", which are not supported");
    if (method != method_stored && method != method_deflated)
      file_.malformed(whose(entry.name) + "packed by method " + std::to_string(method) + name_of_method(method) +
                      ", but only stored and deflated entries are supported");
  }

  // Takes the numbers that do not fit their fields from the 64-bit one among the extra fields, which has them alone.
  void widen(const ZipEntry& entry, std::string_view extra, std::initializer_list<uint64_t*> numbers) const {
    std::string_view wide;
    while (!extra.empty()) {
      const uint64_t room = extra.size(), length = room < tag_bytes ? room : record_in<uint16_t>(extra.substr(2));
      if (room < tag_bytes || room - tag_bytes < length) file_.malformed(whose(entry.name) + "an extra field is cut");
      if (record_in<uint16_t>(extra) == zip64_tag) {
        if (!wide.empty()) file_.malformed(whose(entry.name) + "two extra fields have 64-bit numbers");
        wide = extra.substr(tag_bytes, length);
      }
      extra.remove_prefix(tag_bytes + length);
    }
    for (uint64_t* number : numbers) {
      if (*number != wide_32) continue;
      if (wide.size() < sizeof *number) file_.malformed(whose(entry.name) + "a 64-bit number is missing");
      *number = record_in<uint64_t>(wide);
      wide.remove_prefix(sizeof *number);
    }
  }

  void check_names_differ(const std::vector<ZipEntry>& entries) const {
    std::vector<std::string_view> names;
    names.reserve(entries.size());
    for (const ZipEntry& entry : entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    if (const auto second = std::adjacent_find(names.begin(), names.end()); second != names.end())
      file_.malformed("two entries are called " + excerpt(*second));
  }

  // The entries have to lie one behind the other, from the first byte to the directory.
  void check_places(std::vector<ZipEntry>& entries) const {
    std::vector<ZipEntry*> sorted;
    sorted.reserve(entries.size());
    for (ZipEntry& entry : entries) sorted.push_back(&entry);
    std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->header_byte < b->header_byte; });
    uint64_t end = 0;
    const auto check_begin = [&](uint64_t begin, const std::string& what) {
      if (begin != end)
        file_.malformed(what + "begins at byte " + std::to_string(begin) + ", but what is before it ends at byte " +
                        std::to_string(end));
    };
    for (size_t i = 0; i < sorted.size(); ++i) {
      ZipEntry& entry = *sorted[i];
      check_begin(entry.header_byte, whose(entry.name));
      const bool sizes_follow = read_header(entry);
      end = entry.first_byte + entry.packed_bytes;
      const uint64_t next = i + 1 < sorted.size() ? sorted[i + 1]->header_byte : first_byte_;
      if (sizes_follow) end += check_sizes_behind(entry, end, next - end);
    }
    check_begin(first_byte_, "the directory ");
  }

  // Of an entry that was written piece by piece the checksum and the sizes come once more, of 32 or 64 bits, behind a
  // mark or not. Returns how many bytes these are.
  uint64_t check_sizes_behind(const ZipEntry& entry, uint64_t place, uint64_t bytes) const {
    const bool wide = bytes == 20 || bytes == 24, marked = bytes == 16 || bytes == 24;
    std::string expected = (marked ? text_of(sizes_mark) : "") + text_of(entry.crc);
    for (const uint64_t size : {entry.packed_bytes, entry.bytes})
      expected += wide ? text_of(size) : text_of(static_cast<uint32_t>(size));
    std::string there(expected.size(), '\0');
    if (bytes == there.size()) file_.read(place, there.data(), bytes);
    if (there != expected) file_.malformed(whose(entry.name) + "the sizes behind it are not those of the directory");
    return bytes;
  }

  // Finds the first byte, and says whether the sizes are behind the entry.
  bool read_header(ZipEntry& entry) const {
    const auto cut = [&] { file_.malformed(whose(entry.name) + "it does not end before the directory begins"); };
    if (entry.header_byte > first_byte_ || first_byte_ - entry.header_byte < sizeof(Header)) cut();
    Header header;
    file_.read(entry.header_byte, &header, sizeof header);
    const Description& said = header.description;
    const size_t text_bytes = size_t{said.name_bytes} + said.extra_bytes;
    entry.first_byte = entry.header_byte + sizeof header + text_bytes;
    if (entry.first_byte > first_byte_ || first_byte_ - entry.first_byte < entry.packed_bytes) cut();
    std::string text(text_bytes, '\0');
    file_.read(entry.header_byte + sizeof header, text.data(), text.size());

    const auto differs = [&] { file_.malformed(whose(entry.name) + "its header and the directory differ"); };
    if (header.mark != Header::sign || text.substr(0, said.name_bytes) != entry.name) differs();
    check_kind(entry, said.flags, said.method);
    if ((said.method == method_deflated) != entry.deflated) differs();
    if (said.flags & flag_sizes_follow) return true;
    uint64_t bytes = said.bytes, packed_bytes = said.packed_bytes;
    widen(entry, std::string_view(text).substr(said.name_bytes), {&bytes, &packed_bytes});
    if (said.crc != entry.crc || bytes != entry.bytes || packed_bytes != entry.packed_bytes) differs();
    return false;
  }

  const InputFile& file_;
  const uint64_t max_bytes_;
  uint64_t first_byte_ = 0, bytes_ = 0, count_ = 0;  // of the directory
};

Description description_of(const ZipEntry& entry, size_t extra_bytes) {
  return {zip64_version,
          flag_utf8,
          entry.deflated ? method_deflated : method_stored,
          0,
          earliest_date,
          entry.crc,
          wide_32,
          wide_32,
          static_cast<uint16_t>(entry.name.size()),
          static_cast<uint16_t>(extra_bytes)};
}
std::string zip64_field(const ZipEntry& entry, size_t bytes) {
  return text_of(Zip64Field{zip64_tag, static_cast<uint16_t>(bytes - tag_bytes), entry.bytes, entry.packed_bytes,
                            entry.header_byte})
      .substr(0, bytes);
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(const InputFile& file, uint64_t max_bytes) {
  return DirectoryReader(file, max_bytes).read();
}

std::string fault_of_zip_name(std::string_view name) {
  if (name.size() > 0xffff) return "its name is too long";
  if (!is_utf8(name)) return "its name is not UTF-8";
  if (name.find('\0') != std::string_view::npos) return "its name has a zero byte";
  if (name.empty() || name[0] == '/' || name[0] == '\\') return "its name begins with no folder or file";
  for (std::string_view rest = name;;) {
    const size_t end = std::min(rest.find_first_of("/\\"), rest.size());
    if (rest.substr(0, end) == "..") return "its name leads out of the archive";
    if (end == rest.size()) return "";
    rest.remove_prefix(end + 1);
  }
}

std::string zip_header(const ZipEntry& entry) {
  constexpr size_t extra = sizeof(Zip64Field) - sizeof(Zip64Field::header_byte);
  return text_of(Header{Header::sign, description_of(entry, extra)}) + entry.name + zip64_field(entry, extra);
}

std::string zip_directory(std::span<const ZipEntry> entries, uint64_t first_byte) {
  // NumPy knows an archive without entries by its first bytes.
  if (entries.empty()) return text_of(End{End::sign, 0, 0, 0, 0, 0, 0, 0});
  constexpr size_t extra = sizeof(Zip64Field);
  std::string text;
  for (const ZipEntry& entry : entries)
    text += text_of(DirectoryEntry{DirectoryEntry::sign, zip64_version, description_of(entry, extra), 0, 0, 0, 0,
                                   wide_32}) +
            entry.name + zip64_field(entry, extra);
  const uint64_t bytes = text.size();
  text += text_of(End64{End64::sign, counted_bytes, zip64_version, zip64_version, 0, 0, entries.size(), entries.size(),
                        bytes, first_byte});
  text += text_of(End64Locator{End64Locator::sign, 0, first_byte + bytes, 1});
  return text + text_of(End{End::sign, 0, 0, wide_16, wide_16, wide_32, wide_32, 0});
}

}  // namespace weft
