// SPDX-License-Identifier: Apache-2.0
//
// JPEG: the only file that includes libjpeg. It reports errors with longjmp; so between a setjmp
// and the library calls below it no object with a destructor is created.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "camera/picture/formats.h"

// clang-format off: jpeglib.h needs <cstdio> before it, and jerror.h needs jpeglib.h.
#include <jerror.h>
#include <jpeglib.h>
// clang-format on

namespace atollrt {
namespace {

struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void JpegFail(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->message);
  std::longjmp(errors->jump, 1);
}

// libjpeg calls it a warning when data are missing or corrupt and paints over the hole in gray.
// Here that is an error; only what leaves every pixel right is let through.
void JpegMessage(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      JpegFail(jpeg);
  }
}

// A small file can hold thousands of passes over a large picture; real encoders write about ten.
void JpegLimitScans(j_common_ptr jpeg) {
  constexpr int kMaxScans = 200;
  if (jpeg->is_decompressor &&
      reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > kMaxScans) {
    auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
    std::snprintf(errors->message, sizeof(errors->message), "more than %d scans", kMaxScans);
    std::longjmp(errors->jump, 1);
  }
}

jpeg_error_mgr* InstallJpegErrors(JpegErrors* errors) {
  jpeg_std_error(&errors->manager);
  errors->manager.error_exit = JpegFail;
  errors->manager.emit_message = JpegMessage;
  return &errors->manager;
}

// The largest of 8, 4, 2 and 1 by which the picture may be divided.
unsigned ChooseJpegDivisor(unsigned width, unsigned height, const DecodeOptions& options) {
  if (options.min_width <= 0 && options.min_height <= 0) return 1;
  unsigned divisor = 8;
  const auto too_small = [&](unsigned side, int least) {
    return (side + divisor - 1) / divisor < static_cast<unsigned>(std::max(least, 0));
  };
  while (divisor > 1 &&
         (too_small(width, options.min_width) || too_small(height, options.min_height))) {
    divisor /= 2;
  }
  return divisor;
}

// --- Decoding ------------------------------------------------------------------------------------

// What must outlive a longjmp.
struct Decoder {
  jpeg_decompress_struct jpeg = {};
  JpegErrors errors;
  jpeg_progress_mgr progress = {};
};

// Reads the header and refuses what is not read here. The caller has called setjmp.
Status ReadHeader(std::span<const uint8_t> bytes, const DecodeOptions& options, Decoder* decoder) {
  jpeg_decompress_struct& jpeg = decoder->jpeg;
  jpeg_create_decompress(&jpeg);
  decoder->progress.progress_monitor = JpegLimitScans;
  jpeg.progress = &decoder->progress;
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  ATOLL_RETURN_IF_ERROR(
      CheckImageSize("JPEG", jpeg.image_width, jpeg.image_height, options.max_pixels));
  if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK) {
    return Unsupported("JPEG: CMYK colour is not read, only gray, YCbCr and RGB");
  }
  // Coefficients of three components, two bytes each, with room for narrow pictures that are filled
  // up to blocks. What asks for more is no picture that an encoder makes.
  const size_t pixels = size_t{jpeg.image_width} * jpeg.image_height;
  jpeg.mem->max_memory_to_use = static_cast<long>((size_t{16} << 20) + 8 * pixels);
  jpeg.scale_num = 1;
  jpeg.scale_denom = ChooseJpegDivisor(jpeg.image_width, jpeg.image_height, options);
  return Status();
}

// All rows, `stride` bytes apart.
void ReadRows(jpeg_decompress_struct* jpeg, uint8_t* pixels, size_t stride) {
  while (jpeg->output_scanline < jpeg->output_height) {
    constexpr unsigned kRows = 16;  // a row of MCUs at most
    JSAMPROW rows[kRows];
    const unsigned count = std::min(kRows, jpeg->output_height - jpeg->output_scanline);
    for (unsigned i = 0; i < count; ++i) {
      rows[i] = pixels + stride * (jpeg->output_scanline + i);
    }
    jpeg_read_scanlines(jpeg, rows, count);
  }
}

