// SPDX-License-Identifier: Apache-2.0
//
// Activity: what the devices of all processes of this user are doing, for `atoll top`. Whoever
// opens a device publishes counters in a page of shared memory, a file of its own (the format is in
// docs/activity.md); whoever is curious reads the files. Publishing is a help, never a condition:
// where it cannot be done it is silently off, and nothing that a reader or a damaged file does
// reaches an inference.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver/device/device_info.h"

namespace atollrt {

// Where the files are: what the environment variable ATOLL_ACTIVITY says, else $XDG_RUNTIME_DIR/
// atoll, else /tmp/atoll-UID. Empty if it says "off".
std::string ActivityDirectory();

// The command line of this process with blanks between its words, cut off where `command`, which
// has zeros, ends; one of them stays.
void ReadOwnCommand(std::span<char> command);

struct ActivityPage;

// Publishes what one device does. One caller at a time; a few dozen memory accesses a call, no
// system call, no allocation.
class ActivityPublisher {
 public:
  // Creates the directory, with access for this user only, and the file. nullptr if that fails, or
  // if `directory` is empty or belongs to somebody else.
  static std::unique_ptr<ActivityPublisher> Create(const std::string& directory,
                                                   const DeviceInfo& device);
  // Removes the file.
  ~ActivityPublisher();
  ActivityPublisher(const ActivityPublisher&) = delete;
  ActivityPublisher& operator=(const ActivityPublisher&) = delete;

  // A request that took the device from `start_ns` to `end_ns` (MonotonicNs).
  struct Step {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
    bool failed = false;
    uint64_t device_cycles = 0;
    uint64_t macs = 0;
    uint64_t bytes_to_device = 0;
    uint64_t bytes_from_device = 0;
    uint64_t memory_used_bytes = 0;  // on chip, afterwards
  };
  void Begin(int64_t now_ns);
  void End(const Step& step);

 private:
  ActivityPublisher(std::string path, int file, ActivityPage* page);

  const std::string path_;
  const int file_;  // holds the lock that says: alive
  const int process_;
  ActivityPage* const page_;
};

// Sums over some time.
struct ActivityCounts {
  uint64_t requests = 0;  // completed, failed ones included
  uint64_t failures = 0;
  uint64_t device_cycles = 0;
  uint64_t macs = 0;
  uint64_t bytes_to_device = 0;
  uint64_t bytes_from_device = 0;
  double busy_seconds = 0;  // measured: a request had the device
};

// What one device of one process does.
struct Activity {
  uint32_t pid = 0;     // as that process sees itself
  std::string command;  // its command line, printable, cut off after some words
  std::string device;   // "emu"
  uint32_t array_rows = 0;
  uint32_t array_columns = 0;
  uint64_t clock_hz = 0;
  uint64_t memory_bytes = 0;
  uint64_t memory_used_bytes = 0;
  double open_seconds = 0;     // for so long
  double running_seconds = 0;  // the request in progress, for so long; 0 if there is none
  ActivityCounts total;        // since the device was opened
  ActivityCounts recent;       // in the last recent_seconds, 0 to 1.125
  double recent_seconds = 0;
  // Of requests that ended in that time, measured from the start of each to its end; 0 if none did.
  double step_min_seconds = 0;
  double step_mean_seconds = 0;
  double step_max_seconds = 0;
};

// The live ones, ordered by process. Files that live processes do not hold are left out, and
// removed once they are older than ten seconds. Takes hostile files: every value is within its
// type's range, nothing more is promised of them. `now_ns` is MonotonicNs().
std::vector<Activity> ListActivity(const std::string& directory, int64_t now_ns);

}  // namespace atollrt
