// SPDX-License-Identifier: Apache-2.0
//
// What the C interfaces of runtime/ and delegate/ share: status conversion and the layouts of the
// model and delegate handles. Not installed.
#pragma once

#include <memory>

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

// The handle behind AtollDelegate; delegate/c_api.cc derives its own from it.
struct AtollDelegate {
  virtual ~AtollDelegate() = default;
  std::unique_ptr<atollrt::Delegate> delegate;
};
