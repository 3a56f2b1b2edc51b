// SPDX-License-Identifier: Apache-2.0
//
// The messages between Frigate's ZMQ detector and its server, as
// frigate/detectors/plugins/zmq_ipc.py has them (docs/frigate.md has them, too). Pure functions on
// bytes; what arrives is hostile.
//
// Frigate asks, and one answer follows:
//   {"model_request": true, "model_name": N}   -> {"model_available": bool, "model_loaded": bool}
//   {"model_data": true, "model_name": N}, file -> {"model_saved": bool, "model_loaded": bool}
//   {"shape": [1,h,w,3], "dtype": D, "model_type": T}, values in C order
//                        -> 480 bytes, or {"shape": [20,6], "dtype": "float32"} and 480 bytes
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// A head is refused beyond this; Frigate's have a hundred bytes.
inline constexpr size_t kMaxHeadBytes = 4096;
inline constexpr size_t kMaxModelNameBytes = 128;

struct FrameHead {
  enum class Values {
    kBytes,   // uint8
    kFloats,  // float32, 0 to 1
  };
  std::array<int32_t, 4> shape = {};  // [1,h,w,3] or [1,3,h,w], each 1 to 65535
  Values values = Values::kBytes;
  std::string model_type;  // "ssd", "yologeneric", ...; "": not said, by older versions

  size_t byte_size() const;
};

struct ModelHead {
  enum class Kind { kRequest, kData };
  Kind kind = Kind::kRequest;
  std::string name;  // a file's, without folder: IsModelName
};

// Not empty, at most kMaxModelNameBytes, neither "." nor "..", without '/', '\\' and control bytes.
bool IsModelName(std::string_view name);

// What the first part of a message says: one of the two. kInvalidArgument with what is wrong with
// it.
struct MessageHead {
  std::optional<ModelHead> model;
  std::optional<FrameHead> frame;
};
Result<MessageHead> ParseMessageHead(std::string_view json);

// Only whether it would be about a model: how to refuse it, however wrong it is.
std::optional<ModelHead::Kind> KindOfModelHead(std::string_view json);

// kInvalidArgument, with what to change, for a frame that is not for an input of this size, or that
// has too few or too many bytes.
Status CheckFrame(const FrameHead& head, size_t size_bytes, int width, int height);

// Its pixels. Channels first are put last; a float becomes round(255 * value). kInvalidArgument as
// CheckFrame, and for floats that are not 0 to 1 by more than rounding.
Status FrameToImage(const FrameHead& head, std::span<const uint8_t> bytes, int width, int height,
                    Image* image);

std::string ModelRequestAnswer(bool available, bool loaded);
std::string ModelDataAnswer(bool saved, bool loaded);
std::string RowsHead();  // {"dtype":"float32","shape":[20,6]}

}  // namespace atollrt
