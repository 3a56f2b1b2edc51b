// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace atollcmd {

// A set of files that appears as a whole or not at all: Add writes each under a temporary name in
// the same directory, Commit renames them, and what was not committed is deleted again.
// Failures throw CommandError.
class OutputFiles {
 public:
  // Creates `directory` and its parents where they are missing. `option` named it ("--save").
  OutputFiles(const std::string& directory, std::string option);
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  void Add(const std::string& name, const void* data, size_t size);
  void Commit();

 private:
  struct File {
    std::string temporary_path;
    std::string path;
  };
  [[noreturn]] void Fail(const char* verb, const std::string& path, int error) const;

  std::string directory_;
  std::string option_;
  std::vector<File> files_;
};

}  // namespace atollcmd
