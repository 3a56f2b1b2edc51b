// SPDX-License-Identifier: Apache-2.0
//
// FlexBuffers, the schemaless format in which converters store the options of custom operators:
// just enough of it to read the numbers and byte strings of a map. The bytes are hostile; every
// offset is checked against the buffer before it is followed. Part of the loader. Pure function.
//
// Why not flatbuffers/flexbuffers.h: it follows offsets unchecked, and its verifier (2.0.8) is no
// guard for it. VerifyKey ends at the first byte of a key that is not 0 where it should look for
// the one that is, so it takes keys that run on to the end of the buffer and beyond. It also looks
// at everything in the buffer, at each of the zeros before a key once for each key: 100 KB of
// options take 0.1 s and 400 KB 2 s, and any number of nodes may have the same.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

struct FlexbufferEntry {
  std::string_view key;  // in the bytes
  // Both forms of the number: integers and booleans are exact in `integer`, floats in `real`.
  // A float becomes the nearest integer towards zero, saturated (0 if it is not a number).
  int64_t integer = 0;
  double real = 0;
};

// The entries of the map at the root, in stored order; those that are no numbers are left out.
// kCorruptModel if the root is no map, an offset leaves the buffer or a key has more than 1,024
// bytes; kResourceExhausted if there are more than 256 entries.
Result<std::vector<FlexbufferEntry>> ReadFlexbufferMap(std::span<const uint8_t> bytes);

// A string or blob of a map, inside of its bytes, or how many elements a vector of it has.
struct FlexbufferBytes {
  std::string_view key;  // in the bytes, as they are
  std::span<const uint8_t> bytes = {};
  bool is_vector = false;
  uint64_t elements = 0;  // of a vector
};

// The entries of the map at the root that are strings, blobs or vectors; errors as above.
Result<std::vector<FlexbufferBytes>> ReadFlexbufferBytes(std::span<const uint8_t> bytes);

}  // namespace atollrt