int DctSize(const jpeg_component_info& component) {
#if JPEG_LIB_VERSION >= 70
  return component.DCT_v_scaled_size;
#else
  return component.DCT_scaled_size;
#endif
}

// By how much `size` is smaller than `full`: 0, 1 for half of it, or -1.
int ShiftOf(unsigned size, unsigned full) {
  return size == full ? 0 : size == (full + 1) / 2 ? 1 : -1;
}

// The shape of the planes as they are stored, after jpeg_calc_output_dimensions. False if it is one
// that PlanarImage does not have, or not of brightness and colour.
struct Subsampling {
  int shift_x;
  int shift_y;
};
bool FindSubsampling(const jpeg_decompress_struct& jpeg, Subsampling* subsampling) {
  if (jpeg.jpeg_color_space != JCS_YCbCr || jpeg.num_components != 3) return false;
  const jpeg_component_info* components = jpeg.comp_info;
  const auto shift_x = [&](int i) {
    return ShiftOf(components[i].downsampled_width, jpeg.output_width);
  };
  const auto shift_y = [&](int i) {
    return ShiftOf(components[i].downsampled_height, jpeg.output_height);
  };
  *subsampling = {shift_x(1), shift_y(1)};
  return shift_x(0) == 0 && shift_y(0) == 0 && shift_x(1) >= 0 && shift_y(1) >= 0 &&
         shift_x(2) == shift_x(1) && shift_y(2) == shift_y(1);
}

// The rows of a row of MCUs, of each plane. Those that would lie below a plane's memory are its
// last one, where nobody looks.
struct McuRows {
  static constexpr int kMax = 4 * DCTSIZE;
  JSAMPROW rows[3][kMax];
  JSAMPARRAY planes[3] = {rows[0], rows[1], rows[2]};

  void Set(int i, Plane* plane, int first, int count) {
    const int last = static_cast<int>(plane->samples.size() / plane->stride) - 1;
    for (int r = 0; r < count; ++r) rows[i][r] = plane->row(std::min(first + r, last));
  }
};

// All planes as they are stored.
void ReadStoredPlanes(jpeg_decompress_struct* jpeg, PlanarImage* planes) {
  Plane* const all[3] = {&planes->y, &planes->cb, &planes->cr};
  McuRows rows;
  const int group_rows = jpeg->comp_info[0].v_samp_factor * DctSize(jpeg->comp_info[0]);
  for (int group = 0; jpeg->output_scanline < jpeg->output_height; ++group) {
    for (int i = 0; i < 3; ++i) {
      const int count = jpeg->comp_info[i].v_samp_factor * DctSize(jpeg->comp_info[i]);
      rows.Set(i, all[i], group * count, count);
    }
    jpeg_read_raw_data(jpeg, rows.planes, static_cast<JDIMENSION>(group_rows));
  }
}

// Reads the header, then the picture by `read`, which gives false to stop before it begins.
template <typename Read>
Status Decode(std::span<const uint8_t> bytes, const DecodeOptions& options, Read read) {
  Decoder decoder;
  jpeg_decompress_struct& jpeg = decoder.jpeg;
  jpeg.err = InstallJpegErrors(&decoder.errors);
  if (setjmp(decoder.errors.jump)) {
    jpeg_destroy_decompress(&jpeg);
    return InvalidArgument("JPEG: %s", decoder.errors.message);
  }
  if (Status status = ReadHeader(bytes, options, &decoder); !status.ok()) {
    jpeg_destroy_decompress(&jpeg);
    return status;
  }
  if (read(&jpeg)) jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return Status();
}

// --- Encoding ------------------------------------------------------------------------------------

