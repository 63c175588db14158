// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/picture_files.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>

#include "weft/collectives/busy.h"
#include "weft/collectives/checks/agreement.h"
#include "weft/data/files/input_file.h"
#include "weft/data/pictures/image_file.h"
#include "weft/data/pictures/resize.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

// The files of both parts, one after the other.
class Files {
 public:
  explicit Files(const PictureList& list) : list_(list) {}
  int64_t count() const { return std::ssize(list_.train) + std::ssize(list_.test); }
  bool is_test(int64_t i) const { return i >= std::ssize(list_.train); }
  const PictureFile& operator[](int64_t i) const {
    return is_test(i) ? list_.test[static_cast<size_t>(i - std::ssize(list_.train))]
                      : list_.train[static_cast<size_t>(i)];
  }
  std::filesystem::path path(int64_t i) const { return list_.folder / (*this)[i].path; }

 private:
  const PictureList& list_;
};

// Files that could not be decoded.
class Broken {
 public:
  // Of a file in `folder`, which its reason need not repeat.
  void add(int64_t file, const std::filesystem::path& folder, const std::string& reason) {
    const std::string prefix = (folder / "").string();
    reasons_.emplace(file, reason.starts_with(prefix) ? reason.substr(prefix.size()) : reason);
  }

  // The first of all ranks, one per line.
  std::vector<std::string> first(size_t most, Communicator& comm) const {
    std::string mine;
    for (const auto& [file, reason] : reasons_) {
      if (static_cast<size_t>(std::count(mine.begin(), mine.end(), '\n')) == most) break;
      mine += text(file) + " " + reason.substr(0, reason.find('\n')) + "\n";
    }
    std::map<int64_t, std::string> all;
    for (const std::string& texts : all_texts(mine, comm, Site::here("broken pictures"))) {
      std::istringstream lines(texts);
      int64_t file = 0;
      for (std::string reason; lines >> file && std::getline(lines >> std::ws, reason);) all.emplace(file, reason);
    }
    std::vector<std::string> reasons;
    for (const auto& [file, reason] : all)
      if (reasons.size() < most) reasons.push_back(reason);
    return reasons;
  }

 private:
  std::map<int64_t, std::string> reasons_;
};

// What the ranks read together.
class Reader {
 public:
  Reader(const PictureList& list, const WantedPictures& wanted, ProcessRanks& here, Communicator& comm)
      : list_(list), wanted_(wanted), files_(list), here_(here), comm_(comm) {}

  Pictures read() {
    read_extents();
    told(count_broken());  // before pictures are decoded
    choose_extent();
    check_bytes(std::ssize(extents_) - count_broken(), extent_, wanted_);
    Pictures pictures = empty();
    decode(pictures);
    pictures = here_.from_leader(pictures);
    const int64_t read = std::ssize(pictures.train_files) + std::ssize(pictures.test_files);
    if (read < files_.count()) pictures.warnings.push_back(told(files_.count() - read));
    return pictures;
  }

 private:
  // This rank's files of those from `begin` to `end`.
  std::pair<int64_t, int64_t> mine(int64_t begin, int64_t end) const {
    const int64_t ranks = comm_.size(), me = comm_.rank().value, count = end - begin;
    return {begin + count * me / ranks, begin + count * (me + 1) / ranks};
  }

  template <class F> void attempt(int64_t file, F&& f) {
    try {
      f();
    } catch (const MalformedInput& error) {
      broken_.add(file, list_.folder, error.what());
    } catch (const MissingInput& error) {
      broken_.add(file, list_.folder, error.what());
    }
  }

  void read_extents() {
    const auto [begin, end] = mine(0, files_.count());
    Tensor found = Tensor::zeros({end - begin, 3}, DType::i64);
    auto* to = found.mutate<int64_t>();
    {
      const Busy busy(comm_, "reads " + list_.folder.string());
      for (int64_t i = begin; i < end; ++i, to += 3)
        attempt(i, [&] {
          const auto [height, width, channels] = picture_extent(files_.path(i));
          to[0] = height, to[1] = width, to[2] = channels;
        });
    }
    const Tensor all = comm_.all_gather_v(found, comm_.rows_of(end - begin), Site::here("sizes of pictures"));
    const auto* from = all.data<int64_t>();
    for (int64_t i = 0; i < files_.count(); ++i, from += 3) extents_.push_back({from[0], from[1], from[2]});
  }

  bool broken(int64_t file) const { return extents_[static_cast<size_t>(file)].values() == 0; }
  int64_t count_broken() const {
    return std::count_if(extents_.begin(), extents_.end(),
                         [](const PictureExtent& extent) { return extent.values() == 0; });
  }

