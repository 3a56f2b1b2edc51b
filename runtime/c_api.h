// SPDX-License-Identifier: Apache-2.0
//
// What the C interfaces of runtime/ and delegate/ share: status conversion and the layouts of the
// handles. Not installed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "runtime/interpreter.h"

namespace atollrt {

// Remembers the message for AtollLastError and gives the code.
AtollStatus ToC(const Status& status);

}  // namespace atollrt

// The handle behind AtollModel.
struct AtollModel {
  std::shared_ptr<const atollrt::Model> model;
};

// A tensor as callers see it: an interpreter and an index.
struct AtollTensor {
  atollrt::Interpreter* interpreter = nullptr;
  int32_t index = 0;

  const atollrt::Tensor& tensor() const { return interpreter->graph().tensors[index]; }
};

// The handle behind AtollInterpreter.
struct AtollInterpreter {
  std::shared_ptr<atollrt::Delegate>
      delegate;  // outlives `interpreter`, whoever deletes its handle
  std::unique_ptr<atollrt::Interpreter> interpreter;
  std::vector<AtollTensor> tensors;                   // all of the graph, by index
  std::vector<std::string> node_names;                // owns what AtollNodeInfo::op points at
  std::vector<std::vector<AtollMemoryBlock>> memory;  // of each partition
};

// The handle behind AtollDelegate; delegate/c_api.cc derives its own from it.
struct AtollDelegate {
  virtual ~AtollDelegate() = default;
  // Shared with the interpreters that run on it. nullptr: the CPU.
  std::shared_ptr<atollrt::Delegate> delegate;
};
