// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstddef>
#include <cstdio>  // jpeglib.h needs it first

// jpeglib.h does not include what it uses.
#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>

#include "weft/data/files/input_file.h"
#include "weft/data/pictures/image_format.h"

namespace weft {
namespace {

constexpr int max_scans = 500;  // a progressive file of a few bytes could otherwise take minutes

// libjpeg leaves by longjmp, which must not pass over an object that has a destructor. So each of its functions is
// called inside `guarded`, by a lambda that has none.
class JpegReader {
 public:
  explicit JpegReader(std::string_view file) {
    state_.err = jpeg_std_error(&errors_);
    state_.client_data = this;
    errors_.error_exit = [](j_common_ptr state) { of(state).fail(); };
    errors_.emit_message = [](j_common_ptr state, int level) {
      const int code = state->err->msg_code;
      if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) of(state).fail();  // else grey would follow
    };
    monitor_.progress_monitor = [](j_common_ptr state) {
      if (reinterpret_cast<j_decompress_ptr>(state)->input_scan_number > max_scans) of(state).fail();
    };
    guarded([&] {
      jpeg_create_decompress(&state_);
      state_.progress = &monitor_;
      jpeg_mem_src(&state_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_read_header(&state_, TRUE);
    });
    try {
      check_pixels(state_.image_height, state_.image_width);
    } catch (...) {
      jpeg_destroy_decompress(&state_);
      throw;
    }
  }
  ~JpegReader() { jpeg_destroy_decompress(&state_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  PictureExtent extent() const { return {state_.image_height, state_.image_width, state_.num_components == 1 ? 1 : 3}; }

  Bitmap decode(int64_t side) {
    const int64_t shorter = std::min(state_.image_height, state_.image_width);
    state_.scale_denom = 8;
    state_.scale_num = 8;
    while (side > 0 && state_.scale_num > 1 && shorter * state_.scale_num / 16 >= 2 * side) state_.scale_num /= 2;
    state_.out_color_space = state_.num_components == 1   ? JCS_GRAYSCALE
                             : state_.num_components == 4 ? JCS_CMYK
                                                          : JCS_RGB;
    guarded([&] { jpeg_start_decompress(&state_); });
    Bitmap picture{{state_.output_height, state_.output_width, state_.output_components}, {}};
    picture.values.resize(static_cast<size_t>(picture.extent.values()));
    const int64_t row_bytes = picture.extent.width * picture.extent.channels;
    uint8_t* row = picture.values.data();
    guarded([&] {
      for (; state_.output_scanline < state_.output_height; row += row_bytes) jpeg_read_scanlines(&state_, &row, 1);
    });
    if (picture.extent.channels == 4) remove_black(picture);
    return picture;
  }

 private:
  static JpegReader& of(j_common_ptr state) { return *static_cast<JpegReader*>(state->client_data); }
  [[noreturn]] void fail() { std::longjmp(back_, 1); }

  template <class F> void guarded(const F& call) {
    if (setjmp(back_) == 0) return call();
    char text[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&state_), text);
    const std::string reason = state_.input_scan_number > max_scans ? "more than 500 scans" : text;
    jpeg_destroy_decompress(&state_);  // may be done twice
    throw MalformedInput("the JPEG is damaged: " + reason);
  }

  // From cyan, magenta, yellow and black, which such files hold inverted, to red, green and blue.
  static void remove_black(Bitmap& picture) {
    const uint8_t* from = picture.values.data();
    uint8_t* to = picture.values.data();
    for (int64_t i = 0; i < picture.extent.height * picture.extent.width; ++i, from += 4) {
      const int black = from[3];
      for (int c = 0; c < 3; ++c) *to++ = static_cast<uint8_t>((from[c] * black + 127) / 255);
    }
    picture.extent.channels = 3;
    picture.values.resize(static_cast<size_t>(picture.extent.values()));
  }

  jpeg_decompress_struct state_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr monitor_{};
  std::jmp_buf back_;
};

}  // namespace

bool is_jpeg(std::string_view file) { return file.starts_with("\xff\xd8\xff"); }
PictureExtent jpeg_extent(std::string_view beginning) { return JpegReader(beginning).extent(); }
Bitmap decode_jpeg(std::string_view file, int64_t side) { return JpegReader(file).decode(side); }

}  // namespace weft
