// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder of PNG and JPEG files, before they are read.
//
//   FOLDER/shoes/1.png                 a class is a folder; what is below it belongs to it
//   FOLDER/1.png                       no classes
//   FOLDER/train/..., FOLDER/test/...  both parts, each as above; `val` and `validation` are read as `test` if that is
//                                      not there
//
// Otherwise a tenth is kept for tests, chosen by the names of the files, so that a picture stays in its part when
// others are added. Hidden files and folders are passed over. Files of other kinds are counted, and so is what is no
// file (a pipe, a link that leads back). A folder that is not as above is a MalformedInput.
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

struct PictureFile {
  std::string path;    // relative to the folder
  uint64_t bytes = 0;  // of the file
  int64_t label = -1;  // -1: none
};

struct PictureList {
  std::filesystem::path folder;
  std::vector<std::string> classes;      // sorted; none if there is only one
  std::vector<PictureFile> train, test;  // sorted by their paths
  std::vector<std::string> notes;        // for people
};

PictureList list_pictures(const std::filesystem::path& folder);

}  // namespace weft