// What must outlive a longjmp.
struct Encoder {
  jpeg_compress_struct jpeg = {};
  JpegErrors errors;
  // Where the file is: in the vector that is to have it, unless that was too small.
  unsigned char* file = nullptr;
  unsigned long file_bytes = 0;
};

// Writes a picture by `write`, which is called with everything described but for what it wants to
// change, and starts with jpeg_start_compress.
template <typename Write>
Status Encode(int width, int height, int channels, J_COLOR_SPACE color_space, int quality,
              std::vector<uint8_t>* bytes, Write write) {
  if (quality < 1 || quality > 100) return InvalidArgument("JPEG quality %d of 1..100", quality);
  Encoder encoder;
  jpeg_compress_struct& jpeg = encoder.jpeg;
  jpeg.err = InstallJpegErrors(&encoder.errors);
  if (setjmp(encoder.errors.jump)) {
    jpeg_destroy_compress(&jpeg);
    return InternalError("JPEG encoder: %s", encoder.errors.message);
  }
  jpeg_create_compress(&jpeg);
  bytes->resize(std::max<size_t>(bytes->capacity(), 4096));
  encoder.file = bytes->data();
  encoder.file_bytes = bytes->size();
  jpeg_mem_dest(&jpeg, &encoder.file, &encoder.file_bytes);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = channels;
  jpeg.in_color_space = color_space;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  write(&jpeg);
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  if (encoder.file == bytes->data()) {
    bytes->resize(encoder.file_bytes);
  } else {
    bytes->reserve(2 * encoder.file_bytes);  // the next one may be larger
    bytes->assign(encoder.file, encoder.file + encoder.file_bytes);
    std::free(encoder.file);
  }
  return Status();
}

Status CheckSides(int width, int height) {
  if (width >= 1 && height >= 1 && width <= JPEG_MAX_DIMENSION && height <= JPEG_MAX_DIMENSION) {
    return Status();
  }
  return InvalidArgument("cannot encode an image of %d x %d as JPEG", width, height);
}

// Repeats the last samples of rows and the last rows, up to whole blocks.
void PadToBlocks(Plane* plane) {
  const size_t width = static_cast<size_t>(plane->width);
  const size_t padded_width = (width + DCTSIZE - 1) / DCTSIZE * DCTSIZE;
  for (int y = 0; y < plane->height; ++y) {
    uint8_t* row = plane->row(y);
    std::fill(row + width, row + padded_width, row[width - 1]);
  }
  const int padded_height = (plane->height + DCTSIZE - 1) / DCTSIZE * DCTSIZE;
  for (int y = plane->height; y < padded_height; ++y) {
    std::memcpy(plane->row(y), plane->row(plane->height - 1), padded_width);
  }
}

void WritePlanes(jpeg_compress_struct* jpeg, Plane* const planes[3]) {
  McuRows rows;
  const int luma_rows = jpeg->comp_info[0].v_samp_factor * DCTSIZE;
  for (int group = 0; jpeg->next_scanline < jpeg->image_height; ++group) {
    for (int i = 0; i < jpeg->num_components; ++i) {
      const int count = jpeg->comp_info[i].v_samp_factor * DCTSIZE;
      rows.Set(i, planes[i], group * count, count);
    }
    jpeg_write_raw_data(jpeg, rows.planes, static_cast<JDIMENSION>(luma_rows));
  }
}

}  // namespace

