// SPDX-License-Identifier: Apache-2.0
//
// CoralFunctionLink: a Coral behind a PcieFunction. What Google's kernel modules do elsewhere is
// done here: power and reset, the page table, the vectors of interrupts, and watching the heat.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "driver/coral/coral_options.h"
#include "driver/coral/page_table.h"
#include "driver/coral/pcie_link.h"

namespace atollrt {

// A reading of the chip's sensor in thousandths of a degree Celsius.
constexpr int CoralTemperatureMc(uint32_t reading) {
  return (662 - static_cast<int>(reading)) * 250 + 550;
}

class CoralFunctionLink final : public CoralPcieLink {
 public:
  // `name` is that of the device, for messages.
  CoralFunctionLink(std::unique_ptr<PcieFunction> function, CoralPerformance performance,
                    NowFunction now, std::string name);
  ~CoralFunctionLink() override;

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
  Status WatchTemperature() override;

 private:
  class Memory;

  Result<uint32_t> Read(coral::Register32 address);
  Status Write(coral::Register32 address, uint32_t value);
  Status Update(coral::Register32 address, coral::RegisterField field, uint32_t value);
  template <typename Done>
  Status Await(const char* what, Deadline deadline, const Done& done);
  Status AwaitPower(coral::RegisterField field, uint32_t value, const char* what,
                    Deadline deadline);

  Status EnterReset(Deadline deadline);
  Status LeaveReset(Deadline deadline);
  Status StartOnce(Deadline deadline);
  Status SetThresholds();
  Status StartSensor();
  Status WritePageTable();
  Status SetPage(uint64_t address, uint64_t entry);
  Status SetPages(const Memory& memory, bool valid);
  Result<std::unique_ptr<CoralMemory>> Adopt(std::unique_ptr<DmaMapping> mapping);

  const std::unique_ptr<PcieFunction> function_;
  const CoralPerformance performance_;
  const NowFunction now_;
  const std::string name_;
  // Of the holder of the wire.
  std::unique_ptr<DmaMapping> queue_;
  uint32_t clock_ = 0;  // of kCoreClock
  Deadline next_look_{};

  std::mutex mutex_;         // guards what follows
  bool has_table_ = false;   // the chip is out of reset and its page table is as it should be
  CoralAddressSpace space_;  // of the extended addresses
  std::list<Memory*> mapped_;
  std::map<uint64_t, std::unique_ptr<DmaMapping>> tables_;  // by entry; kept until the next Start
};

}  // namespace atollrt
