// SPDX-License-Identifier: Apache-2.0
//
// A delegate that keeps some nodes from its device, so that tests see other partitions than the
// largest ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "delegate/delegate.h"
#include "delegate/lowering.h"

namespace atollrt {

class PartialDelegate final : public Delegate {
 public:
  // `withholds` is asked about every node of every graph that is planned.
  PartialDelegate(std::unique_ptr<Device> device, std::function<bool(int32_t node)> withholds)
      : delegate_(std::move(device)), withholds_(std::move(withholds)) {}

  // The device plans a graph in which these nodes are of an operator that nobody knows.
  Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions& options) override {
    Graph offered = graph;
    for (size_t i = 0; i < offered.nodes.size(); ++i) {
      Node& node = offered.nodes[i];
      const bool is_wanted = FindDeviceOp(node.type) != nullptr;
      if (is_wanted && withholds_(static_cast<int32_t>(i))) node.type = OpType::kCUSTOM;
    }
    return delegate_.Plan(offered, options);
  }
  Status RegisterMemory(const HostMemory& memory) override {
    return delegate_.RegisterMemory(memory);
  }
  void UnregisterMemory(std::span<uint8_t> memory) override { delegate_.UnregisterMemory(memory); }

 private:
  DeviceDelegate delegate_;
  const std::function<bool(int32_t node)> withholds_;
};

}  // namespace atollrt