bool LooksLikeJpeg(std::span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

Status DecodeJpeg(std::span<const uint8_t> bytes, const DecodeOptions& options, Image* image) {
  return Decode(bytes, options, [&](jpeg_decompress_struct* jpeg) {
    jpeg->out_color_space = options.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(jpeg);
    image->Reshape(static_cast<int>(jpeg->output_width), static_cast<int>(jpeg->output_height),
                   options.channels);
    ReadRows(jpeg, image->pixels.data(), image->row_bytes());
    return true;
  });
}

Status DecodeJpegPlanes(std::span<const uint8_t> bytes, const DecodeOptions& options,
                        PlanarImage* planes) {
  bool unusual = false;
  ATOLL_RETURN_IF_ERROR(Decode(bytes, options, [&](jpeg_decompress_struct* jpeg) {
    jpeg_calc_output_dimensions(jpeg);
    const int width = static_cast<int>(jpeg->output_width);
    const int height = static_cast<int>(jpeg->output_height);
    Subsampling subsampling;
    if (options.channels == 1 || jpeg->jpeg_color_space == JCS_GRAYSCALE) {
      jpeg->out_color_space = JCS_GRAYSCALE;
      jpeg_start_decompress(jpeg);
      planes->ReshapeGray(width, height);
      ReadRows(jpeg, planes->y.samples.data(), planes->y.stride);
    } else if (FindSubsampling(*jpeg, &subsampling)) {
      jpeg->raw_data_out = TRUE;
      jpeg_start_decompress(jpeg);
      planes->ReshapeColor(width, height, subsampling.shift_x, subsampling.shift_y);
      ReadStoredPlanes(jpeg, planes);
    } else {
      unusual = true;
    }
    return !unusual;
  }));
  if (!unusual) return Status();
  // RGB and odd subsampling, by way of pixels.
  Image image;
  ATOLL_RETURN_IF_ERROR(DecodeJpeg(bytes, options, &image));
  ToPlanes(image, planes);
  return Status();
}

Status EncodeJpegInto(const Image& image, int quality, std::vector<uint8_t>* jpeg_bytes) {
  if (image.channels != 1 && image.channels != 3) {
    return InvalidArgument("cannot encode %d channels as JPEG, only 1 or 3", image.channels);
  }
  ATOLL_RETURN_IF_ERROR(CheckSides(image.width, image.height));
  if (image.pixels.size() != image.size_bytes()) {
    return InvalidArgument("cannot encode an image of %d x %d with %zu bytes as JPEG", image.width,
                           image.height, image.pixels.size());
  }
  return Encode(
      image.width, image.height, image.channels, image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB,
      quality, jpeg_bytes, [&](jpeg_compress_struct* jpeg) {
        jpeg_start_compress(jpeg, TRUE);
        while (jpeg->next_scanline < jpeg->image_height) {
          auto* row =
              const_cast<uint8_t*>(image.pixels.data() + image.row_bytes() * jpeg->next_scanline);
          jpeg_write_scanlines(jpeg, &row, 1);
        }
      });
}

Status EncodePlanesAsJpeg(PlanarImage* planes, int quality, std::vector<uint8_t>* jpeg_bytes) {
  ATOLL_RETURN_IF_ERROR(CheckSides(planes->width, planes->height));
  Plane* const all[3] = {&planes->y, &planes->cb, &planes->cr};
  const int count = planes->has_color ? 3 : 1;
  for (int i = 0; i < count; ++i) PadToBlocks(all[i]);
  return Encode(planes->width, planes->height, count, count == 1 ? JCS_GRAYSCALE : JCS_YCbCr,
                quality, jpeg_bytes, [&](jpeg_compress_struct* jpeg) {
                  jpeg->raw_data_in = TRUE;
                  for (int i = 0; i < count; ++i) {
                    jpeg->comp_info[i].h_samp_factor = i == 0 ? 1 << planes->shift_x : 1;
                    jpeg->comp_info[i].v_samp_factor = i == 0 ? 1 << planes->shift_y : 1;
                  }
                  jpeg_start_compress(jpeg, TRUE);
                  WritePlanes(jpeg, all);
                });
}

Result<std::vector<uint8_t>> EncodeJpeg(const Image& image, int quality) {
  std::vector<uint8_t> jpeg;
  ATOLL_RETURN_IF_ERROR(EncodeJpegInto(image, quality, &jpeg));
  return jpeg;
}

}  // namespace atollrt
