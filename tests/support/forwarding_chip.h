// SPDX-License-Identifier: Apache-2.0
//
// A chip that does what another one does; tests override what shall be different.
#pragma once

#include <memory>
#include <utility>

#include "driver/device/chip.h"

namespace atollrt {

class ForwardingChip : public Chip {
 public:
  explicit ForwardingChip(std::unique_ptr<Chip> inner) : inner_(std::move(inner)) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override {
    return inner_->Prepare(std::move(executable));
  }
  void Forget(const PreparedExecutable& prepared) override { inner_->Forget(prepared); }
  bool IsResident(const PreparedExecutable& prepared) const override {
    return inner_->IsResident(prepared);
  }
  uint64_t memory_used_bytes() const override { return inner_->memory_used_bytes(); }
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override {
    return inner_->Run(job, ahead, report);
  }
  Status Recover() override { return inner_->Recover(); }
  Status Reopen() override { return inner_->Reopen(); }

 private:
  const std::unique_ptr<Chip> inner_;
};

}  // namespace atollrt
