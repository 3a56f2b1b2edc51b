// SPDX-License-Identifier: Apache-2.0
//
// Controller: the gadget's directory in configfs: under which ids it appears on which USB device
// controller, and whether it does.
#pragma once

#include <string>

#include "atoll/status.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

class Controller {
 public:
  // `directory` was made by tools/gadget/setup.sh; `name` is one of /sys/class/udc, or "" for the
  // first one there.
  static Result<Controller> Find(std::string directory, std::string name);

  const std::string& name() const { return name_; }

  // Appears on the bus; kDeviceBusy if the controller has another gadget.
  Status Bind(const UsbId& id);
  // Leaves the bus; does nothing if it is not there.
  Status Unbind();

 private:
  Controller(std::string directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}

  // Returns an errno, or 0.
  int WriteAttribute(const char* attribute, const std::string& value) const;
  Status Failure(const char* attribute, const std::string& value, int error) const;

  std::string directory_;
  std::string name_;
};

}  // namespace atollrt
