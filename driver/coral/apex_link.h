// SPDX-License-Identifier: Apache-2.0
//
// CoralApexLink: a Coral behind the node of Google's kernel modules, /dev/apex_N. The modules reset
// it whenever the node is opened or closed, hold its page table and connect its interrupts, watch
// its heat, and see to it that memory stays as long as the chip may use it.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "driver/coral/coral_options.h"
#include "driver/coral/page_table.h"
#include "driver/coral/pcie_link.h"

namespace atollrt {

class CoralApexLink final : public CoralPcieLink {
 public:
  // Whether devices on PCIe look into the caches of this computer's CPUs. Where nobody knows, they
  // are told of each change: memory is mapped anew for every use.
#if defined(__x86_64__) || defined(__i386__)
  static constexpr bool kSeesCaches = true;
#else
  static constexpr bool kSeesCaches = false;
#endif

  CoralApexLink(std::string node, CoralPerformance performance, NowFunction now, std::string name,
                bool sees_caches = kSeesCaches);
  ~CoralApexLink() override;

  // Opens the node: an error then says why that cannot be done.
  Status Start(Deadline deadline) override;
  Status Stop(Deadline deadline) override;
  Result<uint64_t> Read(coral::Register64 address) override;
  Status Write(coral::Register64 address, uint64_t value) override;
  QueueMemory queue_memory() const override;
  Result<std::unique_ptr<CoralMemory>> Allocate(uint64_t bytes, DmaDirection direction) override;
  Result<std::unique_ptr<CoralMemory>> Map(std::span<uint8_t> memory,
                                           DmaDirection direction) override;
  bool IsMapped(uint64_t address) override;
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override;
  Status WatchTemperature() override { return {}; }

 private:
  class Memory;
  class Pages;
  class File;

  Result<volatile uint64_t*> RegisterAt(coral::Register64 address) const;
  Status Call(unsigned long request, void* argument, const char* what) const;
  Status Open();
  Status StartOnce();
  void Close();
  Status ConnectInterrupts();
  Status PrepareQueue();
  // Those with the mutex held.
  Status MapPages(uint64_t host, uint64_t address, uint64_t pages, DmaDirection direction) const;
  Status UnmapPages(uint64_t address, uint64_t pages) const;
  Result<std::unique_ptr<CoralMemory>> Add(std::span<uint8_t> memory, std::unique_ptr<Pages> pages,
                                           DmaDirection direction);

  const std::string node_;
  const CoralPerformance performance_;
  const NowFunction now_;
  const std::string name_;
  const bool sees_caches_;

  // These belong to the holder of the wire; the file is changed with the mutex held, too.
  std::unique_ptr<File> file_;                       // nullptr: closed
  std::array<std::unique_ptr<Pages>, 3> registers_;  // by kRegisterPages
  std::unique_ptr<Pages> queue_;
  std::array<std::unique_ptr<File>, kCoralVectors> events_;

  std::mutex mutex_;  // guards what follows
  bool is_open_ = false;
  CoralAddressSpace space_;
  std::list<Memory*> mapped_;
};

}  // namespace atollrt
