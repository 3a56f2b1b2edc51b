// SPDX-License-Identifier: Apache-2.0
//
// How long a model takes until it is ready, and until it has given its first output: as it is, and
// compiled (`atoll compile`) for the CPU or a device:
//
//   load_time [--device NAME] [--runs N] MODEL.tflite...
//
// Both are mapped from files, in this process and in turns, so that whatever else the host does
// meets both. The files have been read before; a device is opened outside of the time.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/base/monotonic.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"

namespace atollrt {
namespace {

// A file that goes when this does.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<uint8_t>& bytes) {
    const int file = mkstemp(path_);
    if (file < 0) return;
    ok_ = write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    close(file);
  }
  ~TemporaryFile() { unlink(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const char* path() const { return path_; }
  bool ok() const { return ok_; }

 private:
  char path_[32] = "/tmp/atoll_load_time_XXXXXX";
  bool ok_ = false;
};

struct Times {
  double ready_ms = 1e30;
  double output_ms = 1e30;
};

Result<std::unique_ptr<DeviceDelegate>> OpenDelegate(const std::string& device) {
  if (device == "cpu") return std::unique_ptr<DeviceDelegate>();
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened,
                         OpenDevice({.device = device, .threads = 1}));
  return std::make_unique<DeviceDelegate>(std::move(opened));
}

// Keeps the least of each time.
Status Load(const std::string& path, const std::string& device, Times* times) {
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceDelegate> delegate, OpenDelegate(device));
  const int64_t start = MonotonicNs();
  const auto since_start = [start] { return static_cast<double>(MonotonicNs() - start) * 1e-6; };
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromFile(path));
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Interpreter> interpreter,
                         Interpreter::Create(model, {.threads = 1, .delegate = delegate.get()}));
  times->ready_ms = std::min(times->ready_ms, since_start());
  ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
  times->output_ms = std::min(times->output_ms, since_start());
  return Status();
}

Result<std::vector<uint8_t>> Compile(const std::string& path, const std::string& device) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromFile(path));
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceDelegate> delegate, OpenDelegate(device));
  return delegate == nullptr ? CompileForCpu(*model) : delegate->Compile(*model);
}

Status Measure(const std::string& path, const std::string& device, int runs) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<uint8_t> compiled, Compile(path, device));
  const TemporaryFile file(compiled);
  if (!file.ok()) return NotFound("cannot write %s", file.path());
  Times before, after;
  for (int i = 0; i < runs; ++i) {
    ATOLL_RETURN_IF_ERROR(Load(path, device, &before));
    ATOLL_RETURN_IF_ERROR(Load(file.path(), device, &after));
  }
  const size_t slash = path.rfind('/');
  std::printf("%-52s %7.2f %7.2f %6.1fx   %7.2f %7.2f %6.1fx\n",
              path.c_str() + (slash == std::string::npos ? 0 : slash + 1), before.ready_ms,
              after.ready_ms, before.ready_ms / after.ready_ms, before.output_ms, after.output_ms,
              before.output_ms / after.output_ms);
  return Status();
}

int Main(int argc, char** argv) {
  std::string device = "cpu";
  int runs = 100;
  std::vector<std::string> models;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      device = argv[++i];
    } else if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      runs = std::max(1, std::atoi(argv[++i]));
    } else {
      models.push_back(argv[i]);
    }
  }
  if (models.empty()) {
    std::fprintf(stderr, "usage: load_time [--device NAME] [--runs N] MODEL.tflite...\n");
    return 2;
  }
  std::printf("%-52s %23s    %23s\n", "", "ready, ms (least)", "first output, ms");
  std::printf("%-52s %7s %7s %7s   %7s %7s %7s\n", "model", "as is", "comp.", "", "as is", "comp.",
              "");
  for (const std::string& model : models) {
    const Status status = Measure(model, device, runs);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", model.c_str(), status.message().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) { return atollrt::Main(argc, argv); }
