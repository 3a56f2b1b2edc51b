// SPDX-License-Identifier: Apache-2.0
//
// A PCI function that does what another one does; tests override what shall be different.
#pragma once

#include <memory>
#include <utility>

#include "driver/pcie/pcie_function.h"

namespace atollrt {

class ForwardingFunction : public PcieFunction {
 public:
  explicit ForwardingFunction(std::unique_ptr<PcieFunction> inner) : inner_(std::move(inner)) {}
  PcieFunction& inner() { return *inner_; }

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    return inner_->Read32(bar, offset);
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override {
    return inner_->Read64(bar, offset);
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    return inner_->Write32(bar, offset, value);
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    return inner_->Write64(bar, offset, value);
  }
  bool maps_callers_memory() const override { return inner_->maps_callers_memory(); }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override {
    return inner_->Map(memory, direction);
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override {
    return inner_->Allocate(size_bytes, direction);
  }
  Status EnableInterrupts(uint32_t count) override { return inner_->EnableInterrupts(count); }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    return inner_->AwaitInterrupts(vectors, deadline);
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override { return inner_->Reset(deadline); }
  bool is_present() override { return inner_->is_present(); }

 private:
  const std::unique_ptr<PcieFunction> inner_;
};

}  // namespace atollrt