  void choose_extent() {
    PictureExtent first{0, 0, 1};
    bool alike = true;
    for (const PictureExtent& each : extents_) {
      if (each.values() == 0) continue;
      if (first.values() == 0) first = {each.height, each.width, first.channels};
      alike = alike && each.height == first.height && each.width == first.width;
      first.channels = std::max(first.channels, each.channels);
    }
    extent_ = common_extent(wanted_.side, first, alike);
    resizes_ = !alike || extent_.height != first.height || extent_.width != first.width;
  }

  // The pictures that are still to be decoded.
  Pictures empty() const {
    Pictures pictures{.name = list_.folder.lexically_normal().filename().string(),
                      .classes = list_.classes,
                      .train = {},
                      .test = {},
                      .folder = list_.folder,
                      .notes = list_.notes};
    if (pictures.name.empty()) pictures.name = list_.folder.lexically_normal().parent_path().filename().string();
    if (resizes_) pictures.notes.push_back(note_of_resizing(extent_));
    return pictures;
  }

  // Many at a time, so that ranks have as much to do as the others, and few enough for little memory.
  void decode(Pictures& pictures) {
    const int64_t picture_bytes = extent_.values();
    const int64_t at_once = comm_.size() * std::clamp<int64_t>((int64_t{1} << 22) / picture_bytes, 1, 256);
    Part train(pictures.train, pictures.train_files), test(pictures.test, pictures.test_files);
    if (here_.leads()) {
      train.allocate(std::ssize(list_.train), extent_);
      test.allocate(std::ssize(list_.test), extent_);
    }
    for (int64_t begin = 0; begin < files_.count(); begin += at_once) {
      const int64_t end = std::min(begin + at_once, files_.count());
      const Tensor some = decode_together(begin, end);
      if (!here_.leads()) continue;
      for (int64_t i = begin; i < end; ++i) {
        const uint8_t* from = some.data<uint8_t>() + (i - begin) * (picture_bytes + 1);
        if (from[picture_bytes] == 0)
          extents_[static_cast<size_t>(i)] = {};
        else
          (files_.is_test(i) ? test : train).add(files_[i], from, picture_bytes);
      }
    }
    train.finish();
    test.finish();
  }

  // Rows of a picture's values and of a byte that says whether it could be decoded.
  Tensor decode_together(int64_t first, int64_t last) {
    const auto [begin, end] = mine(first, last);
    Tensor values = Tensor::zeros({end - begin, extent_.values() + 1}, DType::u8);
    auto* to = values.mutate<uint8_t>();
    {
      const Busy busy(comm_, "decodes " + list_.folder.string());
      for (int64_t i = begin; i < end; ++i, to += extent_.values() + 1)
        if (!broken(i))
          attempt(i, [&] {
            fit(read_picture(files_.path(i), std::max(extent_.height, extent_.width)), extent_, to);
            to[extent_.values()] = 1;
          });
    }
    return comm_.all_gather_v(values, comm_.rows_of(end - begin), Site::here("pictures"));
  }

  // The pictures of one part that could be decoded.
  class Part {
   public:
    Part(LabelledImages& data, std::vector<std::string>& files) : data_(data), files_(files) {}
    void allocate(int64_t most, const PictureExtent& extent) {
      data_ = {Tensor({most, extent.height, extent.width, extent.channels}, DType::u8), Tensor({most}, DType::i64)};
    }
    void add(const PictureFile& file, const uint8_t* values, int64_t bytes) {
      std::memcpy(data_.images.mutate<uint8_t>() + std::ssize(files_) * bytes, values, static_cast<size_t>(bytes));
      data_.labels.mutate<int64_t>()[std::ssize(files_)] = file.label;
      files_.push_back(file.path);
    }
    void finish() {
      if (!data_.images.defined()) return;
      data_ = {data_.images.slice(0, std::ssize(files_)), data_.labels.slice(0, std::ssize(files_))};
    }

   private:
    LabelledImages& data_;
    std::vector<std::string>& files_;
  };

  // What is said of so many broken files. If they are most, that is an error.
  std::string told(int64_t count) const {
    if (count == 0) return "";
    constexpr size_t named = 3;
    std::string said = grouped(count) + " of " + grouped(files_.count()) + " pictures cannot be read";
    for (const std::string& reason : broken_.first(named, comm_)) said += "; " + reason;
    if (count > static_cast<int64_t>(named)) said += "; and " + grouped(count - static_cast<int64_t>(named)) + " more";
    if (2 * count > files_.count()) throw MalformedInput(list_.folder.string() + ": " + said);
    return said + "; they are left out";
  }

  const PictureList& list_;
  const WantedPictures& wanted_;
  const Files files_;
  ProcessRanks& here_;
  Communicator& comm_;
  std::vector<PictureExtent> extents_;  // of every file; none if it is broken
  PictureExtent extent_;                // of the result
  bool resizes_ = false;
  Broken broken_;
};

}  // namespace

Pictures read_pictures(const PictureList& list, const WantedPictures& wanted, ProcessRanks& here, Communicator& comm) {
  return Reader(list, wanted, here, comm).read();
}

}  // namespace weft
