// SPDX-License-Identifier: Apache-2.0
//
// Files that become frames and jobs, and files that their results become.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"
#include "serve/fleet/producer.h"

namespace atollserve {

// Files as they are, and all files of folders, by name. kNotFound, kInvalidArgument if there are
// none.
atollrt::Result<std::vector<std::string>> ExpandFiles(const std::vector<std::string>& paths);

atollrt::Result<std::string> ReadWholeFile(const std::string& path, size_t most);

// What a file asks for: a picture (.jpg, .jpeg, .png, .bmp, .ppm, .pgm) as one, anything else as
// the bytes of the model's only input.
atollrt::Result<JobInput> ReadJobFile(const std::string& path);

// A folder with NAME.out_K.raw for output K of the file that is called NAME.
class OutputFolder {
 public:
  explicit OutputFolder(std::string path) : path_(std::move(path)) {}

  // Makes it. kInvalidArgument if two files are called the same.
  atollrt::Status Check(const std::vector<std::string>& files) const;
  // Of an answer to `file`.
  atollrt::Status Write(const std::string& file, std::string_view body,
                        std::string_view json_bytes) const;

 private:
  const std::string path_;
};

// The results of jobs, a line of JSON each: FILE.jsonl, with the values in base64, or
// FOLDER/results.jsonl, with the values beside it as of OutputFolder. It says which it has already,
// also after the process has died; a line that was cut short is none. Used by one thread at a time,
// but for Has.
class JobOutput {
 public:
  static atollrt::Result<std::unique_ptr<JobOutput>> Open(const std::string& path,
                                                          const std::vector<std::string>& files);

  const std::string& path() const { return path_; }  // of the lines
  bool Has(const std::string& name) const { return names_.contains(name); }
  // Once for each job: does nothing for one that it has.
  atollrt::Status Write(const JobResult& result);
  // What was written is on the disk.
  atollrt::Status Sync();

 private:
  JobOutput() = default;
  atollrt::Status Read();

  std::string path_;
  std::unique_ptr<OutputFolder> folder_;
  atollrt::FileDescriptor file_;
  std::set<std::string> names_;  // of what was there when it was opened
  std::set<std::string> jobs_;
};

}  // namespace atollserve
