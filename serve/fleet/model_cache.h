// SPDX-License-Identifier: Apache-2.0
//
// ModelCache: a folder of models that were fetched, each under its SHA-256, of a bounded number of
// bytes: what was not used for longest goes first. Several workers may have one folder. What is
// there is not believed: a file whose bytes have another digest, or that is no plain file, is none.
// Files of other names are nobody's business here, and stay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace atollserve {

class ModelCache {
 public:
  // "": none, in which nothing is kept and found.
  ModelCache(std::string folder, uint64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  // `sha256` in hexadecimal. The file becomes the latest in use.
  std::optional<std::string> Find(const std::string& sha256, uint64_t bytes) const;
  // Whole or not at all. One that is larger than the folder may be is not kept, nor any for which
  // the disk has no room: it is fetched again next time.
  void Keep(const std::string& sha256, std::string_view bytes) const;

 private:
  void MakeRoom(const std::string& newest) const;

  const std::string folder_;
  const uint64_t max_bytes_;
};

}  // namespace atollserve
