// SPDX-License-Identifier: Apache-2.0
#include "weft/data/pictures/picture_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "weft/data/files/input_file.h"
#include "weft/data/pictures/held_out.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool names_a_picture(const fs::path& file) {
  const std::string ending = lower(file.extension().string());
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }
bool is_in_folder(const std::string& path) { return path.find('/') != std::string::npos; }

// All pictures below a folder.
class Walk {
 public:
  explicit Walk(const fs::path& folder) : folder_(folder) {
    enter("");
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  }

  std::vector<PictureFile> files;
  std::set<std::string> folders;            // directly in this one
  std::map<std::string, int64_t> left_out;  // how many, of each kind

 private:
  void enter(const fs::path& below) {
    struct stat state;
    if (stat((folder_ / below).c_str(), &state) != 0) return;
    const std::pair here(state.st_dev, state.st_ino);
    if (std::find(above_.begin(), above_.end(), here) != above_.end()) {
      ++left_out["links that lead back"];
      return;
    }
    above_.push_back(here);
    std::error_code error;
    fs::directory_iterator entries(folder_ / below, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) add(below, *entries);
    if (error) throw MissingInput((folder_ / below).string() + ": cannot be read: " + error.message());
    above_.pop_back();
  }

  void add(const fs::path& below, const fs::directory_entry& entry) {
    const fs::path path = below / entry.path().filename();
    if (path.filename().string().starts_with('.')) return;
    std::error_code error;
    if (entry.is_directory(error)) {
      if (below.empty()) folders.insert(path.string());
      return enter(path);
    }
    if (!entry.is_regular_file(error))
      ++left_out["what is no file"];
    else if (!names_a_picture(path))
      ++left_out["other files"];
    else
      files.push_back({path.string(), entry.file_size(error)});
  }

  const fs::path folder_;
  std::vector<std::pair<dev_t, ino_t>> above_;
};

// Gives pictures the classes of their folders. Returns whether they have any.
class Classes {
 public:
  Classes(const fs::path& folder, const std::vector<PictureFile>& files, size_t prefix) : prefix_(prefix) {
    const auto loose = std::count_if(files.begin(), files.end(), [&](const auto& file) { return !in_class(file); });
    if (loose > 0 && loose < std::ssize(files))
      throw MalformedInput(
          folder.string() + ": " + grouped(loose) + " pictures lie beside folders of pictures, first " +
          std::find_if_not(files.begin(), files.end(), [&](const auto& file) { return in_class(file); })->path +
          "; each needs a class, or none");
    for (const PictureFile& file : files)
      if (loose == 0) names_.insert(first_part(file.path.substr(prefix_)));
    if (names_.size() == 1) names_.clear();
  }
  const std::set<std::string>& names() const { return names_; }

  void label(std::vector<PictureFile>& files, const std::set<std::string>& all) const {
    for (PictureFile& file : files)
      if (!all.empty()) file.label = std::distance(all.begin(), all.find(first_part(file.path.substr(prefix_))));
  }

 private:
  bool in_class(const PictureFile& file) const { return is_in_folder(file.path.substr(prefix_)); }
  size_t prefix_;
  std::set<std::string> names_;
};

std::vector<PictureFile> those_in(const std::vector<PictureFile>& files, const std::string& folder) {
  std::vector<PictureFile> result;
  std::copy_if(files.begin(), files.end(), std::back_inserter(result),
               [&](const PictureFile& file) { return file.path.starts_with(folder + "/"); });
  return result;
}

void divide_by_hash(const Walk& walk, PictureList& list) {
  const Classes classes(list.folder, walk.files, 0);
  list.classes.assign(classes.names().begin(), classes.names().end());
  for (const PictureFile& file : walk.files) (is_held_out(file.path) ? list.test : list.train).push_back(file);
  for (auto* part : {&list.train, &list.test}) classes.label(*part, classes.names());
  list.notes.push_back(grouped(std::ssize(list.test)) + " of " + grouped(std::ssize(walk.files)) +
                       " pictures are kept for tests, a tenth by the names of their files");
}

void check_beside_train(const Walk& walk, const PictureList& list, const std::string& test) {
  for (const std::string& folder : walk.folders) {
    if (folder == "train" || folder == test) continue;
    const bool second_test = folder == "val" || folder == "validation";
    if (!second_test)
      throw MalformedInput(list.folder.string() + ": " + folder +
                           " lies beside train; a folder with train has test or "
                           "val beside it, and nothing else");
  }
  for (const PictureFile& file : walk.files)
    if (!is_in_folder(file.path))
      throw MalformedInput(list.folder.string() + ": " + file.path + " lies beside train; move it into a part");
}

void divide_by_folders(const Walk& walk, const std::string& test, PictureList& list) {
  check_beside_train(walk, list, test);
  list.train = those_in(walk.files, "train");
  list.test = those_in(walk.files, test);
  const Classes of_train(list.folder / "train", list.train, 6), of_test(list.folder / test, list.test, test.size() + 1);
  for (const std::string& name : of_test.names())
    if (!of_train.names().contains(name))
      throw MalformedInput(list.folder.string() + ": " + test + " has a class " + name + ", which train has not");
  if (!list.test.empty() && !of_train.names().empty() && !is_in_folder(list.test[0].path.substr(test.size() + 1)))
    throw MalformedInput(list.folder.string() + ": train has classes and " + test + " has none");
  list.classes.assign(of_train.names().begin(), of_train.names().end());
  of_train.label(list.train, of_train.names());
  of_test.label(list.test, of_train.names());
  for (const std::string& other : walk.folders)
    if (other != "train" && other != test) list.notes.push_back(other + " is not used, since there is " + test);
}

std::string test_folder(const std::set<std::string>& folders) {
  for (const std::string name : {"test", "val", "validation"})
    if (folders.contains(name)) return name;
  return "";
}

}  // namespace

PictureList list_pictures(const fs::path& folder) {
  const Walk walk(folder);
  PictureList list{folder, {}, {}, {}, {}};
  const std::string test = test_folder(walk.folders);
  if (walk.folders.contains("train") && !test.empty())
    divide_by_folders(walk, test, list);
  else
    divide_by_hash(walk, list);
  for (const auto& [kind, count] : walk.left_out) list.notes.push_back(kind + ": " + grouped(count) + ", left out");
  return list;
}

}  // namespace weft
