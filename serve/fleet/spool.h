// SPDX-License-Identifier: Apache-2.0
//
// Spool: a file in which a producer keeps its jobs until their results are safe. A job is on the
// disk before anybody else hears of it; a producer that dies, or loses its power, goes on where it
// was. One process has a spool at a time.
//
// The file, FOLDER/jobs.spool, is a sequence of lines of JSON, each with a line end:
//   {"job": J, "name": N, "model": M, "priority": P, "headers": {...}, "bytes": n}
//       with n bytes and another line end behind it
//   {"done": J}
// What was being written when the power went is cut off when it is opened. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"

namespace atollserve {

struct SpoolJob {
  std::string job;   // IsJobId
  std::string name;  // of what it was made of, for whoever makes jobs: there is one of a name
  std::string model;
  int priority = 1;
  std::map<std::string, std::string> headers;
  uint64_t bytes = 0;  // of its body
};

// A line, without its end: one of both. kInvalidArgument.
struct SpoolLine {
  std::optional<SpoolJob> job;
  std::optional<std::string> done;
};
atollrt::Result<SpoolLine> ParseSpoolLine(std::string_view line);

class Spool {
 public:
  // Makes the folder if it is missing. kDeviceBusy: another process has it; kNotFound and others of
  // the file system.
  static atollrt::Result<std::unique_ptr<Spool>> Open(const std::string& folder);

  // On the disk when it returns, all or none; `*bodies` beside them. kResourceExhausted: the disk
  // is full, and nothing was added.
  atollrt::Status Add(const std::vector<SpoolJob>& jobs, const std::vector<std::string>& bodies);
  // Need not be on the disk at once: to ask for a result twice does no harm.
  atollrt::Status Done(const std::string& job);

  std::vector<SpoolJob> Waiting() const;
  // It waits, or is done.
  bool HasName(const std::string& name) const;
  atollrt::Result<SpoolJob> Find(const std::string& job) const;
  atollrt::Result<std::string> Body(const std::string& job) const;
  // What is done is forgotten, if nothing waits.
  atollrt::Status Clear();

 private:
  struct Entry {
    SpoolJob job;
    uint64_t offset = 0;  // of its body
  };
  Spool() = default;
  atollrt::Status Read();
  atollrt::Status Append(std::string_view bytes, bool syncs);

  std::string path_;
  atollrt::FileDescriptor file_;
  mutable std::mutex mutex_;
  uint64_t size_ = 0;
  std::map<std::string, Entry> waiting_;
  std::set<std::string> names_;
};

}  // namespace atollserve
