// SPDX-License-Identifier: Apache-2.0
//
// The C++ interface of libedgetpu.so.1 as programs were compiled with it: names, slots of virtual
// functions and layouts are Google's, for libstdc++ with C++11 strings. Programs bring Google's own
// header; this one is for the library itself and its tests.
//
// Devices are those that Atoll drives and that are there; docs/coral.md says what their names are
// and which environment variables make more of them. Functions are thread-safe.
#ifndef ATOLL_COMPAT_EDGETPU_EDGETPU_H_
#define ATOLL_COMPAT_EDGETPU_EDGETPU_H_

#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "compat/tflite/abi.h"

#define ATOLL_EDGETPU_EXPORT __attribute__((visibility("default")))

namespace edgetpu {

enum class DeviceType : int { kApexPci = 0, kApexUsb = 1 };

class EdgeTpuContext;

class ATOLL_EDGETPU_EXPORT EdgeTpuManager {
 public:
  using DeviceOptions = std::unordered_map<std::string, std::string>;

  struct DeviceEnumerationRecord {
    DeviceType type;
    std::string path;
    friend bool operator==(const DeviceEnumerationRecord& a,
                           const DeviceEnumerationRecord& b) = default;
  };

  static EdgeTpuManager* GetSingleton();

  // A device of one's own; null if there is none that nobody has opened yet. An empty path: any of
  // the type. Options: "Performance", "Usb.AlwaysDfu", "Usb.MaxBulkInQueueLength"; others are
  // ignored, a wrong value of one of these gives null.
  virtual std::unique_ptr<EdgeTpuContext> NewEdgeTpuContext() = 0;
  virtual std::unique_ptr<EdgeTpuContext> NewEdgeTpuContext(DeviceType type) = 0;
  virtual std::unique_ptr<EdgeTpuContext> NewEdgeTpuContext(DeviceType type,
                                                            const std::string& path) = 0;
  virtual std::unique_ptr<EdgeTpuContext> NewEdgeTpuContext(DeviceType type,
                                                            const std::string& path,
                                                            const DeviceOptions& options) = 0;
  virtual std::vector<DeviceEnumerationRecord> EnumerateEdgeTpu() const = 0;
  // The same, shared: one that was opened before, if it fits, whatever its options are.
  virtual std::shared_ptr<EdgeTpuContext> OpenDevice() = 0;
  virtual std::shared_ptr<EdgeTpuContext> OpenDevice(DeviceType type) = 0;
  virtual std::shared_ptr<EdgeTpuContext> OpenDevice(DeviceType type, const std::string& path) = 0;
  virtual std::shared_ptr<EdgeTpuContext> OpenDevice(DeviceType type, const std::string& path,
                                                     const DeviceOptions& options) = 0;
  // The contexts that are shared.
  virtual std::vector<std::shared_ptr<EdgeTpuContext>> GetOpenedDevices() const = 0;
  // 0 to 10; anything else is kTfLiteError.
  virtual TfLiteStatus SetVerbosity(int verbosity) = 0;
  virtual std::string Version() const = 0;

 protected:
  virtual ~EdgeTpuManager() = default;
};

// What goes through a runtime is the address of the base, TfLiteExternalContext.
class EdgeTpuContext : public TfLiteExternalContext {
 public:
  ATOLL_EDGETPU_EXPORT virtual ~EdgeTpuContext() = 0;
  virtual const EdgeTpuManager::DeviceEnumerationRecord& GetDeviceEnumRecord() const = 0;
  // The options that it was opened with; with "IsReady" and "ExclusiveOwnership" if that is so.
  virtual EdgeTpuManager::DeviceOptions GetDeviceOptions() const = 0;
  virtual bool IsReady() const = 0;
};

// The kernel of "edgetpu-custom-op", for the resolver of a program.
ATOLL_EDGETPU_EXPORT TfLiteRegistration* RegisterCustomOp();

ATOLL_EDGETPU_EXPORT std::ostream& operator<<(std::ostream& stream, DeviceType type);

}  // namespace edgetpu

#endif  // ATOLL_COMPAT_EDGETPU_EDGETPU_H_
