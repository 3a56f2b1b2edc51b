// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_EDGETPU_MANAGER_H_
#define ATOLL_COMPAT_EDGETPU_MANAGER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compat/edgetpu/edgetpu.h"
#include "compat/tflite_delegate/delegate.h"
#include "compat/tflite_delegate/device.h"

namespace atollcompat {

// A device that programs know of: `name` is Atoll's (docs/devices.md), the record Google's.
struct ListedDevice {
  edgetpu::EdgeTpuManager::DeviceEnumerationRecord record;
  std::string name;
};

// An opened device as programs see it.
class Context final : public edgetpu::EdgeTpuContext {
 public:
  struct Setup {
    ListedDevice listed;
    std::string asked_for;  // the name that it was opened by
    edgetpu::EdgeTpuManager::DeviceOptions options;
    Operators operators = Operators::kDevice;  // that delegates on it take
    bool is_exclusive = false;
  };
  Context(std::shared_ptr<Device> device, Setup setup);
  ~Context() override;  // tells the manager

  const edgetpu::EdgeTpuManager::DeviceEnumerationRecord& GetDeviceEnumRecord() const override {
    return setup_.listed.record;
  }
  edgetpu::EdgeTpuManager::DeviceOptions GetDeviceOptions() const override;
  bool IsReady() const override;

  const Setup& setup() const { return setup_; }
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  const Setup setup_;
  std::shared_ptr<Device> device_;
};

// Which device a program wants.
struct DeviceRequest {
  std::optional<edgetpu::DeviceType> type;  // none: any
  std::optional<size_t> number;             // among those of the type, in the order of the list
  std::string name;                         // Atoll's; if it is not "", the others say nothing

  // ":1", "usb", "usb:1", "pci", "pci:1" as Google has them; what else there is, is a name. ""
  // is any, or what ATOLL_DEVICE says.
  static DeviceRequest Parse(const std::string& text);
  // False, with why in `error`, for a type that does not exist.
  static bool FromPath(int type, const std::string& path, DeviceRequest* request,
                       std::string* error);
};

class Manager final : public edgetpu::EdgeTpuManager {
 public:
  static Manager& Get();

  std::unique_ptr<edgetpu::EdgeTpuContext> NewEdgeTpuContext() override;
  std::unique_ptr<edgetpu::EdgeTpuContext> NewEdgeTpuContext(edgetpu::DeviceType type) override;
  std::unique_ptr<edgetpu::EdgeTpuContext> NewEdgeTpuContext(edgetpu::DeviceType type,
                                                             const std::string& path) override;
  std::unique_ptr<edgetpu::EdgeTpuContext> NewEdgeTpuContext(edgetpu::DeviceType type,
                                                             const std::string& path,
                                                             const DeviceOptions& options) override;
  std::vector<DeviceEnumerationRecord> EnumerateEdgeTpu() const override;
  std::shared_ptr<edgetpu::EdgeTpuContext> OpenDevice() override;
  std::shared_ptr<edgetpu::EdgeTpuContext> OpenDevice(edgetpu::DeviceType type) override;
  std::shared_ptr<edgetpu::EdgeTpuContext> OpenDevice(edgetpu::DeviceType type,
                                                      const std::string& path) override;
  std::shared_ptr<edgetpu::EdgeTpuContext> OpenDevice(edgetpu::DeviceType type,
                                                      const std::string& path,
                                                      const DeviceOptions& options) override;
  std::vector<std::shared_ptr<edgetpu::EdgeTpuContext>> GetOpenedDevices() const override;
  TfLiteStatus SetVerbosity(int verbosity) override;
  std::string Version() const override;

  int verbosity() const { return verbosity_; }

  // Null, with why in `error`, if there is no such device, or it cannot be opened.
  std::shared_ptr<Context> OpenShared(const DeviceRequest& request, const DeviceOptions& options,
                                      std::string* error);
  // What is behind the external context of an interpreter; null if it is none of these. `kept`
  // keeps it open, but for one that belongs to the program alone.
  std::shared_ptr<Device> Find(const TfLiteExternalContext* external,
                               std::shared_ptr<void>* kept) const;

  // A context that goes lets go of its device.
  void Forget(const Context* context, std::shared_ptr<Device>* device);

 private:
  struct Entry {
    const Context* context;
    std::weak_ptr<Context> shared;  // of nobody if it is exclusive
  };

  std::unique_ptr<Context> OpenExclusive(const DeviceRequest& request,
                                         const DeviceOptions& options);
  // Opens a device that none of open_ is. Null, with why in `error`, if it cannot.
  static std::shared_ptr<Device> Open(Context::Setup* setup, std::string* error);
  const Entry* FindOpen(const Context::Setup& wanted) const;
  // Waits for shared contexts whose last user has gone to have let go of their devices.
  void AwaitClosed(std::unique_lock<std::mutex>* lock);
  void Say(const std::string& error) const;
  // Nothing, having said why, for a type that does not exist.
  std::optional<DeviceRequest> RequestOf(edgetpu::DeviceType type, const std::string& path) const;

  mutable std::mutex mutex_;
  std::condition_variable closed_;
  std::vector<Entry> open_;
  std::atomic<int> verbosity_ = 0;
};

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_EDGETPU_MANAGER_H_
