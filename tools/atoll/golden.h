// SPDX-License-Identifier: Apache-2.0
//
// Results on file for `atoll verify --against golden:DIR`: DIR/<model's name>.json with, per seed,
// the SHA-256 of inputs, outputs and intermediate tensors (docs/command.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/atoll/session.h"

namespace atollcmd {

class Golden {
 public:
  struct Output {
    int32_t tensor = -1;  // index in the file
    std::string sha256;
    std::vector<uint8_t> bytes;  // empty if only the hash is on file
  };
  struct Inference {
    std::map<int32_t, std::string> tensors;  // index in the file -> SHA-256
    std::vector<Output> outputs;
  };

  // Reads and checks the file; throws CommandError if it is not of this form or of another model.
  Golden(const std::string& directory, const std::string& model);

  const std::string& directory() const { return directory_; }
  const std::string& path() const { return path_; }
  std::vector<uint64_t> seeds() const;  // ascending

  // Throws CommandError if the seed is not on file, or its inputs or outputs are not those of
  // `session`, whose inputs hold what it stands for.
  const Inference& ForSeed(uint64_t seed, const Session& session);

 private:
  struct Entry {
    std::vector<std::string> inputs;  // SHA-256
    Inference inference;
  };
  std::string directory_;
  std::string path_;
  std::map<uint64_t, Entry> entries_;
};

}  // namespace atollcmd
