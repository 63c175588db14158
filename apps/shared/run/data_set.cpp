// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/data_set.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "apps/shared/run/picture_files.h"
#include "weft/collectives/busy.h"
#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/transport.h"
#include "weft/data/files/input_file.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

std::string with_checksum(const std::string& what, uint64_t checksum) {
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016lx", checksum);
  return what + ", checksum " + digits + "\n";
}

std::string outline(const std::string& name, const Tensor& x) {
  return with_checksum(name + " " + text(x.shape()), checksum(x));
}
std::string outline(const std::string& name, const LabelledImages& data) {
  return outline(name + " images", data.images) + outline(name + " labels", data.labels);
}
std::string outline(const std::string& name, const std::vector<PictureFile>& files) {
  std::string all;
  for (const PictureFile& file : files) all += file.path + " " + text(file.bytes) + "\n";
  return with_checksum(text(std::ssize(files)) + " files of " + name, checksum(all));
}

// What the files are like, in lines that have to be the same on all ranks, and where they are.
struct Opened {
  std::variant<Pictures, PictureList> found;
  std::string outline, folder;

  explicit Opened(std::variant<Pictures, PictureList> opened) : found(std::move(opened)) {
    std::visit(
        [&](const auto& part) {
          outline = weft::outline("training", part.train) + weft::outline("test", part.test);
          folder = part.folder.string();
        },
        found);
  }
};

void must_be_same(const Opened& mine, Communicator& comm) {
  const Site site = Site::here("data");
  const auto difference = first_different_line("have read different data", all_texts(mine.outline, comm, site));
  if (!difference) return;
  const auto folders = all_texts(mine.folder, comm, site);
  std::string from;
  for (const std::string& each : std::set(folders.begin(), folders.end())) from += (from.empty() ? "" : " and ") + each;
  throw Fault(exit_codes::configuration_differs, *difference + ", from " + from);
}

WantedPictures wanted(const Options& options) {
  return {options.data, options.size, static_cast<int64_t>(options.cache * (int64_t{1} << 30))};
}

Pictures read_data(const Options& options, Communicator& comm) {
  const WantedPictures asked = wanted(options);
  ProcessRanks here(comm);
  std::optional<Opened> mine;
  if (here.leads()) {
    const Busy busy(comm, "reads the data");
    mine.emplace(open_pictures(asked));
  }
  const Opened opened = *here.from_leader(mine);
  must_be_same(opened, comm);
  if (const Pictures* pictures = std::get_if<Pictures>(&opened.found)) return *pictures;
  return read_pictures(std::get<PictureList>(opened.found), asked, here, comm);
}

}  // namespace

// A batch of more pictures than there are would be a smaller one, in silence.
void must_fill_a_batch(const Pictures& pictures, const Options& options) {
  const int64_t count = pictures.train.count();
  if (count < 2)
    throw MalformedInput(pictures.folder.string() + ": " + text(count) + (count == 1 ? " picture" : " pictures") +
                         " to train on, but at least 2 are needed" +
                         (pictures.test.count() > 0 ? ", and " + text(pictures.test.count()) + " for tests" : ""));
  if (options.batch > count)
    throw WrongOption("--batch " + text(options.batch) + ": there are only " + grouped(count) +
                      " pictures to train on; take " + text(count) + " or less");
}

Pictures load_data(const Options& options, Communicator& comm) {
  try {
    Pictures pictures = read_data(options, comm);
    must_fill_a_batch(pictures, options);
    if (pictures.test.count() == 0) pictures.warnings.push_back("there are no test pictures, so nothing is tested");
    pictures.notes.insert(pictures.notes.begin(), pictures.name + ": " + summary(pictures));
    return pictures;
  } catch (const TooManyPictures& error) {
    throw WrongOption(error.what());
  }
}

std::vector<int64_t> every_nth(const LabelledImages& pictures, int64_t most) {
  const int64_t count = std::min(pictures.count(), most);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i) samples.push_back(i * pictures.count() / count);
  return samples;
}

EncoderChoice fitted(EncoderChoice encoder, const Pictures& pictures) {
  encoder.height = pictures.height();
  encoder.across = pictures.across();
  encoder.channels = pictures.channels();
  return encoder;
}

void must_be_multiples(const Pictures& pictures, int64_t by) {
  if (pictures.height() % by == 0 && pictures.across() % by == 0) return;
  throw WrongOption("--size: this network needs a height and a width that are multiples of " + text(by) + ", not " +
                    text(pictures.height()) + " x " + text(pictures.across()) + "; take --size " +
                    text(std::max(by, pictures.side() / by * by)));
}

bool can_be_classified(const Pictures& pictures) { return pictures.labelled() && pictures.test.count() > 0; }

}  // namespace weft
