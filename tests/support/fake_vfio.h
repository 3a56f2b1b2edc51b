// SPDX-License-Identifier: Apache-2.0
//
// FakeVfio: a kernel with vfio-pci in memory, and a made-up /sys to go with it. It logs what
// changes something, in order, as text; checks what the real one checks; and fails where a test
// wants it to. Thread-safe but for what tests set up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/pcie/pcie_bus.h"
#include "driver/vfio/system_calls.h"

namespace atollrt {

inline Deadline In(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }

// A folder that stands for /.
class FakeRoot {
 public:
  FakeRoot();
  ~FakeRoot();
  const std::string& path() const { return path_; }
  void Write(const std::string& file, const std::string& text) const;
  void Link(const std::string& file, const std::string& target) const;
  void Remove(const std::string& file) const;

  struct Function {
    std::string address = "0000:01:00.0";
    PcieId id = kAtollPcieId;
    std::string driver = "vfio-pci";  // "": none
    std::string group = "7";          // "": no IOMMU
  };
  void Plug(const Function& function) const;
  void Unplug(const std::string& address) const;
  void Bind(const std::string& address, const std::string& driver) const;

 private:
  std::string path_;
};

class FakeVfio : public SystemCalls {
 public:
  struct Window {
    uint64_t offset, bytes;
  };
  // What all functions are like.
  struct Function {
    std::array<uint64_t, 6> bar_bytes = {0x4000, 0, 0x100000, 0, 0, 0};
    bool may_map = true;
    std::vector<Window> sparse;  // what may be mapped of BAR 2; empty: all
    uint32_t vectors = 16;
    bool can_reset = true;
    bool has_request = true;
    bool bus_master_sticks = false;  // the command register does not take zeros
    PcieId id = kAtollPcieId;
  };
  struct Range {
    uint64_t first, last;
  };

  FakeVfio() = default;
  ~FakeVfio() override;

  Function function;
  bool has_groups = true;                // nodes of groups
  std::set<std::string> viable = {"7"};  // groups
  uint64_t page_sizes = 0x1000;          // of the IOMMU
  size_t host_page_bytes = 4096;
  std::vector<Range> ranges;               // "": the kernel does not tell
  std::map<std::string, int> open_errors;  // by path: errno
  // By what is called ("map", "set_irqs", "reset", ...): errno values to give, the first first;
  // what is negative is a positive result.
  std::map<std::string, std::vector<int>> failures;
  bool is_gone = false;  // configuration spaces read ones

  int Open(const char* path) override;
  void Close(int fd) override;
  int Ioctl(int fd, unsigned long request, void* argument) override;
  ssize_t Read(int fd, void* data, size_t bytes, uint64_t offset) override;
  ssize_t Write(int fd, const void* data, size_t bytes, uint64_t offset) override;
  void* MapFile(int fd, uint64_t offset, size_t bytes, bool readable, bool writable) override;
  int PopulateForWriting(uint64_t host, uint64_t bytes) override;
  size_t page_bytes() override { return host_page_bytes; }

  std::vector<std::string> TakeLog();
  // Until the log, which stays, has this line.
  void WaitForLog(const std::string& line);
  void SetRegister(uint32_t bar, uint64_t offset, uint32_t value);
  // Of the device that was opened last.
  void RaiseVector(uint32_t vector);
  uint16_t command() const;
  // Of the device of that name, its address or the end of its node's path; "": as above.
  void AskBack(const std::string& device = "");
  size_t num_files() const { return files_.size(); }
  size_t num_mappings() const { return mappings_.size(); }

 protected:
  // For devices behind it, with mutex_ held: an access to one by call, or false; a reset; memory at
  // an address, as far as it is mapped in one piece, with 'r' or 'w' among its rights; an interrupt
  // of a device ("": as above).
  virtual bool Access(const std::string& device, uint32_t bar, uint64_t offset,
                      std::span<uint8_t> bytes, bool store) {
    (void)device, (void)bar, (void)offset, (void)bytes, (void)store;
    return false;
  }
  virtual void ResetDevice(const std::string& device) { (void)device; }
  std::span<uint8_t> At(uint64_t iova, char right) const;
  void Signal(const std::string& device, uint32_t vector);

  std::set<std::string> gone_;  // devices whose configuration space reads ones

  mutable std::mutex mutex_;

 private:
  struct File {
    std::string kind;  // "container", "group", "device", "iommu"
    std::string name;  // of the group or the device
    int container = -1;
    bool has_iommu = false;
  };
  // What the kernel knows of one.
  struct Device {
    std::map<uint64_t, int> memory = {};  // of BARs: files in memory
    std::vector<int> vectors = {};
    int request = -1;
    uint16_t command = 0;
  };
  struct Mapped {
    uint64_t host, bytes;
    std::string rights;
  };

  int Call(int fd, unsigned long request, void* argument);
  int Fail(const std::string& call);
  int Map(uint64_t host, uint64_t iova, uint64_t bytes, const std::string& rights);
  int Unmap(uint64_t iova, uint64_t bytes);
  int RegionInfo(void* argument);
  int IommuInfo(void* argument);
  int SetIrqs(Device* device, const void* argument);
  int MemoryOf(Device* device, uint64_t bar);
  int AddFile(File file);
  void PowerUp(const std::string& device);
  Device& Find(const std::string& device) {
    return devices_[device.empty() ? last_device_ : device];
  }

  std::map<int, File> files_;
  std::map<uint64_t, Mapped> mappings_;  // by address
  std::set<std::pair<uint64_t, uint64_t>> populated_;
  std::vector<std::string> log_;
  std::map<std::string, Device> devices_ = {{"", {}}};  // by name
  std::string last_device_;                             // that was opened
  int next_file_ = 1000;
  uint32_t next_space_ = 1;
};

}  // namespace atollrt
